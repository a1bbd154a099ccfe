"""The judge of tables on a server: rows lost or twice, parts of what must be whole, and transactions left in doubt."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.faults.judge import Values
from tests.faults.served import ServedJudge, states
from tests.faults.sql.outputs import SqlOutlet
from tests.faults.workload import SCHEMAS


@dataclass(frozen=True)
class SqlJudge(ServedJudge):
    """Reads tables as any client does."""

    outlet: SqlOutlet = field(kw_only=True)
    foreign: tuple[str, ...] = ()
    """Prepared transactions of somebody else: these must be there to the end."""

    def read_served(self, sink: str) -> list[Values]:
        with closing(self.outlet.server.connect(self.outlet.direct)) as db:
            return self.outlet.server.rows(db, sink, SCHEMAS[sink].names)

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
            names = (*self.outlet.served, *self.outlet.server.own)
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
        if self.judge.outlet.shows_slots(sink):
            is_back = bool(before - now)
        else:
            is_back = every.index(now) < every.index(before)
        return (
            [f"{sink}: {before.total()} rows were in sight, and then {now.total()}: some are gone"] if is_back else []
        )
