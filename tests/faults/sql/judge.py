"""The judge of tables on a server: rows lost or twice, parts of what must be whole, and transactions left in doubt."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.faults.judge import Judge, Values, read_state
from tests.faults.sql.outputs import PREPARED, Outlet
from tests.faults.workload import SCHEMAS, Workload

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
class SqlJudge(Judge):
    """Reads tables as any client does; what is a Parquet directory, it leaves to the judge of files."""

    outlet: Outlet = field(kw_only=True)
    foreign: tuple[str, ...] = ()
    """Prepared transactions of somebody else: these must be there to the end."""

    def read(self, sink: str) -> list[Values]:
        if sink not in self.outlet.tables:
            return super().read(sink)
        with closing(self.outlet.server.connect(self.outlet.direct)) as db:
            return self.outlet.server.rows(db, sink, SCHEMAS[sink].names)

    def read_otherwise(self, sink: str) -> list[Values] | None:
        return None if sink in self.outlet.tables else super().read_otherwise(sink)

    def wanted(self, sink: str) -> list[Values]:
        return [*states(self.workload, sink)[-1].elements()]

    def partial(self) -> list[str]:
        files = [s for s in self.sinks if s not in self.outlet.tables]
        findings = [f for sink in files for f in self.partial_of(sink, self.counts(sink))]
        rows = {sink: self.read(sink) for sink in self.outlet.tables}
        return findings + [
            f for sink in rows for f in (*self.torn(sink, rows[sink]), *self.undecided(sink, rows[sink]))
        ]

    def undecided(self, sink: str, rows: Sequence[Values]) -> list[str]:
        """Rows in sight of an epoch that the state store has not decided. To be asked while no driver is at work."""
        newest = max((batch for _, batch, *_ in rows), default=-1)
        decided = [number for (number,) in read_state(self.state, "SELECT number FROM pakka_epoch")] if rows else []
        return [f"{sink}: batch {newest} is in sight, and no decision"] if newest > max(decided, default=-1) else []

    def torn(self, sink: str, rows: Sequence[Values]) -> list[str]:
        """A part of what comes into sight at once: of a slot where slots are committed, of an epoch elsewhere."""
        if self.outlet.options[sink] == PREPARED:
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

    def in_doubt(self) -> list[str]:
        left = Counter(self.prepared())
        findings = [f"in doubt: {ident}" for ident in left - Counter(self.foreign)]
        return findings + [f"somebody else's is gone: {ident}" for ident in Counter(self.foreign) - left]

    def prepared(self) -> list[str]:
        with closing(self.outlet.server.connect(self.outlet.direct)) as db:
            return self.outlet.server.prepared(db)

    def tables(self) -> dict[str, list[Values]]:
        """Outputs, fence and ledger row for row, and what is prepared."""
        with closing(self.outlet.server.connect(self.outlet.direct)) as db:
            names = (*self.outlet.tables, *self.outlet.server.own)
            found = {name: sorted(self.outlet.server.rows(db, name, ["*"]), key=repr) for name in names}
            return {**found, "prepared": [(ident,) for ident in self.outlet.server.prepared(db)]}


class Memory:
    """What one reader has seen before: nothing of it may vanish again."""

    def __init__(self, judge: SqlJudge) -> None:
        self.judge = judge
        self.seen: dict[str, Any] = {}

    def look(self, sink: str, rows: Sequence[Values]) -> list[str]:
        findings = self.judge.torn(sink, rows)
        if findings:
            return findings
        before, now = self.seen.get(sink), Counter(rows)
        self.seen[sink] = now
        if before is None:
            return []
        every = states(self.judge.workload, sink)
        if self.judge.outlet.options[sink] == PREPARED:
            is_back = bool(before - now)
        else:
            is_back = every.index(now) < every.index(before)
        return (
            [f"{sink}: {before.total()} rows were in sight, and then {now.total()}: some are gone"] if is_back else []
        )
