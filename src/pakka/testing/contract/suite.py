"""`SinkContract`: the table of cases as a test class. Derive from it, name your harness, and pytest does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pakka.errors import UsageError
from pakka.model.id import nearest
from pakka.testing.contract import fence, finish, honest, repeat, value, visible
from pakka.testing.contract.harness import Harness
from pakka.testing.contract.table import CASES, Case
from pakka.testing.contract.verdict import Broken, NotApplicable

# Importing these is what enters their cases in the table.
MODULES = (visible, repeat, finish, fence, honest, value)


@dataclass(frozen=True, slots=True)
class Waiver:
    """A case that this sink does not pass, and why that is honest. It has to fail: one that passes breaks the build."""

    case: str
    reason: str

    def __post_init__(self) -> None:
        if self.case not in CASES:
            raise UsageError(f"there is no case `{self.case}` to waive", hint=nearest(self.case, CASES))
        if not self.reason.strip():
            raise UsageError(f"the waiver of `{self.case}` has no reason", hint="say why the sink need not pass it")


class SinkContract:
    """Every case of the contract as a test of its own, over the sink of one harness::

        class TestAcme(SinkContract):
            harness = AcmeHarness
            waivers = (Waiver("ledger_tells_the_truth", "acme remembers nothing; the sink is at-least-once"),)

    Where a harness needs more than an empty directory, override `make`.
    """

    harness: ClassVar[Callable[[Path], Harness]]
    waivers: ClassVar[tuple[Waiver, ...]] = ()

    def make(self, place: Path) -> Harness:
        """A harness on a fresh place."""
        return type(self).harness(place)

    def check(self, case: Case, place: Path) -> None:
        """Run one case, and hold a waiver to its word."""
        waiver = next((w for w in self.waivers if w.case == case.name), None)
        if waiver is None:
            case.run(self.make(place))
            return
        try:
            case.run(self.make(place))
        except Broken as broken:
            raise NotApplicable(f"waived: {waiver.reason}") from broken
        raise Broken(f"`{case.name}` is waived ({waiver.reason}), and passes: take the waiver out")


def _as_test(case: Case) -> Callable[[Any, Path], None]:
    def test(self: SinkContract, tmp_path: Path) -> None:
        self.check(case, tmp_path)

    test.__name__ = f"test_{case.name}"
    test.__qualname__ = f"SinkContract.test_{case.name}"
    test.__doc__ = case.says
    return test


for _case in CASES.values():
    setattr(SinkContract, f"test_{_case.name}", _as_test(_case))
