"""Settings that weaken a guarantee are found, with what mends them; others are left in peace."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pakka import durability, mount
from pakka.contract.audit import Probing, Severity
from pakka.sinks.files import JsonSink, ParquetSink
from pakka.sinks.sqlite import SqliteSink
from pakka.state import open_store


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Say what the root file system is."""

    def say(line: str) -> None:
        file = tmp_path / "mounts"
        file.write_text(f"/dev/root / {line} 0 0\n")
        monkeypatch.setattr(mount, "MOUNTS", file)

    say("ext4 rw")
    return say


def found(probing: Probing) -> dict[str, tuple[str, Severity]]:
    findings = [probe.look() for probe in probing.probes()]
    assert all(bool(f.fix) == (f.severity is not Severity.FINE) and f.why for f in findings)
    return {f.name: (f.value, f.severity) for f in findings}


FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS


@pytest.mark.parametrize(
    ("line", "setting", "expected"),
    [
        ("ext4 rw", "file system", ("ext4", FINE)),
        ("tmpfs rw", "file system", ("tmpfs", WARNS)),
        ("ext4 rw,relatime", "fsync", ("honoured", FINE)),
        ("ext4 rw,barrier=0", "fsync", ("barrier=0", BREAKS)),
        ("xfs rw,nobarrier", "fsync", ("nobarrier", BREAKS)),
        ("overlay rw,lowerdir=a,volatile", "fsync", ("volatile", BREAKS)),
        ("overlay rw,lowerdir=a", "fsync", ("honoured", FINE)),
        ("nfs4 rw", "rename", ("nfs4", FINE)),
        ("fuse.sshfs rw", "rename", ("fuse.sshfs", WARNS)),
        ("fuse.s3fs rw", "rename", ("fuse.s3fs", BREAKS)),
    ],
)
def test_what_a_mount_does_to_files(mounted, tmp_path, line, setting, expected):
    mounted(line)
    assert found(ParquetSink(str(tmp_path / "out")))[setting] == expected


@pytest.mark.parametrize(
    ("kind", "severity"), [("ext4", FINE), ("nfs4", BREAKS), ("cifs", BREAKS), ("9p", WARNS), ("fuse.sshfs", WARNS)]
)
def test_locks_of_a_database_on_a_network_are_not_trusted(mounted, tmp_path, kind, severity):
    mounted(f"{kind} rw")
    assert found(SqliteSink(str(tmp_path / "a.db"), "t"))["locks"] == (kind, severity)


def test_a_library_that_eats_fsync_is_found(mounted, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libeatmydata.so")
    assert found(JsonSink(str(tmp_path / "out")))["fsync"] == ("libeatmydata", BREAKS)


def test_without_a_mount_table_nothing_is_claimed(tmp_path, monkeypatch):
    monkeypatch.setattr(mount, "MOUNTS", tmp_path / "none")
    assert found(ParquetSink(str(tmp_path / "out")))["file system"] == ("unknown", FINE)


def test_a_mount_on_top_of_another_is_the_one_that_counts(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb /data xfs rw 0 0\nc /data tmpfs rw 0 0\n")
    assert mount.mount_of("/data/out", mounts).kind == "tmpfs"
    assert mount.mount_of("/other", mounts).kind == "ext4"


def test_an_output_that_is_a_mount_point_is_found(mounted, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    stat = Path.stat

    class Elsewhere:
        st_dev = -1
        st_mode = stat(out).st_mode

    monkeypatch.setattr(Path, "stat", lambda self, **kw: Elsewhere if self == out else stat(self, **kw))
    value, severity = found(ParquetSink(str(out)))["one file system"]
    assert (value, severity) == (f"{out} is a mount point", BREAKS)


@pytest.mark.parametrize(("partitions", "severity"), [((), FINE), (("day",), WARNS)])
def test_a_file_system_that_takes_upper_for_lower_case_is_found(mounted, tmp_path, monkeypatch, partitions, severity):
    (tmp_path / "out").mkdir()
    (tmp_path / "OUT").symlink_to(tmp_path / "out")
    assert found(ParquetSink(str(tmp_path / "out"), partitions))["upper and lower case"] == ("the same", severity)


def test_case_is_told_apart_here(mounted, tmp_path):
    (tmp_path / "out").mkdir()
    sink = ParquetSink(str(tmp_path / "out"), ("day",))
    assert found(sink)["upper and lower case"] == ("told apart", FINE)
    assert [p.name for p in sink.probes() if not p.is_cheap] == ["upper and lower case"]


@pytest.mark.parametrize(("mode", "severity"), [("wal", FINE), ("delete", WARNS), ("truncate", WARNS)])
def test_the_journal_of_a_database(mounted, tmp_path, mode, severity):
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute("CREATE TABLE t (id INTEGER)")
        db.execute(f"PRAGMA journal_mode = {mode}")
    seen, how = found(SqliteSink(str(tmp_path / "a.db"), "t"))["journal_mode"]
    # Only `wal` is written into the file; to another connection every other mode is SQLite's own.
    assert (seen, how) == ("wal" if mode == "wal" else "delete", severity)


@pytest.mark.parametrize(
    ("journal", "level", "expected"),
    [
        ("memory", 2, (BREAKS, FINE)),
        ("off", 3, (BREAKS, FINE)),
        ("wal", 1, (FINE, BREAKS)),
        ("wal", 0, (FINE, BREAKS)),
    ],
)
def test_a_connection_that_does_not_wait_for_the_disk_is_found(journal, level, expected):
    def ask(pragma: str) -> object:
        return {"journal_mode": journal, "synchronous": level}[pragma]

    assert (durability.journal_mode(ask).severity, durability.synchronous(ask).severity) == expected


def test_a_build_that_never_syncs_is_found(monkeypatch):
    monkeypatch.setattr(durability, "_is_built_without_sync", lambda: True)
    assert durability.synchronous(lambda _: 3).severity is BREAKS


def test_a_state_store_tells_of_the_connection_that_it_decides_over(mounted, tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path}/state.db")) as store:
        assert found(store) == {
            "file system": ("ext4", FINE),
            "fsync": ("honoured", FINE),
            "locks": ("ext4", FINE),
            "journal_mode": ("wal", FINE),
            "synchronous": ("full", FINE),
        }
        store._execute("PRAGMA synchronous = OFF")
        assert found(store)["synchronous"] == ("off", BREAKS)
