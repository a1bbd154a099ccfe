"""The embedded state store: one SQLite file, for drivers on one machine."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pakka.contract.audit import Probe
from pakka.durability import sqlite_probes
from pakka.errors import PakkaError, RefusedError, UnavailableError
from pakka.state._store import SqlStore

BUSY_S = 30.0
"""How long to wait for another process that holds the file."""

# Errors that may be gone at the next try, with what a person can do meanwhile.
_PASSING = {
    sqlite3.SQLITE_BUSY: "another process has held the file for too long; see which with `fuser FILE`",
    sqlite3.SQLITE_LOCKED: "another process has held the file for too long; see which with `fuser FILE`",
    sqlite3.SQLITE_PROTOCOL: "another process has held the file for too long; see which with `fuser FILE`",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_IOERR: "look at the disk and its file system, then run again",
    sqlite3.SQLITE_CANTOPEN: "see that the directory is there, that it may be written, and that the path is not a directory",
}
_LASTING = {
    sqlite3.SQLITE_READONLY: "give the user of the driver the right to write the file and its directory",
    sqlite3.SQLITE_NOTADB: "name another file with `state:`; this one is something else and was left as it is",
    sqlite3.SQLITE_CORRUPT: "restore the file from a copy; the sinks' ledgers tell the next run what is committed since",
}


class SqliteStore(SqlStore):
    """A state store in one file, made with its directories if it is not there.

    WAL lets `pakka status` read while a driver writes; `synchronous=FULL` makes each COMMIT wait for the disk. The file
    `-wal` beside it belongs to it: copy both, or none.
    """

    # A write takes the lock when it begins, so that it cannot find out half-way that another was faster.
    begin_write: ClassVar[str] = "BEGIN IMMEDIATE"
    begin_read: ClassVar[str] = "BEGIN"
    has_meta: ClassVar[str] = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'pakka_meta'"
    driver_error: ClassVar[type[Exception]] = sqlite3.Error

    def __init__(self, path: str | Path, *, must_exist: bool = False) -> None:
        self.path = Path(path).absolute()  # a driver may change its directory while it runs
        self._shown = str(path)
        self._db: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None
        if must_exist and _is_absent(self.path):
            raise self._absent()
        super().__init__(must_exist=must_exist)

    def describe(self) -> str:
        return f"sqlite:///{self._shown}"

    def is_shared(self) -> bool:
        return False

    def probes(self) -> Sequence[Probe]:
        return sqlite_probes(self.path, lambda pragma: self._read(lambda: self._execute(f"PRAGMA {pragma}")[0][0]))

    def _connect(self) -> None:
        # Only the first connection may make the file. Later a missing one has been taken away, and a new, empty one in its
        # place would be a store without memory.
        may_create = self._file is None and not self._must_exist
        made = self._make_directories() if may_create else []
        uri = f"{self.path.as_uri()}?mode={'rwc' if may_create else 'rw'}"
        self._db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._execute("PRAGMA synchronous = FULL")
        if not self._must_exist:
            self._use_wal()
        self._file = self.path.stat()
        for directory in made:
            _fsync_directory(directory)

    def _make_directories(self) -> list[Path]:
        """Make what is missing of the path. Returns the directories in which a new name will stand."""
        new = [p.parent for p in [self.path, *self.path.parents] if _is_absent(p)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(
                f"state store {self.describe()}: its directory cannot be made: {error.strerror}; nothing was changed",
                hint="name a place that can be written with `state:`",
            ) from error
        return new

    def _use_wal(self) -> None:
        mode = self._ask_for_wal()
        if mode != "wal":
            raise RefusedError(
                f"state store {self.describe()}: SQLite keeps to journal mode `{mode}`, as on a network file system; nothing was "
                "changed",
                hint="put the file on a local disk, or use `state: postgresql://...`",
            )

    def _ask_for_wal(self) -> str:
        """Two processes that make the file at once do not wait for each other here by themselves."""
        give_up = time.monotonic() + BUSY_S
        while True:
            try:
                return str(self._execute("PRAGMA journal_mode = WAL")[0][0])
            except sqlite3.OperationalError as error:
                if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    def _is_connected(self) -> bool:
        """A file that was removed or replaced still takes writes, which nobody will ever see again."""
        if self._db is None or self._file is None:
            return False
        try:
            return os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return False

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _execute(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        assert self._db is not None
        return self._db.execute(statement, params).fetchall()

    def _reason_of(self, error: Exception) -> str:
        return str(error)

    def _error_of(self, error: Exception) -> PakkaError:
        code, message = _code(error), f"state store {self.describe()}: {self._reason_of(error)}; nothing was written"
        if code in _PASSING:
            return UnavailableError(message, hint=_PASSING[code].replace("FILE", str(self.path)))
        return RefusedError(message, hint=_LASTING.get(code, "the message is SQLite's own"))


class SqliteSettings(SqliteStore):
    """Reads the settings of a file that is there, and changes nothing: it neither makes nor looks for tables."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, must_exist=True)

    def _connect_and_check(self) -> None:
        with self._or_drop():
            self._connect()


def _code(error: Exception) -> int:
    """SQLite's result code without its extension; -1 if the error is not SQLite's."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF


def _is_absent(path: Path) -> bool:
    """Surely not there. What may not be looked at may be there; SQLite then says that it cannot be opened."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _fsync_directory(path: Path) -> None:
    """Make the names in a directory durable; SQLite does it for `-wal`, and leaves the rest to us."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
