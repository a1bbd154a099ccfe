"""The SQLite sink: an epoch's rows, its ledger row and the fence check in one transaction of the database file.

Rows go in through the standard library's `executemany`, about 350,000 rows of 8 columns a second. The Arrow-native
ADBC driver is two to three times as fast and was not taken: it brings a second copy of SQLite into the process, and two
copies do not see each other's locks. A user who reads the file with `sqlite3` in the driver's own process, as in a notebook,
would drop the locks under a running commit and could corrupt the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from pakka.contract.audit import Probe, Scratch
from pakka.durability import sqlite_probes
from pakka.errors import ConfigError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding
from pakka.model.word import check_words
from pakka.sinks._columns import Place
from pakka.sinks._spool import Encoder
from pakka.sinks._sqlite_column import Column, RowEncoder, check_columns, declared_type, fold, quoted
from pakka.sinks._staging import fsync_directory, make_directory, refusal
from pakka.sinks.spooled import Applier, SpooledSink, Token

LEDGER_EPOCHS = 1000
"""How many epochs the ledger keeps for people to look at. For the protocol the newest one is enough."""
_SLICE_ROWS = 10_000

_TABLES = (
    "CREATE TABLE IF NOT EXISTS pakka_fence (pipeline TEXT NOT NULL, sink TEXT NOT NULL, fence INTEGER NOT NULL, "
    "PRIMARY KEY (pipeline, sink)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pakka_ledger (pipeline TEXT NOT NULL, sink TEXT NOT NULL, epoch INTEGER NOT NULL, "
    "fence INTEGER NOT NULL, rows INTEGER NOT NULL, checksum TEXT NOT NULL, committed_at TEXT NOT NULL, entry TEXT, "
    "PRIMARY KEY (pipeline, sink, epoch)) WITHOUT ROWID",
)
OWN_TABLES = ("pakka_fence", "pakka_ledger")
"""The fence and the ledger, in the file of the rows."""
_turns: dict[str, threading.Lock] = {}


@dataclass(frozen=True)
class SqliteSink(SpooledSink):
    """Add rows to a table of a SQLite database, or update them by key."""

    path: str
    """The database file. Made absolute, so that every executor means the same one."""
    table: str
    create: bool = True
    """Make the file and the table if they are missing."""
    mode: Literal["append", "upsert"] = "append"
    key: tuple[str, ...] = ()
    """For `upsert`: the columns that name a row. A row whose key is there replaces it; of several in an epoch, one stays."""
    busy_timeout_s: float = 5.0
    """How long to wait for another process's lock before asking again later."""

    def __post_init__(self) -> None:
        check_words("sqlite", self)
        name = fold(self.table)
        if not name or "\0" in name or name.startswith("sqlite_") or name in OWN_TABLES:
            raise ConfigError(
                f"sqlite: {self.table!r} cannot be the name of a table for rows",
                hint="`sqlite_...`, `pakka_fence` and `pakka_ledger` are taken; choose another name",
            )
        if not self.path or "\0" in self.path or self.path == ":memory:":
            raise ConfigError(
                f"sqlite: {self.path!r} is not a file: rows must outlive the process",
                hint="give a path, such as `out/refunds.db`",
            )
        if (self.mode == "upsert") != bool(self.key):
            raise ConfigError(
                f"sqlite: mode `{self.mode}` with key {list(self.key)}: `upsert` needs a key, and `append` has none",
                hint="`{mode: upsert, key: [refund_id]}`",
            )
        object.__setattr__(self, "path", os.path.abspath(self.path))

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(
            Level.EXACTLY_ONCE,
            Way.SPOOLED,
            "rows, ledger row and fence check are one transaction of the database file, and durable when it ends",
        )

    def target(self) -> str:
        return f"{self.path}, table {self.table}"

    def open_encoder(self, binding: Binding, schema: pa.Schema) -> Encoder:
        place = Place(binding, self.path, self.table)
        missing = {fold(k) for k in self.key} - {fold(n) for n in schema.names}
        if missing:
            raise place.refuse(f"the rows lack key column `{min(missing)}`", hint="add it with `select`")
        columns = self._peek(place, RowEncoder(place, schema).schema)
        return RowEncoder(place, schema, [*self.key, *(c.name for c in columns if c.is_not_null)])

    def open_applier(self, binding: Binding) -> SqliteApplier:
        return SqliteApplier(self, binding)

    @classmethod
    def from_url(cls, url: str) -> SqliteSink:
        """`sqlite:///refunds.db`, for an audit; it has no use for the table."""
        path = url.removeprefix("sqlite:///")
        if path == url:
            raise ConfigError(f"`{url}`: a path begins after three slashes", hint="write `sqlite:///refunds.db`")
        return cls(path, "pakka_audit")

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._sqlite_scratch import SqliteScratch

        return SqliteScratch.of(self, token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._sqlite_scratch import SqliteScratch

        return SqliteScratch.tokens(self)

    def probes(self) -> Sequence[Probe]:
        def ask(pragma: str) -> object:
            with closing(_connect_durably(self, "ro")) as db:
                return db.execute(f"PRAGMA {pragma}").fetchone()[0]

        return sqlite_probes(Path(self.path), ask)

    def _peek(self, place: Place, schema: pa.Schema) -> list[Column]:
        """The table as an executor can see it, if it can; rows that do not fit are refused before they are staged."""
        if not os.path.isfile(self.path):
            return []
        with told(place), closing(_connect(self, "ro")) as db:
            if self.create and not _is_there(db, self.table):
                return []
            return _Table(self, place).check(db, schema)


class SqliteApplier(Applier):
    """Holds the driver's connection to the database file."""

    def __init__(self, sink: SqliteSink, binding: Binding) -> None:
        self.sink = sink
        self.place = Place(binding, sink.path, sink.table)
        self.table = _Table(sink, self.place)
        self.key = (binding.pipeline, binding.sink)
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def ledger(self) -> tuple[int, str]:
        if self._identity() is None:
            return 0, ""
        with told(self.place):
            db = self._open()
            if not all(_is_there(db, name) for name in OWN_TABLES):
                return 0, ""
            row = db.execute(
                "SELECT fence, (SELECT entry FROM pakka_ledger l WHERE l.pipeline = f.pipeline AND l.sink = f.sink "
                "ORDER BY epoch DESC LIMIT 1) FROM pakka_fence f WHERE pipeline = ? AND sink = ?",
                self.key,
            ).fetchone()
        return (row[0], row[1] or "") if row else (0, "")

    def raise_fence(self, fence: int) -> None:
        is_new = self._identity() is None
        if is_new:
            self._make_file()
        with told(self.place):
            # Readers see the last epoch while the next one is written. A file that cannot do it keeps its own way.
            self._open().execute("PRAGMA journal_mode = WAL")
        with self._transaction() as db:
            for statement in _TABLES:
                db.execute(statement)
            db.execute(
                "INSERT INTO pakka_fence VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET fence = excluded.fence WHERE excluded.fence > fence",
                (*self.key, fence),
            )
        if is_new:
            fsync_directory(Path(self.sink.path).parent)

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        with self._transaction() as db:
            if not self._enter(db, token):
                return False
            schema: pa.Schema | None = None
            for batch in batches:
                if schema != batch.schema:
                    schema = batch.schema
                    self.table.make(db, schema)
                    self.table.check(db, schema)
                for start in range(0, batch.num_rows, _SLICE_ROWS):
                    part = batch.slice(start, _SLICE_ROWS)
                    rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
                    db.executemany(self.table.insert(batch.schema), rows)
        return True

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _enter(self, db: sqlite3.Connection, token: Token) -> bool:
        """Fence and epoch are looked at under the write lock: nobody can change either before our COMMIT."""
        fence, last = db.execute(
            "SELECT (SELECT fence FROM pakka_fence WHERE pipeline = :p AND sink = :s), "
            "(SELECT max(epoch) FROM pakka_ledger WHERE pipeline = :p AND sink = :s)",
            {"p": self.key[0], "s": self.key[1]},
        ).fetchone()
        if fence != token.fence or (last is not None and token.epoch <= last):
            return False
        db.execute(
            "INSERT INTO pakka_ledger VALUES (?, ?, ?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%fZ', 'now'), ?)",
            (*self.key, token.epoch, token.fence, token.rows, token.checksum, token.entry),
        )
        # The entry names every slot and is asked of the newest epoch only, so the older ones do without.
        own = "WHERE pipeline = ? AND sink = ? AND epoch"
        db.execute(f"UPDATE pakka_ledger SET entry = NULL {own} = ?", (*self.key, last))
        db.execute(f"DELETE FROM pakka_ledger {own} <= ?", (*self.key, token.epoch - LEDGER_EPOCHS))
        return True

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # Sinks of one pipeline may share a file, and commit in parallel. They wait for each other here, however long it
        # takes, and not for a lock that gives up after a while.
        with _turns.setdefault(self.sink.path, threading.Lock()):
            with told(self.place):
                db = self._open()
                db.execute("BEGIN IMMEDIATE")
            try:
                with told(self.place):
                    yield db
            except BaseException:
                self._roll_back(db)
                raise
            self._commit(db)

    def _commit(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            # Whether it was carried out can be told by a new connection, and by nothing else.
            self.close()
            raise UnknownOutcomeError(
                f"{self.place.binding}: no answer to COMMIT in {self.sink.path}: {error}"
            ) from error

    def _roll_back(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()  # which rolls back as well

    def _identity(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self.sink.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(self.place.binding, "nothing was changed", self.sink.path, error) from error
        return stat.st_dev, stat.st_ino

    def _open(self) -> sqlite3.Connection:
        identity = self._identity()
        if identity != self._file:
            # The file was deleted or replaced: an open connection would go on writing to the one that nobody sees.
            self.close()
        if self._db is None:
            self._db, self._file = _connect_durably(self.sink, "rw"), identity
        return self._db

    def _make_file(self) -> None:
        path = Path(self.sink.path)
        if not self.sink.create:
            raise SinkError(
                f"{self.place.binding}: {path} is not there; nothing was written",
                hint="make the database first, or set `create: true`",
            )
        try:
            make_directory(path.parent)
        except OSError as error:
            raise refusal(self.place.binding, "nothing was written", path.parent, error) from error
        with told(self.place), closing(_connect(self.sink, "rwc")) as db:
            db.execute("PRAGMA user_version")  # the file is made by the first look at it


class _Table:
    """The table for rows: made if missing, checked, and written to."""

    def __init__(self, sink: SqliteSink, place: Place) -> None:
        self.name = sink.table
        self.key = sink.key
        self.is_made = sink.create
        self.place = place

    def make(self, db: sqlite3.Connection, schema: pa.Schema) -> None:
        if not self.is_made or _is_there(db, self.name):
            return
        keys = {fold(name) for name in self.key}
        parts = [
            f"{quoted(f.name)} {declared_type(f)}{' NOT NULL' if fold(f.name) in keys else ''}".rstrip() for f in schema
        ]
        if self.key:
            parts.append(f"PRIMARY KEY ({_list(self.key)})")
        db.execute(f"CREATE TABLE {quoted(self.name)} ({', '.join(parts)})")

    def check(self, db: sqlite3.Connection, schema: pa.Schema) -> list[Column]:
        """Refuse with `SchemaError` if the encoded rows do not fit."""
        if not _is_there(db, self.name):
            raise self.place.refuse(f"there is no {self.place}", hint="make it, or set `create: true`")
        found = db.execute('SELECT name, type, "notnull" OR pk FROM pragma_table_info(?)', (self.name,))
        columns = [Column(name, declared, bool(is_not_null)) for name, declared, is_not_null in found]
        check_columns(self.place, columns, schema)
        try:
            # Compiles the statement and runs nothing: finds a view, or a key without a unique index, before any row.
            db.execute(f"EXPLAIN {self.insert(schema)}", [None] * len(schema))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            raise self.place.refuse(
                f"{self.place} cannot take rows: {error}",
                hint=f"`upsert` needs a PRIMARY KEY or a UNIQUE index on exactly ({_list(self.key)})"
                if self.key
                else "write to a table that rows can be inserted into",
            ) from error
        return columns

    def insert(self, schema: pa.Schema) -> str:
        marks = ", ".join("?" * len(schema))
        statement = f"INSERT INTO {quoted(self.name)} ({_list(schema.names)}) VALUES ({marks})"
        if not self.key:
            return statement
        keys = {fold(name) for name in self.key}
        rest = [quoted(name) for name in schema.names if fold(name) not in keys]
        update = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in rest) if rest else "NOTHING"
        return f"{statement} ON CONFLICT ({_list(self.key)}) DO {update}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _is_there(db: sqlite3.Connection, name: str) -> bool:
    found = db.execute(
        "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(?)", (name,)
    )
    return found.fetchone() is not None


def _connect(sink: SqliteSink, mode: str) -> sqlite3.Connection:
    uri = f"{Path(sink.path).as_uri()}?mode={mode}"
    # No implicit transactions: ours begin and end where it is written. Calls come from several threads, never at once.
    return sqlite3.connect(uri, uri=True, timeout=sink.busy_timeout_s, isolation_level=None, check_same_thread=False)


def _connect_durably(sink: SqliteSink, mode: str) -> sqlite3.Connection:
    db = _connect(sink, mode)
    # FULL is enough with a write-ahead log; EXTRA adds the sync that a rollback journal needs.
    db.execute("PRAGMA synchronous = EXTRA")
    return db


_HINTS = {
    sqlite3.SQLITE_CANTOPEN: "see that the path is a file in a directory that can be written to",
    sqlite3.SQLITE_CONSTRAINT: "change the table, or what is in it, so that it takes the rows; if rows may come again, use "
    "`mode: upsert` with their key",
    sqlite3.SQLITE_CORRUPT: "restore the database",
    sqlite3.SQLITE_FULL: "make room on its disk, then run again",
    sqlite3.SQLITE_NOTADB: "choose the path of a SQLite database, or of none yet",
    sqlite3.SQLITE_READONLY: "let the user that runs pakka write to the file and to its directory",
}


@contextmanager
def told(place: Place) -> Iterator[None]:
    """Turn what SQLite says before COMMIT into what a user can act on. Nothing is changed, or it is rolled back."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise UnavailableError(
                f"{place.binding}: {place.path} is locked by another process; nothing was changed",
                hint="let the other process finish its transaction, then run again",
            ) from error
        hint = _HINTS.get(code, "see that this is the database that the pipeline has written to, then run again")
        raise SinkError(f"{place.binding}: {place}: {error}; nothing was changed", hint=hint) from error
