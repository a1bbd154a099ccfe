"""One pipeline of one test whose outputs a server holds, with a reader that looks at them all the time."""

import shutil
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.child import Child, wait_until
from tests.faults.extent import IS_WHOLE
from tests.faults.outlet import Outlet
from tests.faults.served import ServedJudge
from tests.faults.site import Site

DONE, FAILED, UNKNOWN, FENCED = 0, 1, 3, 4
ANY_END = (DONE, FAILED, UNKNOWN)
"""How a driver may end that had trouble with its server: it went on, gave up, or does not know. Never by an error of ours."""
REST_S = 0.004 if IS_WHOLE else 0.03
"""Between two looks. A reader without rest would take a processor from what it looks at."""


class WatchedSite(Site):
    """A site over an outlet. Whatever a test asks of it, the reader must have found nothing.

    The reader looks until its notes are gone. It writes a finding there at once, and leaves a mark in `looked` for each look.
    """

    def __init__(self, root: Path, state: str, outlet: Outlet, watch: Callable[..., int], **spec: Any) -> None:
        super().__init__(root, state, **spec)
        outlet.write(root)
        self._notes = root.with_name(f"{root.name}.notes")
        self._notes.mkdir()
        workload = self.spec.workload
        told = (str(root), state, workload.batches, workload.slots, workload.rows, str(self._notes))
        self.reader = Child(watch, told, root.with_name(f"{root.name}.reader"), None)

    @property
    @abstractmethod
    def judge(self) -> ServedJudge: ...

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
        wait_until(
            lambda: self.reader.is_over() or self._looks() >= looks + 2,
            lambda: f"the reader does not look; it said:\n{self.reader.said[-4000:]}",
        )
        assert not self.reader.is_over(), self.reader.said

    def ends(self, child: Child, codes: tuple[int, ...] = ANY_END) -> int:
        code = child.wait()
        assert code in codes, f"exit code {code}, and not one of {codes}; it said:\n{child.said}"
        return code

    def close(self) -> None:
        super().close()
        self.reader.clear_away()
        shutil.rmtree(self._notes)

    def _looks(self) -> int:
        path = self._notes / "looked"
        return path.stat().st_size // len(".\n") if path.exists() else 0


def note(path: Path, line: str) -> None:
    """What a reader has to say."""
    with suppress(FileNotFoundError), open(path, "a") as notes:  # the test is over
        notes.write(f"{line}\n")
