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
        """Of the prepared way a part of a slot, of the others a part of an epoch."""
        if self.outlet.shows_slots(sink):
            return self._torn_slots(sink, Counter(rows))
        if Counter(rows) in states(self.workload, sink):
            return []
        by_batch = sorted(Counter(batch for _, batch, *_ in rows).items())
        return [f"{sink}: {len(rows)} rows are in sight that are no whole epochs; by batch: {by_batch}"]

    def _torn_slots(self, sink: str, rows: Counter[Values]) -> list[str]:
        findings = [f"{sink}: {n} times in sight: {values}" for values, n in rows.items() if n > 1]
        whole: dict[int, set[bool]] = {}
        for (batch, slot), share in shares(self.workload, sink).items():
            seen = sum((rows & share).values())
            if seen not in (0, share.total()):
                findings.append(
                    f"{sink}: {seen} of the {share.total()} rows of slot {slot} of batch {batch} are in sight"
                )
            if share:
                whole.setdefault(batch, set()).add(seen > 0)
        begun = [batch for batch, kinds in whole.items() if True in kinds]
        findings += [
            f"{sink}: batch {batch} is in sight in part, and batch {max(begun)} is already begun"
            for batch in begun
            if False in whole[batch] and batch < max(begun)
        ]
        return findings

    def litter(self) -> list[str]:
        """What is left on the disk, and what is in doubt on the server."""
        return [*super().litter(), *self.in_doubt()]
