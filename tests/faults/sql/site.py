"""One pipeline of one test whose outputs are tables of a server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.judge import Snapshot, take_snapshot
from tests.faults.sql.judge import SqlJudge
from tests.faults.sql.outputs import SqlOutlet
from tests.faults.sql.reader import watch
from tests.faults.watched import WatchedSite


class SqlSite(WatchedSite):
    """A site over tables."""

    def __init__(self, root: Path, state: str, outlet: SqlOutlet, **spec: Any) -> None:
        super().__init__(root, state, outlet, watch, **{"sinks": "tests.faults.sql.outputs:of_site", **spec})
        self.outlet = outlet
        self.foreign: tuple[str, ...] = ()

    @property
    def judge(self) -> SqlJudge:
        sinks = tuple(self.outlet.options)
        return SqlJudge(self.root, self.spec.state, self.spec.workload, sinks, outlet=self.outlet, foreign=self.foreign)

    def snapshot(self) -> Snapshot:
        files = take_snapshot(self.root, self.spec.state, self.spec.pipeline)
        return Snapshot({**files.outputs, "tables": repr(self.judge.tables())}, files.state)

    def prepared(self, count: int | None = None) -> list[str]:
        """What is prepared on the server, which must be so much."""
        found = [ident for ident in self.judge.prepared() if ident not in self.foreign]
        assert count is None or len(found) == count, found
        return found


Make = Callable[..., SqlSite]
