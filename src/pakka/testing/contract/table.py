"""The table of cases: every promise of the contract, by the name under which it is tested, waived and audited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pakka.contract.audit import ContractGuarantee
from pakka.errors import PakkaError
from pakka.testing.contract.harness import Harness
from pakka.testing.contract.trial import Trial
from pakka.testing.contract.verdict import Broken


class Beside(Enum):
    """What a pipeline relies on beside the four guarantees."""

    HONESTY = "honesty"
    """The sink tells the truth about itself: ledger, pending, guarantee, no secrets."""
    VALUES = "values"
    """Rows come out as they went in, or are refused before they are staged."""


Promise = ContractGuarantee | Beside
"""What a case puts to the test."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a plain function over a trial, and the promise that it puts to the test."""

    name: str
    promise: Promise
    says: str
    check: Callable[[Trial], None]

    def run(self, harness: Harness) -> None:
        """Put a sink on a fresh place to the test. Raises `Broken`, or `NotApplicable`; returns if the promise is kept."""
        try:
            with Trial(harness) as trial:
                self.check(trial)
        except Broken as broken:
            raise Broken(f"{self.name}: {broken}") from broken
        except PakkaError as error:
            # The case did not ask for one here. Other errors come through as they are: they may be the harness's own.
            raise Broken(f"{self.name}: the sink raises {type(error).__name__}: {error.message}") from error


CASES: dict[str, Case] = {}


def case(promise: Promise) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Enter a function in the table under its own name. Its docstring is what it says to people."""

    def enter(check: Callable[[Trial], None]) -> Callable[[Trial], None]:
        CASES[check.__name__] = Case(check.__name__, promise, (check.__doc__ or "").strip(), check)
        return check

    return enter
