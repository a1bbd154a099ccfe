"""The suite is worth something: for every case there is a twin that fails it, and every twin fails a case."""

from functools import cache
from pathlib import Path

import pytest

from pakka.testing import SinkContract
from pakka.testing.contract import CASES, Broken, NotApplicable
from pakka.testing.twins import HONEST_BY_SLOT, TWINS, TwinHarness


class TestHonest(SinkContract):
    """What the twins are twins of passes everything: else they could fail for a reason that is not their lie."""

    harness = TwinHarness


class TestHonestBySlot(SinkContract):
    def make(self, place):
        return TwinHarness(place, HONEST_BY_SLOT)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_is_caught(name, tmp_path):
    escaped = [case for case in TWINS[name].caught_by if not is_caught(name, case, tmp_path / case)]
    assert not escaped, f"the twin that {TWINS[name].lie} gets through {', '.join(escaped)}\n\n{matrix(tmp_path)}"


def test_every_case_is_failed_by_a_twin_and_every_twin_fails_a_case(tmp_path):
    failed = {case for twin in TWINS.values() for case in twin.caught_by}
    assert set(CASES) - failed == set(), f"no twin fails these cases\n\n{matrix(tmp_path)}"
    assert failed - set(CASES) == set(), "twins name cases that are not there"
    assert [name for name, twin in TWINS.items() if not twin.caught_by] == []


def is_caught(twin: str, case: str, place: Path) -> bool:
    """Broken, and nothing else, is a catch: a twin that falls over its own feet shows nothing."""
    try:
        CASES[case].run(TwinHarness(place, TWINS[twin]))
    except Broken:
        return True
    except NotApplicable:
        return False
    return False


@cache
def matrix(place: Path) -> str:
    """Twins down, cases across, numbered: what each twin was seen to do in the cases that are said to catch it."""
    cases = list(CASES)
    lines = [f"{n:3} {case}" for n, case in enumerate(cases)]
    for name, twin in TWINS.items():
        cells = [
            "." if case not in twin.caught_by else "x" if is_caught(name, case, place / name / case) else "!"
            for case in cases
        ]
        lines.append(f"{name:>16} {''.join(cells)}  {twin.lie}")
    return "\n".join([*lines, "x: caught, as it should be; !: not caught; .: not run"])
