"""The judge can fail: broken twins of sinks and coordinator are caught, and so is every kind of tampering."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pakka.testing.crash import Drill
from tests.faults.judge import STANDARD
from tests.faults.workload import SCHEMAS

pytestmark = [pytest.mark.faults, pytest.mark.every_case]

ROOT = Path(__file__).resolve().parents[2]
WITH_SLIPS = ("slips", *STANDARD)


@pytest.fixture
def twin_site(make_site, ground):
    def make(name: str, **spec: str):
        return make_site(f"sqlite:///{ground}/state.db", sinks=f"tests.faults.twins:{name}", **spec)

    return make


def test_a_sink_that_shows_rows_at_prepare_is_caught(twin_site):
    site = twin_site("eager")
    site.crash(Drill("prepared", epoch=1))
    site.run()
    assert any("slips" in f and "twice" in f for f in site.judge_of(WITH_SLIPS).rows())


def test_a_sink_whose_second_commit_is_a_second_copy_is_caught(twin_site):
    site = twin_site("forgetful")
    site.crash(Drill("commit.after", epoch=1))
    site.run()
    assert any("slips" in f and "twice" in f for f in site.judge_of(WITH_SLIPS).rows())


def test_a_sink_that_forgets_the_fence_when_it_acts_is_caught(twin_site):
    site = twin_site("late")
    zombie = site.freeze(Drill("commit.apply", epoch=0))
    site.run()
    before = site.snapshot()
    zombie.wake()
    zombie.wait()
    assert site.snapshot() != before
    assert any("slips" in f and "twice" in f for f in site.judge_of(WITH_SLIPS).rows())


def test_a_sink_that_does_not_abort_is_caught(twin_site):
    site = twin_site("lazy")
    site.crash(Drill("prepared", epoch=1))
    site.run()
    assert site.judge_of(WITH_SLIPS).rows() == []
    assert any("staged slip" in f for f in site.judge_of(WITH_SLIPS).litter())


def test_a_sink_that_loses_rows_is_caught(twin_site):
    site = twin_site("lying")
    site.run()
    assert any("slips" in f and "lost" in f for f in site.judge_of(WITH_SLIPS).rows())


def test_a_sink_that_shows_an_epoch_file_by_file_is_caught(twin_site):
    site = twin_site("in_the_open")
    site.crash(Drill("commit.move", epoch=0))
    assert any("refunds" in f and "are in sight" in f for f in site.judge.partial())


def test_a_coordinator_that_does_not_decide_is_caught(site):
    """The sinks' ledgers save the rows even so, as long as each run makes the same ones; the state store tells."""
    site.start(setup="tests.faults.twins:decide_nothing").wait()
    assert any(f.startswith("state: committed is") for f in site.judge.final())


def tamper_sqlite(statement: str):
    def tamper(root: Path) -> None:
        with closing(sqlite3.connect(root / "out" / "audit.db")) as db:
            assert db.execute(statement).rowcount == 1
            db.commit()

    return tamper


def a_part(root: Path, sink: str) -> Path:
    return next((root / "out" / sink).glob("pakka_epoch=1/*.parquet"))


def make(*parts: str, is_file: bool = False):
    def tamper(root: Path) -> None:
        path = root.joinpath(*parts)
        fences = list(path.parent.parent.glob("fence-*"))
        path = fences[0] / path.name if fences else path
        path.touch() if is_file else path.mkdir()

    return tamper


def copy_part(root: Path) -> None:
    part = a_part(root, "refunds")
    shutil.copy(part, part.with_name("part-copy.parquet"))


def mix_dead_and_good(root: Path) -> None:
    letter = pa.table({"id": [5], "batch": [0], "reason": ["none"]}, SCHEMAS["dead_letters"])
    pq.write_table(letter, root / "out" / "dead" / "pakka_epoch=0" / "part-more.parquet")


def reopen(root: Path) -> None:
    with closing(sqlite3.connect(root.parent / "state.db")) as db:
        db.execute("UPDATE pakka_pipeline SET committed = committed - 1")
        db.commit()


TAMPERING = {
    "a row lost": (tamper_sqlite("DELETE FROM refund_audit WHERE id = 5"), "audit: 1 rows lost"),
    "a row twice": (
        tamper_sqlite("INSERT INTO refund_audit SELECT * FROM refund_audit WHERE id = 5"),
        "audit: 1 rows twice",
    ),
    "a value changed": (tamper_sqlite("UPDATE refund_audit SET batch = 9 WHERE id = 5"), "audit: 1 rows lost"),
    "a file lost": (lambda root: a_part(root, "refunds").unlink(), "rows lost"),
    "a file twice": (copy_part, "rows twice"),
    "a dead letter lost": (lambda root: a_part(root, "dead").unlink(), "in neither"),
    "good rows among the dead": (mix_dead_and_good, "in both"),
    "an attempt left": (
        make("out", ".refunds.pakka", "fence", "pakka.refunds.refunds.1.1.0.1"),
        "litter: out/.refunds.pakka",
    ),
    "a build left": (make("out", ".dead.pakka", "fence", "epoch-1"), "litter: out/.dead.pakka"),
    "a spool left": (make("spool", "refunds.audit", "fence", "pakka.refunds.audit.1.1.0.1"), "litter: spool"),
    "a partial file left": (make("spool", "refunds.audit", "owner.json.partial", is_file=True), "litter: spool"),
    "a probe left": (make("out", "refunds", ".pakka_probe"), "litter: out/refunds"),
    "an epoch open": (reopen, "state: committed is"),
}


@pytest.mark.parametrize("case", TAMPERING)
def test_tampering_is_found(make_site, ground, case):
    site = make_site(f"sqlite:///{ground}/state.db")
    site.finish()
    tamper, finding = TAMPERING[case]
    tamper(site.root)
    assert any(finding in f for f in site.judge.final()), site.judge.final()


def test_the_driver_is_a_program_that_the_environment_can_arm_and_that_has_no_spark_in_it(make_site, ground):
    """As a person would run it; the other tests fork it, which is the same and faster."""
    site = make_site(f"sqlite:///{ground}/state.db")
    (ground / "spec.json").write_text(site.spec.to_json())
    program = [sys.executable, "-X", "importtime", "-m", "tests.faults.driver", str(ground / "spec.json")]
    armed = {"PATH": "/usr/bin:/bin", **Drill("commit.sink", epoch=1, nth=2).environment()}
    crashed = subprocess.run(program, cwd=ROOT, env=armed, capture_output=True, text=True, timeout=120, check=False)
    assert crashed.returncode == -9, crashed.stderr[-2000:]
    assert "pyarrow" in crashed.stderr
    assert "pyspark" not in crashed.stderr
    site.finish()
