"""The page docs/performance.md: prose by hand, and a block for each group of questions and size that `make bench` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.answer import Answer, Figure

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def write(path: Path, group: str, size: str, answers: Sequence[Answer], machine: Mapping[str, str]) -> None:
    """Put the answers in the place that the page has for this group and size. All other words stay as they are."""
    put(path, group, size, render(answers, machine))


def put(path: Path, group: str, size: str, block: str) -> None:
    """Put a block between its two marks."""
    text = path.read_text()
    begin, end = f"<!-- bench {group} {size}: begin -->", f"<!-- bench {group} {size}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{path} must have one place for `{group}` at size `{size}`, between `{begin}` and `{end}`")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{block}{end}", text))


def render(answers: Sequence[Answer], machine: Mapping[str, str]) -> str:
    """The machine, the goals, then all figures by question."""
    lines = ["", on_what(machine), ""]
    judged = [(a, f) for a in answers for f in a.figures if f.goal is not None]
    if judged:
        lines += ["| question | what | reached | spread | goal | |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [
            f"| {a.question} | {f.what} | {f.number(f.spread.median)} | {spread_of(f)} | {f.goal_words} | {f.verdict} |"
            for a, f in judged
        ]
    for answer in answers:
        lines += ["", *_section(answer)]
    return "\n".join(lines) + "\n"


def on_what(machine: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in machine.items()) + "."


def _section(answer: Answer) -> list[str]:
    load = f"load {answer.load[0]:.1f} before, {answer.load[1]:.1f} after"
    lines = [f"**{answer.question}** ({answer.rounds} rounds, {answer.took_s:.0f} s, {load})", ""]
    lines += ["| what | median | spread |", "| --- | --- | --- |"]
    lines += [f"| {f.what} | {f.number(f.spread.median)} | {spread_of(f)} |" for f in answer.figures]
    if answer.notes:
        lines += ["", *(f"- {note}" for note in answer.notes)]
    return lines


def spread_of(figure: Figure) -> str:
    """The lowest and the highest round; nothing if there was one."""
    if figure.spread.low == figure.spread.high:
        return ""
    return f"{figure.number(figure.spread.low)} .. {figure.number(figure.spread.high)}"
