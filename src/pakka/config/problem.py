"""What is wrong with a pipeline file, and where: `file:line:column`, the field, what was expected, the nearest name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pakka.errors import ConfigError

Loc = tuple[str | int, ...]
"""The path of a field: `("sinks", "refunds", "parquet", "path")`."""

_SHOWN_MAX = 10
_LINE_CHARS_MAX = 160


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in the file, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the field it is about, what is wrong, and what to do about it."""

    place: Place
    loc: Loc
    what: str
    advice: str = ""


def dotted(loc: Loc) -> str:
    """A field's path as people write it: `quality[1].range.column`."""
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def refuse(name: str, lines: Sequence[str], problems: Sequence[Problem]) -> ConfigError:
    """One error for all that is wrong with the file, in the order of its lines."""
    ordered = sorted(dict.fromkeys(problems), key=lambda p: p.place)
    if len(ordered) == 1:
        return ConfigError(f"{_headline(name, ordered[0])}{_excerpt(lines, ordered[0])}", hint=ordered[0].advice)
    parts = [f"{name} has {len(ordered)} mistakes; nothing was started"]
    for problem in ordered[:_SHOWN_MAX]:
        advice = f"; {problem.advice}" if problem.advice else ""
        parts.append(f"{_headline(name, problem)}{advice}{_excerpt(lines, problem)}")
    if len(ordered) > _SHOWN_MAX:
        parts.append(f"and {len(ordered) - _SHOWN_MAX} more")
    return ConfigError("\n\n".join(parts), hint="the fields of a pipeline file are listed by `pakka schema`")


def _headline(name: str, problem: Problem) -> str:
    field = f"{dotted(problem.loc)}: " if problem.loc else ""
    return f"{name}:{problem.place.line}:{problem.place.column}: {field}{problem.what}"


def _excerpt(lines: Sequence[str], problem: Problem) -> str:
    """The line itself with a caret under the place, where that helps."""
    line, column = problem.place.line, problem.place.column
    if not 1 <= line <= len(lines):
        return ""
    text = lines[line - 1].rstrip()
    if not text or len(text) > _LINE_CHARS_MAX:
        return ""
    # Tabs are kept in the pad, so that the caret stands under its character at any tab width.
    pad = "".join("\t" if c == "\t" else " " for c in text[: column - 1])
    return f"\n  {line} | {text}\n  {' ' * len(str(line))} | {pad}^"
