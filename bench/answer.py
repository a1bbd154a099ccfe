"""What a benchmark says: figures with their spread, each beside its goal if it has one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

DIGITS = {"x": 2, "s": 2, "ms": 1, "MB": 1, "kB": 1, "rows/s": 0, "%": 1}


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, with the lowest and the highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def ratio(cls, above: Sequence[float], below: Sequence[float]) -> Spread:
        """Round by round: what disturbed one side of a round has likely disturbed the other."""
        return cls.of([a / b for a, b in zip(above, below, strict=True)])

    @classmethod
    def difference(cls, left: Sequence[float], right: Sequence[float]) -> Spread:
        return cls.of([a - b for a, b in zip(left, right, strict=True)])

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Goal:
    """What a figure should be. `words` say it as design does, where the bare limit would not."""

    limit: float
    is_floor: bool = False
    words: str = ""

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.is_floor else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One line of the table. Judged by its median."""

    what: str
    spread: Spread
    unit: str
    goal: Goal | None = None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.is_met(self.spread.median) else "**missed**"

    @property
    def goal_words(self) -> str:
        if self.goal is None:
            return ""
        limit = self.number(self.goal.limit)
        return self.goal.words or f"{'at least' if self.goal.is_floor else 'at most'} {limit}"

    def number(self, value: float) -> str:
        space = "" if self.unit in ("x", "%") else " "
        return f"{value:,.{DIGITS[self.unit]}f}{space}{self.unit}"


@dataclass(frozen=True)
class Answer:
    """All that one benchmark found, with what a reader needs to judge it."""

    question: str
    size: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    rounds: int = 1
    took_s: float = 0.0
    load: tuple[float, float] = field(default=(0.0, 0.0))
    """The machine's load average of a minute, before and after; a quiet machine begins near 0."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
