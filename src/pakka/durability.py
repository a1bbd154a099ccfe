"""Settings that decide whether what is committed outlives the machine: of files, and of databases of sinks and state stores alike.

fsync cannot be tested without cutting the power, but much of what makes it a lie is written down somewhere: in the mount
options, in the environment, in how SQLite was built, in a server's own settings. What is read of them is judged here, so that
a sink and a state store of one kind say the same of it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pakka.contract.audit import Finding, Probe, Severity
from pakka.mount import MEMORY, NETWORK, OBJECTS, Mount, existing, mount_of

Ask = Callable[[str], object]
"""Runs a PRAGMA on a connection and gives back its first value."""

_NO_BARRIER = frozenset({"barrier=0", "nobarrier"})
_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}
_SWITCHED_OFF = {
    "fsync": "the server does not wait for its disk: a power cut loses what was committed, and can break the database",
    "full_page_writes": "a power cut in the middle of a write leaves a page that is half old and half new",
}


def place_probes(path: Path) -> tuple[Probe, ...]:
    """Is what is written here still there when the machine comes back?"""
    return (
        Probe("file system", lambda: _file_system(mount_of(path))),
        Probe("fsync", lambda: _fsync(mount_of(path))),
    )


@dataclass(frozen=True)
class Spool:
    """The spool as something whose settings can be read: spooled sinks are no more durable than it is."""

    path: str

    def probes(self) -> tuple[Probe, ...]:
        place = Path(self.path)
        return (*place_probes(place), rename_probe(place))


def rename_probe(path: Path) -> Probe:
    """Is a rename one step here?"""
    return Probe("rename", lambda: _rename(mount_of(path)))


def one_file_system_probe(path: Path) -> Probe:
    """Are a directory and the one that it stands in on one file system, so that a rename between them is one step?"""
    return Probe("one file system", lambda: _one_file_system(path))


def case_probe(path: Path, has_partitions: bool) -> Probe:
    """Are `day=A` and `day=a` two directories here?"""
    return Probe("upper and lower case", lambda: _case(path, has_partitions), is_cheap=False)


def sqlite_probes(path: Path, ask: Ask) -> tuple[Probe, ...]:
    """What can weaken a SQLite database. `ask` asks a connection with the settings that rows are committed with."""

    def asked(name: str, look: Callable[[Ask], Finding]) -> Probe:
        def run() -> Finding:
            if not path.is_file():
                return Finding(name, Severity.FINE, "no file yet", "pakka makes the file with settings that fit")
            return look(ask)

        return Probe(name, run)

    return (
        *place_probes(path),
        Probe("locks", lambda: _locks(mount_of(path))),
        asked("journal_mode", journal_mode),
        asked("synchronous", synchronous),
    )


def journal_mode(ask: Ask) -> Finding:
    """The journal of a SQLite database."""
    mode = str(ask("journal_mode"))
    if mode == "wal":
        return Finding("journal_mode", Severity.FINE, mode, "readers see the last epoch while the next one is written")
    if mode in ("off", "memory"):
        why = "there is no journal on the disk, so a crash in the middle of a commit leaves half an epoch or a broken file"
        return Finding("journal_mode", Severity.BREAKS, mode, why, "PRAGMA journal_mode = WAL")
    why = "the guarantee holds, but a reader and a commit wait for each other; a pipeline asks for `wal` when it starts"
    return Finding("journal_mode", Severity.WARNS, mode, why, "PRAGMA journal_mode = WAL")


def synchronous(ask: Ask) -> Finding:
    """Whether COMMIT waits for the disk, on the connection that commits."""
    level = _SYNCHRONOUS.get(int(str(ask("synchronous"))), "unknown")
    if _is_built_without_sync():
        why = "this SQLite was built with NO_SYNC and never waits for the disk: a power cut loses committed epochs"
        return Finding("synchronous", Severity.BREAKS, "NO_SYNC", why, "use a SQLite that was built without NO_SYNC")
    if level in ("full", "extra"):
        return Finding("synchronous", Severity.FINE, level, "COMMIT waits for the disk")
    why = "COMMIT does not wait for the disk: a power cut loses committed epochs"
    return Finding("synchronous", Severity.BREAKS, level, why, "PRAGMA synchronous = FULL")


def postgres_switch(name: str, value: str) -> Finding:
    """`fsync` or `full_page_writes` of a PostgreSQL server."""
    if value == "on":
        return Finding(name, Severity.FINE, value, "what is committed outlives a power cut")
    fix = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"
    return Finding(name, Severity.BREAKS, value, _SWITCHED_OFF[name], fix)


def postgres_synchronous_commit(ours: str, theirs: str) -> Finding:
    """Whether a PostgreSQL server answers COMMIT when it is on the disk: in our transactions, and outside of them."""
    name, fix = "synchronous_commit", "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"
    if ours == "off":
        why = "COMMIT is answered before it is on the disk: a power cut loses what was committed"
        return Finding(name, Severity.BREAKS, ours, why, fix)
    if theirs == "off":
        why = "COMMIT is answered before it is on the disk; pakka asks for more in its own transactions, and others may not"
        return Finding(name, Severity.WARNS, theirs, why, fix)
    return Finding(name, Severity.FINE, ours, "COMMIT is answered when it is on the disk")


def postgres_unlogged(names: Sequence[str], lost: str) -> Finding:
    """Tables of a PostgreSQL database that a crash of the server empties, and what is lost with them."""
    name = "unlogged tables"
    if not names:
        return Finding(name, Severity.FINE, "none", "tables outlive a crash of the server")
    why = f"the server empties unlogged tables after a crash, and {lost} in them are gone"
    fix = "; ".join(f"ALTER TABLE {table} SET LOGGED" for table in names)
    return Finding(name, Severity.BREAKS, ", ".join(names), why, fix)


def _is_built_without_sync() -> bool:
    with closing(sqlite3.connect(":memory:")) as db:
        return ("NO_SYNC",) in db.execute("PRAGMA compile_options").fetchall()


def _file_system(mount: Mount) -> Finding:
    value = mount.kind or "unknown"
    if mount.kind in MEMORY:
        why = "rows outlive the process, and are gone when the machine stops"
        return Finding("file system", Severity.WARNS, value, why, "choose a path on a disk")
    return Finding("file system", Severity.FINE, value, "rows outlive the process and the machine's next start")


def _fsync(mount: Mount) -> Finding:
    if "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        why = "libeatmydata answers every fsync without doing it: a power cut loses committed epochs"
        return Finding("fsync", Severity.BREAKS, "libeatmydata", why, "unset LD_PRELOAD")
    if mount.kind == "overlay" and "volatile" in mount.options:
        why = "an overlay mounted with `volatile` ignores fsync: a power cut loses committed epochs"
        fix = f"mount {mount.point} without `volatile`, or choose a path on a volume"
        return Finding("fsync", Severity.BREAKS, "volatile", why, fix)
    barrier = _NO_BARRIER & mount.options
    if barrier:
        why = "the disk may keep in its cache what fsync has promised: a power cut loses committed epochs"
        return Finding("fsync", Severity.BREAKS, min(barrier), why, f"mount -o remount,barrier=1 {mount.point}")
    return Finding("fsync", Severity.FINE, "honoured", "no mount option and no library keeps fsync from the disk")


def _locks(mount: Mount) -> Finding:
    value = mount.kind or "unknown"
    if mount.kind in NETWORK - {"9p"}:
        why = "locks of a network file system do not keep two writers apart, and SQLite says itself that the file may break"
        return Finding("locks", Severity.BREAKS, value, why, "put the database on a local disk")
    if mount.is_network:
        why = "it is not known whether locks on this file system keep two writers apart"
        return Finding("locks", Severity.WARNS, value, why, "put the database on a local disk")
    return Finding("locks", Severity.FINE, value, "locks of a local file system keep two writers apart")


def _rename(mount: Mount) -> Finding:
    value = mount.kind or "unknown"
    if mount.kind in OBJECTS:
        why = "a rename copies file by file here, so a reader can see a part of an epoch and a crash leaves one"
        return Finding("rename", Severity.BREAKS, value, why, "choose a path on a file system, not on an object store")
    if mount.kind.startswith("fuse."):
        why = "it is not known whether a rename is one step on this file system"
        return Finding("rename", Severity.WARNS, value, why, "choose a path on a local disk or on NFS")
    return Finding("rename", Severity.FINE, value, "a rename is one step on this file system")


def _one_file_system(path: Path) -> Finding:
    here, above = existing(path), existing(path.parent)
    if here.stat().st_dev != above.stat().st_dev:
        why = "the staging area beside the output is on another file system, so no epoch can be published by one rename"
        fix = f"choose a directory inside it: `path: {path / 'data'}`"
        return Finding("one file system", Severity.BREAKS, f"{path} is a mount point", why, fix)
    why = "an epoch goes from the staging area to the output by one rename"
    return Finding("one file system", Severity.FINE, "yes", why)


def _case(path: Path, has_partitions: bool) -> Finding:
    name = "upper and lower case"
    here = existing(path)
    other = here.with_name(here.name.swapcase())
    if other.name == here.name or not other.exists() or not here.samefile(other):
        return Finding(
            name, Severity.FINE, "told apart", "partitions whose values differ in case have directories of their own"
        )
    if not has_partitions:
        return Finding(name, Severity.FINE, "the same", "there are no partitions whose directories could fall together")
    why = "partitions whose values differ only in case share a directory, and readers take them for one value"
    return Finding(
        name, Severity.WARNS, "the same", why, "choose a case-sensitive file system, or write the column in lower case"
    )
