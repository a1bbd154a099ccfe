"""One pipeline of one test whose outputs are tables of a server, with a reader that looks at them all the time."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.child import Child, wait_until
from tests.faults.judge import Snapshot, take_snapshot
from tests.faults.site import Site
from tests.faults.sql.judge import SqlJudge
from tests.faults.sql.outputs import Outlet
from tests.faults.sql.reader import watch

DONE, FAILED, UNKNOWN, FENCED = 0, 1, 3, 4
ANY_END = (DONE, FAILED, UNKNOWN)
"""How a driver may end that had trouble with its server: it went on, gave up, or does not know. Never by an error of ours."""


class SqlSite(Site):
    """A site over an outlet. Whatever a test asks of it, the reader must have found nothing."""

    def __init__(self, root: Path, state: str, outlet: Outlet, **spec: Any) -> None:
        super().__init__(root, state, **{"sinks": "tests.faults.sql.outputs:of_site", **spec})
        self.outlet = outlet
        outlet.write(root)
        self.foreign: tuple[str, ...] = ()
        self._notes = root.with_name(f"{root.name}.notes")
        self._notes.mkdir()
        workload = self.spec.workload
        told = (str(root), workload.batches, workload.slots, workload.rows, str(self._notes))
        self.reader = Child(watch, told, root.with_name(f"{root.name}.reader"), None)

    @property
    def judge(self) -> SqlJudge:
        sinks = tuple(self.outlet.options)
        return SqlJudge(self.root, self.spec.state, self.spec.workload, sinks, outlet=self.outlet, foreign=self.foreign)

    def check(self) -> None:
        super().check()
        self.check_reader()

    def check_whole_epochs(self) -> None:
        super().check_whole_epochs()
        self.check_reader()

    def check_reader(self) -> None:
        self.wait_for_a_look()
        findings = self.findings()
        assert findings == [], self._story(findings)

    def findings(self) -> list[str]:
        """What the reader saw that nobody may see."""
        path = self._notes / "findings"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_a_look(self) -> None:
        """Until a round of looks has ended that was begun after this call: the second one from now."""
        looks = self._looks()
        wait_until(lambda: self.reader.is_over() or self._looks() >= looks + 2, "the reader does not look")
        assert not self.reader.is_over(), self.reader.said

    def ends(self, child: Child, codes: tuple[int, ...] = ANY_END) -> int:
        code = child.wait()
        assert code in codes, f"exit code {code}, and not one of {codes}; it said:\n{child.said}"
        return code

    def snapshot(self) -> Snapshot:
        files = take_snapshot(self.root, self.spec.state, self.spec.pipeline)
        return Snapshot({**files.outputs, "tables": repr(self.judge.tables())}, files.state)

    def prepared(self, count: int | None = None) -> list[str]:
        """What is prepared on the server, which must be so much."""
        found = [ident for ident in self.judge.prepared() if ident not in self.foreign]
        assert count is None or len(found) == count, found
        return found

    def close(self) -> None:
        super().close()
        self.reader.clear_away()
        shutil.rmtree(self._notes)

    def _looks(self) -> int:
        path = self._notes / "looked"
        return path.stat().st_size if path.exists() else 0


Make = Callable[..., SqlSite]
