"""An audit leaves nothing behind, however it ends; and what could not be removed then is removed by the next."""

import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from pakka.audit import scratch
from pakka.audit.run import audit
from pakka.audit.scratch import ground_of
from pakka.errors import RefusedError, SinkError, UnavailableError, UsageError
from pakka.sinks import _sqlite_scratch
from pakka.sinks.files import ParquetSink
from pakka.sinks.spooled import SpooledSink
from pakka.sinks.sqlite import SqliteSink
from tests.audit.slow import MARK
from tests.docs.pages import ROOT


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """A temporary directory of one's own, so that what is left in it is seen."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield place
    tempfile.tempdir = None


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "out" / "refunds.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE refunds (id TEXT)")
    return path


def contents(path: Path) -> tuple:
    """All that a database holds, and how it keeps its journal."""
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return tables, db.execute("PRAGMA journal_mode").fetchone()


def names_in(*places: Path) -> list[str]:
    return sorted(p.name for place in places for p in place.iterdir())


def slow_audit(database: Path, mark: Path, held: tuple[int, ...] = ()) -> subprocess.Popen:
    """An audit that is in the middle of a commit. It and all of its processes hold these descriptors."""
    environment = {**os.environ, MARK: str(mark), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.audit.slow", f"sqlite:///{database}"]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=held
    )
    give_up = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < give_up
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_audit_leaves_the_database_as_it_was(database, tmp_path, temporary, number):
    before = contents(database)
    process = slow_audit(database, tmp_path / "mark")
    process.send_signal(number)
    out, told = process.communicate(timeout=60)
    assert (process.returncode, out, told.strip()) == (130, "", "interrupted")
    assert contents(database) == before
    assert names_in(database.parent, temporary) == ["refunds.db"]


@pytest.mark.faults
def test_what_a_killed_audit_has_left_is_removed_by_the_next(database, tmp_path, temporary):
    before = contents(database)
    process = slow_audit(database, tmp_path / "mark")
    process.kill()
    process.communicate(timeout=60)
    assert contents(database) != before
    assert names_in(temporary) != []
    with ground_of(SqliteSink(str(database), "refunds")):
        pass
    assert contents(database) == before
    assert names_in(database.parent, temporary) == ["refunds.db"]


@pytest.mark.faults
def test_the_processes_of_a_killed_audit_end_by_themselves(database, tmp_path):
    life, held = os.pipe()
    process = slow_audit(database, tmp_path / "mark", (held,))
    os.close(held)
    process.kill()
    process.communicate(timeout=60)
    are_gone, _, _ = select.select([life], [], [], 30)
    os.close(life)
    assert are_gone


def test_a_scratch_area_of_an_audit_that_runs_is_left_alone(database):
    with ground_of(SqliteSink(str(database), "refunds")):
        during = contents(database)
        scratch._sweep(SqliteSink(str(database), "refunds"), Path(tempfile.gettempdir()))
        assert contents(database) == during


@pytest.mark.parametrize(("age_s", "is_old"), [(0, False), (3600, True)])
def test_one_of_another_machine_is_left_alone_until_it_is_old(monkeypatch, age_s, is_old):
    token = scratch._new_token()
    now = time.time() + age_s
    monkeypatch.setattr(scratch.socket, "gethostname", lambda: "elsewhere")
    monkeypatch.setattr(scratch.time, "time", lambda: now)
    assert scratch._is_abandoned(token) is is_old


def test_a_table_with_a_like_name_is_nobody_elses_to_remove(database):
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE pakka_audit_of_mine_before (id TEXT)")
    before = contents(database)
    with ground_of(SqliteSink(str(database), "refunds")):
        pass
    assert contents(database) == before


def test_the_fence_and_the_ledger_of_a_pipeline_in_the_same_file_stay(database):
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE pakka_fence (pipeline TEXT, sink TEXT, fence INTEGER, PRIMARY KEY (pipeline, sink))")
        db.execute("INSERT INTO pakka_fence VALUES ('refunds', 'book', 7)")
        db.commit()
        before = contents(database)
        assert audit(SqliteSink(str(database), "refunds"), "sqlite").failed == []
        assert contents(database) == before
        assert db.execute("SELECT * FROM pakka_fence").fetchall() == [("refunds", "book", 7)]


def test_a_database_that_is_not_there_is_not_made(tmp_path, temporary):
    (tmp_path / "out").mkdir()
    assert audit(SqliteSink(str(tmp_path / "out" / "new" / "refunds.db"), "refunds"), "sqlite").failed == []
    assert names_in(tmp_path / "out", temporary) == []


def test_a_sink_of_a_pipeline_is_audited_beside_its_spool(database, tmp_path, temporary):
    spool = tmp_path / "out" / "new" / "spool"
    with ground_of(SqliteSink(str(database), "refunds"), str(spool)) as ground:
        assert Path(ground.binding.spool).parent == tmp_path / "out"
    assert names_in(database.parent, temporary) == ["refunds.db"]
    report = audit(SqliteSink(str(database), "refunds"), "sqlite", spool=str(spool))
    assert [f.name for f in report.findings][-3:] == [
        "file system of the spool",
        "fsync of the spool",
        "rename of the spool",
    ]
    assert names_in(database.parent, temporary) == ["refunds.db"]


def test_a_spool_that_cannot_be_made_is_an_error_and_no_verdict(database, tmp_path, temporary):
    (tmp_path / "file").write_text("")
    before = contents(database)
    with pytest.raises(RefusedError, match=r"the audit cannot spool to .*: Not a directory; nothing was made"):
        audit(SqliteSink(str(database), "refunds"), "sqlite", spool=str(tmp_path / "file" / "spool"))
    assert contents(database) == before


@pytest.mark.parametrize("place", ["out/refunds", "out/new/refunds"])
def test_an_output_is_left_as_it_was(tmp_path, temporary, place):
    (tmp_path / "out" / "refunds").mkdir(parents=True)
    assert audit(ParquetSink(str(tmp_path / place)), "parquet").failed == []
    assert names_in(tmp_path / "out", temporary) == ["refunds"]


def test_a_place_without_rights_is_an_error_and_no_verdict(tmp_path, temporary, monkeypatch):
    def denied(self, *_, **__):
        if self.name.startswith(".refunds.pakka-audit-"):
            raise PermissionError(13, "Permission denied", str(self))
        return mkdir(self)

    mkdir = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(SinkError, match=r"Permission denied; nothing was made") as caught:
        audit(ParquetSink(str(tmp_path / "refunds")), "parquet")
    assert "uid" in caught.value.hint
    assert names_in(temporary) == []


def test_no_right_to_make_the_scratch_table_is_an_error_and_no_verdict(database, temporary, monkeypatch):
    connect = _sqlite_scratch._connect
    monkeypatch.setattr(_sqlite_scratch, "_connect", lambda path, mode: connect(path, "ro"))
    before = contents(database)
    with pytest.raises(SinkError, match="attempt to write a readonly database; nothing was changed") as caught:
        audit(SqliteSink(str(database), "refunds"), "sqlite")
    assert caught.value.hint == "let the user that runs pakka write to the file and to its directory"
    assert contents(database) == before
    assert names_in(database.parent, temporary) == ["refunds.db"]


def test_a_database_that_somebody_holds_is_an_error_and_no_verdict(database, temporary, monkeypatch):
    monkeypatch.setattr(_sqlite_scratch, "_TIMEOUT_S", 0.05)
    before = contents(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="is locked by another process; nothing was changed"):
            audit(SqliteSink(str(database), "refunds"), "sqlite")
    assert contents(database) == before
    assert names_in(database.parent, temporary) == ["refunds.db"]


def test_a_file_that_is_no_database_is_an_error_and_is_left_as_it_was(tmp_path, temporary):
    (tmp_path / "plain.txt").write_text("no database at all, but long enough to be looked at as one" * 20)
    before = (tmp_path / "plain.txt").read_bytes()
    with pytest.raises(SinkError, match="file is not a database"):
        audit(SqliteSink(str(tmp_path / "plain.txt"), "refunds"), "sqlite")
    assert (tmp_path / "plain.txt").read_bytes() == before
    assert names_in(temporary) == []


def test_a_sink_that_cannot_be_audited_says_what_to_implement():
    class PlainSink(SpooledSink):
        def target(self):
            return "nowhere"

        def open_applier(self, binding):
            raise AssertionError("not to be opened")

    with pytest.raises(UsageError) as caught, ground_of(PlainSink()):
        pass
    assert str(caught.value) == (
        "PlainSink cannot be audited: it does not say how to make a scratch area\n\n"
        "hint: give it `scratch(token)` and `scratch_tokens()` of `pakka.contract.audit.Auditable`"
    )


def test_a_scratch_area_that_vanished_meanwhile_is_fine(tmp_path):
    (tmp_path / "refunds").mkdir()
    with ground_of(ParquetSink(str(tmp_path / "refunds"))) as ground:
        shutil.rmtree(ground.scratch.root)
    assert names_in(tmp_path) == ["refunds", "temporary"]
