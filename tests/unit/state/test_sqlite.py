"""What is SQLite's own: durability settings, and files that cannot be used."""

import os
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pakka.errors import FencedError, RefusedError, UnavailableError, UnknownOutcomeError
from pakka.state import sqlite
from pakka.state.sqlite import SqliteStore
from tests.unit.state.children import child, hear
from tests.unit.state.places import OWNER, PIPELINE, decision, fill


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def test_each_commit_waits_for_the_disk(path):
    store = SqliteStore(path)
    assert store._execute("PRAGMA journal_mode") == [("wal",)]
    assert store._execute("PRAGMA synchronous") == [(2,)]
    store.close()


def test_new_names_are_made_durable_in_every_directory(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(sqlite, "_fsync_directory", synced.append)
    SqliteStore(tmp_path / "a" / "b" / "store.db").close()
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    synced.clear()
    SqliteStore(tmp_path / "a" / "b" / "store.db").close()
    assert synced == []


def test_a_copy_of_both_files_is_a_store(path, tmp_path):
    store = SqliteStore(path)
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 3)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", tmp_path / f"copy.db{suffix}")
    copy = SqliteStore(tmp_path / "copy.db")
    assert copy.read(PIPELINE) == store.read(PIPELINE)
    copy.close()
    store.close()


def test_a_file_held_by_another_is_unavailable(path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    store = SqliteStore(path)
    store.take_fence(PIPELINE, OWNER)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="database is locked; nothing was written") as caught:
        store.decide(decision(0))
    assert str(path) in caught.value.hint
    assert store.read(PIPELINE).open == ()
    holder.execute("ROLLBACK")
    holder.close()
    store.decide(decision(0))
    assert store.read(PIPELINE).open == (decision(0),)
    store.close()


def test_a_file_that_is_no_database_is_refused_and_left(path):
    path.write_text("merchant,amount\n" * 100)
    for must_exist in (False, True):
        with pytest.raises(RefusedError, match="file is not a database") as caught:
            SqliteStore(path, must_exist=must_exist)
        assert "state:" in caught.value.hint
    assert path.read_text() == "merchant,amount\n" * 100


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(UnavailableError, match="unable to open database file"):
        SqliteStore(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match="its directory cannot be made") as caught:
        SqliteStore(tmp_path / "file" / "store.db")
    assert str(tmp_path / "file") in caught.value.message


def write_without_rights(line, path) -> None:
    """As a user who may read the file and not write it. Root may write everything, so it steps down first."""
    if os.geteuid() == 0:
        os.setuid(65534)
    answers = []
    for open_and_do in (
        lambda: SqliteStore(path, must_exist=True).reset(PIPELINE, 0),
        lambda: SqliteStore(path).take_fence(PIPELINE, OWNER),
        lambda: SqliteStore(path.with_name("new.db")),
        lambda: SqliteStore(path.parent / "new" / "store.db"),
    ):
        try:
            open_and_do()
            answers.append("done")
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
    line.send(answers)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Pytest's own temporary directories are closed to other users."""
    root = Path(tempfile.mkdtemp(prefix="pakka-state-"))
    root.chmod(0o755)
    yield root
    root.chmod(0o755)
    shutil.rmtree(root)


def test_what_may_not_be_written_is_refused_in_clear_words(open_directory):
    store = SqliteStore(open_directory / "store.db")
    store.take_fence(PIPELINE, OWNER)
    for file in open_directory.iterdir():
        file.chmod(0o444)
    open_directory.chmod(0o555)
    with child(write_without_rights, open_directory / "store.db") as (_, line):
        answers = hear(line)
    assert [a.partition(":")[0] for a in answers] == [
        "RefusedError",
        "RefusedError",
        "UnavailableError",
        "RefusedError",
    ]
    assert "attempt to write a readonly database" in answers[0]
    assert "right to write" in answers[0]
    assert "unable to open database file" in answers[2]
    assert "Permission denied" in answers[3]
    assert store.read(PIPELINE).fence == 1
    store.close()


def test_what_may_not_be_looked_at_is_not_taken_for_missing(open_directory):
    SqliteStore(open_directory / "in" / "store.db").close()
    open_directory.chmod(0o600)
    with child(write_without_rights, open_directory / "in" / "store.db") as (_, line):
        answers = hear(line)
    assert [a.partition(":")[0] for a in answers] == ["UnavailableError"] + ["RefusedError"] * 3
    assert "unable to open database file" in answers[0]
    assert "its directory cannot be made: Permission denied" in answers[1]


def test_a_file_taken_away_under_a_driver_takes_no_more_decisions(path):
    store = SqliteStore(path)
    store.take_fence(PIPELINE, OWNER)
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(UnavailableError, match="unable to open"):
        store.decide(decision(0))
    assert not path.exists()
    SqliteStore(path).close()
    with pytest.raises(FencedError, match="knows nothing of it"):
        store.decide(decision(0))
    store.close()


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "done"])
def test_an_error_of_commit_itself_is_unknown_and_deciding_again_settles_it(path, is_done):
    class Failing(SqliteStore):
        is_armed = False

        def _execute(self, statement, params=()):
            if statement == "COMMIT" and self.is_armed:
                self.is_armed = False
                if is_done:
                    super()._execute(statement)
                raise sqlite3.OperationalError("disk I/O error")
            return super()._execute(statement, params)

    store = Failing(path)
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 1)
    store.is_armed = True
    with pytest.raises(UnknownOutcomeError, match=r"COMMIT of the decision of epoch 2 .* disk I/O error") as caught:
        store.decide(decision(2))
    assert "nothing was written" not in caught.value.message
    assert store.read(PIPELINE).open == (decision(2 if is_done else 1),)
    store.decide(decision(2))
    state = store.read(PIPELINE)
    assert (state.open, state.committed) == ((decision(2),), 1)
    store.close()


def decide_until_the_disk_is_full(line, path) -> None:
    """The file may grow no further than a limit; what a full disk answers is then answered by the system."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    store.take_fence(PIPELINE, OWNER)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    number, answer = 0, ""
    while not answer:
        try:
            store.decide(decision(number, slots=20))
            number += 1
        except (UnavailableError, UnknownOutcomeError) as error:
            answer = type(error).__name__
    line.send((answer, number))
    line.recv()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.decide(decision(number, slots=20))
    line.send(store.read(PIPELINE))


@pytest.mark.faults
def test_a_disk_without_room_loses_nothing_and_goes_on_when_there_is_room(path):
    with child(decide_until_the_disk_is_full, path) as (_, line):
        answer, number = hear(line)
        assert answer in ("UnknownOutcomeError", "UnavailableError")
        reader = SqliteStore(path, must_exist=True)
        assert reader.read(PIPELINE).open[-1].epoch.number in (number - 1, number)
        line.send("there is room")
        state = hear(line)
    assert state.open == (decision(number, slots=20),)
    assert state.committed == number - 1
    assert reader.read(PIPELINE) == state
    reader.close()
