"""The judge of outputs that a server holds: rows lost or twice, parts of what must be whole, rows that nobody has decided."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.faults.judge import Judge, Values, read_state
from tests.faults.outlet import Outlet
from tests.faults.workload import Workload

Shares = dict[tuple[int, int], Counter[Values]]
"""What each slot of each batch brings, by batch and slot."""


@cache
def shares(workload: Workload, sink: str) -> Shares:
    found: Shares = {}
    for batch in range(workload.batches):
        for slot in range(workload.slots):
            rows = (row.for_sink(sink) for row in workload.slot(batch, slot))
            found[batch, slot] = Counter(values for values in rows if values is not None)
    return found


@cache
def states(workload: Workload, sink: str) -> list[Counter[Values]]:
    """What a sink that shows whole epochs may show: its rows after none, one, two ... and all of them."""
    is_upsert = sink == "balances"
    rows: dict[object, Values] = {}
    found = [Counter[Values]()]
    for batch in range(workload.batches):
        for slot in range(workload.slots):
            for values in (row.for_sink(sink) for row in workload.slot(batch, slot)):
                if values is not None:
                    # Of one key the last row of the epoch counts, in the order of its slots.
                    rows[values[0] if is_upsert else values] = values
        found.append(Counter(rows.values()))
    return found


@dataclass(frozen=True)
class ServedJudge(Judge, ABC):
    """Reads what the server holds as any client does; what is a Parquet directory, it leaves to the judge of files."""

    outlet: Outlet = field(kw_only=True)

    @abstractmethod
    def read_served(self, sink: str) -> list[Values]:
        """The rows of a sink on the server."""

    @abstractmethod
    def in_doubt(self) -> list[str]:
        """Transactions that somebody has left on the server."""

    def read(self, sink: str) -> list[Values]:
        return self.read_served(sink) if sink in self.outlet.served else super().read(sink)

    def read_otherwise(self, sink: str) -> list[Values] | None:
        return None if sink in self.outlet.served else super().read_otherwise(sink)

    def wanted(self, sink: str) -> list[Values]:
        return [*states(self.workload, sink)[-1].elements()]

    def partial(self) -> list[str]:
        files = [s for s in self.sinks if s not in self.outlet.served]
        findings = [f for sink in files for f in self.partial_of(sink, self.counts(sink))]
        rows = {sink: self.read(sink) for sink in self.outlet.served}
        return findings + [
            f for sink in rows for f in (*self.torn(sink, rows[sink]), *self.undecided(sink, rows[sink]))
        ]

    def undecided(self, sink: str, rows: Sequence[Values]) -> list[str]:
        """Rows in sight of an epoch that the state store has not decided.

        To be asked while no driver is at work, or of rows that were seen before: a decision comes first.
        """
        newest = max((batch for _, batch, *_ in rows), default=-1)
        decided = [number for (number,) in read_state(self.state, "SELECT number FROM pakka_epoch")] if rows else []
        return [f"{sink}: batch {newest} is in sight, and no decision"] if newest > max(decided, default=-1) else []

    def torn(self, sink: str, rows: Sequence[Values]) -> list[str]:
        """A part of an epoch, or of whatever else comes into sight at once."""
        if Counter(rows) in states(self.workload, sink):
            return []
        by_batch = sorted(Counter(batch for _, batch, *_ in rows).items())
        return [f"{sink}: {len(rows)} rows are in sight that are no whole epochs; by batch: {by_batch}"]

    def litter(self) -> list[str]:
        """What is left on the disk, and what is in doubt on the server."""
        return [*super().litter(), *self.in_doubt()]
