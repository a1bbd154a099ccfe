"""The page docs/performance.md: prose by hand, a block for each question and size that `python -m bench` writes, and what they say of the goals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.answer import Answer, Figure

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
_GOALS = "goals"
_GOALS_HEAD = ["| question | size | what | reached | spread | goal | |", "| --- | --- | --- | --- | --- | --- | --- |"]
_JUDGED_HEAD = ["| goal for | reached | spread | goal | |", "| --- | --- | --- | --- | --- |"]


def write(path: Path, answer: Answer, machine: Mapping[str, str]) -> None:
    """Put the answer in the place that the page has for this question and size, and its verdicts among the others. All other words stay as they are."""
    put(path, f"{answer.question} {answer.size}", render(answer, machine))
    put(path, _GOALS, "\n".join(["", *_GOALS_HEAD, *_verdicts(path.read_text()), ""]))


def put(path: Path, name: str, block: str) -> None:
    """Put a block between its two marks."""
    text = path.read_text()
    begin, end = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{path} must have one place for `{name}`, between `{begin}` and `{end}`")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{block}{end}", text))


def _verdicts(text: str) -> Iterator[str]:
    """What the blocks of a page say of their goals: a question that was not asked again keeps its verdict."""
    for question, size, block in re.findall(r"<!-- bench (\S+) (\S+): begin -->\n(.*?)<!-- bench", text, re.DOTALL):
        _, is_judged, rest = block.partition("\n".join(_JUDGED_HEAD) + "\n")
        if is_judged:
            yield from (f"| {question} | {size} {line}" for line in rest.partition("\n\n")[0].splitlines())


def render(answer: Answer, machine: Mapping[str, str]) -> str:
    """On what it was measured, the goals, then all other figures."""
    load = f"load {answer.load[0]:.1f} before, {answer.load[1]:.1f} after"
    lines = [
        "",
        f"**Size {answer.size}:** {on_what(machine)} {answer.rounds} rounds, {answer.took_s:.0f} s, {load}.",
        "",
    ]
    if judged := [f for f in answer.figures if f.goal is not None]:
        lines += [*_JUDGED_HEAD, *(f"{_cells(f)} {f.goal_words} | {f.verdict} |" for f in judged), ""]
    if others := [f for f in answer.figures if f.goal is None]:
        lines += ["| what | median | spread |", "| --- | --- | --- |", *(_cells(f) for f in others), ""]
    if answer.notes:
        lines += [*(f"- {note}" for note in answer.notes), ""]
    return "\n".join(lines)


def on_what(machine: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in machine.items()) + "."


def _cells(figure: Figure) -> str:
    return f"| {figure.what} | {figure.number(figure.spread.median)} | {spread_of(figure)} |"


def spread_of(figure: Figure) -> str:
    """The lowest and the highest round; nothing if there was one."""
    if figure.spread.low == figure.spread.high:
        return ""
    return f"{figure.number(figure.spread.low)} .. {figure.number(figure.spread.high)}"
