"""The suite itself: its waivers are strict, its cases run without pytest, and it says what it saw."""

import subprocess
import sys
import threading
import unittest
from dataclasses import replace

import pytest

from pakka.errors import UsageError
from pakka.testing import SinkContract, Waiver
from pakka.testing.contract import CASES, Broken, NotApplicable
from pakka.testing.twins import HONEST, TWINS, TwinHarness
from pakka.testing.twins.honest import HonestCommitter

CASE = "commit_twice_leaves_one_copy"


def contract_of(twin: str | None, *waivers: Waiver) -> SinkContract:
    class Contract(SinkContract):
        def make(self, place):
            return TwinHarness(place, TWINS[twin]) if twin else TwinHarness(place)

    Contract.waivers = waivers
    return Contract()


def test_every_case_is_a_test_of_its_own():
    tests = {name.removeprefix("test_") for name in dir(SinkContract) if name.startswith("test_")}
    assert tests == set(CASES)


def test_every_case_says_what_it_is_for():
    assert [name for name, case in CASES.items() if not case.says.endswith(".")] == []


def test_a_case_that_fails_says_what_was_promised_and_what_was_seen(tmp_path):
    with pytest.raises(Broken) as caught:
        contract_of("doubling").check(CASES[CASE], tmp_path)
    assert str(caught.value) == f"{CASE}: the second commit must answer ALREADY_COMMITTED, and answers COMMITTED"


def test_a_waived_case_that_fails_is_skipped_with_its_reason(tmp_path):
    with pytest.raises(unittest.SkipTest, match="waived: it is only a test"):
        contract_of("doubling", Waiver(CASE, "it is only a test")).check(CASES[CASE], tmp_path)


def test_a_waived_case_that_passes_is_a_failure(tmp_path):
    with pytest.raises(Broken, match=f"`{CASE}` is waived .* and passes: take the waiver out"):
        contract_of(None, Waiver(CASE, "it is only a test")).check(CASES[CASE], tmp_path)


def test_a_waived_case_that_does_not_apply_stays_so(tmp_path):
    class Unreleased(TwinHarness):
        def golden(self):
            return None

    with pytest.raises(NotApplicable, match="no golden record"):
        CASES["a_prepared_of_the_last_release_commits"].run(Unreleased(tmp_path))


def test_a_harness_that_falls_over_is_not_covered_by_a_waiver(tmp_path):
    class Crooked(TwinHarness):
        def rows(self, schema):
            raise ZeroDivisionError

    class Contract(SinkContract):
        harness = Crooked
        waivers = (Waiver(CASE, "it is only a test"),)

    with pytest.raises(ZeroDivisionError):
        Contract().check(CASES[CASE], tmp_path)


def test_a_waiver_names_a_case_that_exists():
    with pytest.raises(UsageError, match="there is no case `commit_twice_leaves_one_copies`") as caught:
        Waiver("commit_twice_leaves_one_copies", "why not")
    assert CASE in caught.value.hint


def test_a_waiver_has_a_reason():
    with pytest.raises(UsageError, match="has no reason"):
        Waiver(CASE, " ")


def test_a_line_that_was_never_cut_proves_nothing(tmp_path):
    class Uncut(TwinHarness):
        points_before = points_after = ()

    with pytest.raises(NotApplicable, match="no way to lose the answer"):
        CASES["a_lost_answer_is_unknown_and_ends_in_one_copy"].run(Uncut(tmp_path))


def test_a_sink_may_make_its_readers_wait(tmp_path):
    """As a database that locks does: a reader in the committing thread itself would wait for ever."""
    lock = threading.Lock()

    class Locking(HonestCommitter):
        def commit_epoch(self, epoch, prepared):
            with lock:
                return super().commit_epoch(epoch, prepared)

    class Waiting(TwinHarness):
        def rows(self, schema):
            with lock:
                return super().rows(schema)

    CASES["many_writers_commit_as_one"].run(Waiting(tmp_path, replace(HONEST, committer=Locking)))


def test_cases_run_without_pytest(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from pakka.testing.contract import CASES\n"
        "from pakka.testing.twins import TwinHarness\n"
        f"CASES[{CASE!r}].run(TwinHarness(pathlib.Path(sys.argv[1])))\n"
        "sys.exit('pytest' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
