"""The scratch area for audits of a SQLite database: a table of its own in the live file.

Beside the table stands a note of how the file was before, in a table too, so that whoever removes the scratch area, be it a
later audit, puts everything back. A database that is not there yet is audited in a file of its own, where it would be.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from pakka.contract.audit import AUDIT_ID, audit_pipeline
from pakka.mount import existing
from pakka.sinks._columns import Place
from pakka.sinks._scratch import MARK, SCRATCH, tokens_in
from pakka.sinks._sqlite_column import quoted
from pakka.sinks._staging import refusal
from pakka.sinks.sqlite import OWN_TABLES, SqliteSink, told

_PREFIX = "pakka_audit_"
_NOTE = "_before"
_SIDES = ("", "-wal", "-shm", "-journal")
_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class SqliteScratch:
    """A table of a SQLite file, and a connection of its own for every look at it."""

    audited: SqliteSink
    token: str
    sink: SqliteSink

    @classmethod
    def of(cls, sink: SqliteSink, token: str) -> SqliteScratch:
        path = sink.path if os.path.exists(sink.path) else str(_file_beside(sink, token))
        key = (AUDIT_ID,) if sink.key else ()
        return cls(sink, token, replace(sink, path=path, table=f"{_PREFIX}{token}", create=True, key=key))

    @staticmethod
    def tokens(sink: SqliteSink) -> Sequence[str]:
        found = set(tokens_in(existing(Path(sink.path).parent), _prefix(sink)))
        if os.path.isfile(sink.path):
            with told(_place(sink)), closing(_connect(sink.path, "ro")) as db:
                names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                found |= {name.removeprefix(_PREFIX).removesuffix(_NOTE) for (name,) in names if _is_ours(name)}
        return sorted(token for token in found if not token.endswith(_SIDES[1:]))

    def make(self) -> None:
        with told(self._place), closing(_connect(self.sink.path, "rwc")) as db:
            (mode,) = db.execute("PRAGMA journal_mode").fetchone()
            had = [_is_there(db, name) for name in OWN_TABLES]
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"CREATE TABLE {self._note} (journal_mode TEXT, {', '.join(OWN_TABLES)})")
            db.execute(f"INSERT INTO {self._note} VALUES (?, ?, ?)", (mode, *had))
            db.execute("COMMIT")

    def read(self) -> list[str]:
        with closing(_connect(self.sink.path, "ro")) as db:
            if not _is_there(db, self.sink.table):
                return []
            return [value for (value,) in db.execute(f"SELECT {AUDIT_ID} FROM {quoted(self.sink.table)}")]

    def stored(self) -> frozenset[str]:
        """Every table of the file with the number of its rows: a staging table in it would be found."""
        with closing(_connect(self.sink.path, "ro")) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            mine = [name for name in names if name.startswith(f"{_PREFIX}{self.token}")]
            return frozenset(
                f"{name}, {db.execute(f'SELECT count(*) FROM {quoted(name)}').fetchone()[0]} rows" for name in mine
            )

    def remove(self) -> None:
        if os.path.exists(self.audited.path):
            with told(self._place), closing(_connect(self.audited.path, "rw")) as db:
                self._put_back(db)
        self._remove_file()

    @property
    def _note(self) -> str:
        return quoted(f"{self.sink.table}{_NOTE}")

    @property
    def _place(self) -> Place:
        return _place(self.sink)

    def _put_back(self, db: sqlite3.Connection) -> None:
        if not _is_there(db, f"{self.sink.table}{_NOTE}"):
            return
        mode, *had = db.execute(f"SELECT * FROM {self._note}").fetchone()
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"DROP TABLE IF EXISTS {quoted(self.sink.table)}")
        for name, was_there in zip(OWN_TABLES, had, strict=True):
            if _is_there(db, name):
                db.execute(f"DELETE FROM {name} WHERE pipeline = ?", (audit_pipeline(self.token),))
                is_empty = db.execute(f"SELECT 1 FROM {name}").fetchone() is None
                if is_empty and not was_there:
                    db.execute(f"DROP TABLE {name}")
        db.execute(f"DROP TABLE {self._note}")
        db.execute("COMMIT")
        self._restore_journal(db, mode)

    def _restore_journal(self, db: sqlite3.Connection, mode: str) -> None:
        (now,) = db.execute("PRAGMA journal_mode").fetchone()
        if now == mode:
            return
        try:
            db.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            # Another program has the file open by now, and with it the write-ahead log: it is that program's to choose.

    def _remove_file(self) -> None:
        for side in _SIDES:
            path = f"{_file_beside(self.audited, self.token)}{side}"
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise refusal(SCRATCH, "it is left behind", path, error) from error


def _prefix(sink: SqliteSink) -> str:
    return f".{Path(sink.path).name}{MARK}"


def _file_beside(sink: SqliteSink, token: str) -> Path:
    return existing(Path(sink.path).parent) / f"{_prefix(sink)}{token}"


def _place(sink: SqliteSink) -> Place:
    return Place(SCRATCH, sink.path, sink.table)


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_NOTE)


def _is_there(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _connect(path: str, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{Path(path).as_uri()}?mode={mode}", uri=True, timeout=_TIMEOUT_S, isolation_level=None)
