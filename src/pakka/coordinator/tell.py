"""How the protocol tells what it does: to whoever listens, and with a clock that belongs to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pakka.model.event import Event
from pakka.model.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells a run's listener. One that raises ends the run as a crash would, so a listener should not."""

    clock: Callable[[], float] = lambda: 0.0
    tell: Callable[[Event], None] = lambda _: None


QUIET = Teller()


def by_sink(records: Sequence[Prepared]) -> dict[str, int]:
    """How many records there are of each sink."""
    counts: dict[str, int] = {}
    for record in records:
        counts[record.slot.sink] = counts.get(record.slot.sink, 0) + 1
    return counts
