"""The source, and what becomes of its rows: pure arithmetic, so that everybody agrees on what should be where.

Rows are the numbers from 0 on. Every 7th is dropped by the judge, every 5th of the others is dead, and the second of two
good sinks takes even ones only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pakka.model.epoch import Count

DEAD = "dead_letters"
HALF = "audit"


@dataclass(frozen=True, slots=True)
class Batch:
    """Source offsets: the rows from `first` up to, and without, `end`, in so many partitions of the source."""

    first: int
    end: int
    partitions: int = 1
    slots: int = 1
    """Into how many a run puts those partitions."""

    def on(self, cores: int) -> Batch:
        """This batch as a machine with so many cores runs it."""
        return replace(self, slots=min(self.partitions, cores))

    @property
    def digest(self) -> str:
        return f"{self.first}-{self.end}"

    def slot(self, number: int) -> tuple[int, ...]:
        """Neighbouring partitions, as Spark puts them together: of three, two slots get {0} and {1, 2}. So some slots may come out
        equal where there are more of them.
        """
        mine = range(number * self.partitions // self.slots, (number + 1) * self.partitions // self.slots)
        return tuple(row for row in range(self.first, self.end) if (row - self.first) % self.partitions in mine)

    def count(self, number: int | None = None) -> Count:
        rows = tuple(range(self.first, self.end)) if number is None else self.slot(number)
        dead = sum(is_dead(row) for row in rows)
        dropped = sum(is_dropped(row) for row in rows)
        return Count(len(rows), len(rows) - dead - dropped, dead, dropped)


def is_dropped(row: int) -> bool:
    return row % 7 == 6


def is_dead(row: int) -> bool:
    return row % 5 == 4 and not is_dropped(row)


def rows_of(batch: Batch, sink: str, slot: int | None = None) -> tuple[int, ...]:
    """The rows of a batch, or of one of its slots, that belong in a sink."""
    rows = range(batch.first, batch.end) if slot is None else batch.slot(slot)
    if sink == DEAD:
        return tuple(row for row in rows if is_dead(row))
    good = (row for row in rows if not is_dead(row) and not is_dropped(row))
    return tuple(row for row in good if row % 2 == 0) if sink == HALF else tuple(good)
