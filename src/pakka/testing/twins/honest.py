"""An honest sink in one SQLite file, small enough to be broken in one place at a time.

Three tables: `slots` is what is staged, `visible` is what readers read, `ledger` and `fence` are its memory. Everything
that belongs together changes in one transaction. Rows are kept as Arrow writes them, so every type comes back. It is not
durable against a loss of power, and not fast: it is there so that its twins can lie.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from pakka.contract.sink import Committer, Entry, Ledger, Writer
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums
from pakka.points import reach

_TABLES = """
CREATE TABLE IF NOT EXISTS slots (slot TEXT PRIMARY KEY, epoch INTEGER, state TEXT, rows BLOB);
CREATE TABLE IF NOT EXISTS visible (rows BLOB);
CREATE TABLE IF NOT EXISTS fence (fence INTEGER);
CREATE TABLE IF NOT EXISTS ledger (number INTEGER, slot INTEGER, epoch TEXT, rows INTEGER, checksum TEXT);
"""


def connect(path: str) -> sqlite3.Connection:
    """A connection whose transactions begin and end where it is written."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.execute("PRAGMA synchronous = OFF")
    return db


def fence_of(db: sqlite3.Connection) -> int:
    """The fence that stands; 0 before there is one."""
    return int(db.execute("SELECT coalesce(max(fence), 0) FROM fence").fetchone()[0])


def packed(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Rows as bytes, with their schema."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(out.getvalue().to_pybytes())


@dataclass(frozen=True)
class HonestSink:
    """Rows in a SQLite file, by a writer and a committer that can be exchanged for lying ones."""

    path: str
    writer: Callable[[HonestSink, Slot, pa.Schema], Writer]
    committer: Callable[[HonestSink, Binding, int], Committer]
    password: str = field(default="", repr=False)
    """Opens nothing. It is there to be kept."""

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.PREPARED, "rows, ledger and fence change in one transaction")

    def target(self) -> str:
        return f"twin:{self.path}"

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        return self.writer(self, slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        return self.committer(self, binding, fence)


class HonestWriter:
    """Enters its attempt when it begins, and stages its rows when they are prepared."""

    def __init__(self, sink: HonestSink, slot: Slot, schema: pa.Schema) -> None:
        self.sink = sink
        self.slot = slot
        self.schema = pa.schema([f.with_nullable(True) for f in schema])
        self.batches: list[pa.RecordBatch] = []
        self.begin()

    def begin(self) -> None:
        try:
            with self.fenced() as db:
                db.execute("INSERT INTO slots VALUES (?, ?, 'begun', NULL)", [str(self.slot), self.slot.epoch])
        except sqlite3.IntegrityError as error:
            raise SinkError(f"twin: `{self.slot}` was used before; nothing was changed") from error

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch.cast(self.schema))

    def prepare(self, checksum: str) -> Prepared:
        rows = sum(batch.num_rows for batch in self.batches)
        self.stage(packed(self.batches, self.schema))
        return Prepared(self.slot, rows, checksum, {"form": 1})

    def stage(self, rows: bytes) -> None:
        with self.fenced() as db:
            db.execute("UPDATE slots SET state = 'prepared', rows = ? WHERE slot = ?", [rows, str(self.slot)])

    def discard(self) -> None:
        with transaction(self.sink.path) as db:
            db.execute("DELETE FROM slots WHERE slot = ? AND state <> 'visible'", [str(self.slot)])

    @contextmanager
    def fenced(self) -> Iterator[sqlite3.Connection]:
        with transaction(self.sink.path) as db:
            self.check_fence(db)
            yield db

    def check_fence(self, db: sqlite3.Connection) -> None:
        if fence_of(db) > self.slot.fence:
            raise FencedError.of("twin", self.slot.pipeline, self.slot.fence, fence_of(db))


@contextmanager
def transaction(path: str) -> Iterator[sqlite3.Connection]:
    """One transaction on a connection of its own; rolled back if anything is raised inside."""
    with closing(connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")


class Settler:
    """All that a committer does beside committing."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        self.sink = sink
        self.binding = binding
        self.fence = fence

    def raise_fence(self) -> bool:
        with closing(connect(self.sink.path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_TABLES)
        with self.fenced() as db:
            self.keep_fence(db)
        return True

    def keep_fence(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM fence")
        db.execute("INSERT INTO fence VALUES (?)", [self.fence])

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self.fenced() as db:
            for record in prepared:
                if self.state(db, record) == "visible":
                    raise SinkError(f"{self.binding}: `{record.slot}` is committed and cannot be aborted")
                self.drop(db, record)

    def drop(self, db: sqlite3.Connection, record: Prepared) -> None:
        db.execute("DELETE FROM slots WHERE slot = ?", [str(record.slot)])

    def pending(self) -> Sequence[Prepared]:
        with closing(connect(self.sink.path)) as db:
            if not self.is_made(db):
                return []
            texts = [text for (text,) in db.execute(f"SELECT slot FROM slots WHERE state IN {self.staged}")]
        slots = [Slot.parse(text) for text in texts]
        return [Prepared(slot, 0, add_checksums(())) for slot in slots if slot is not None]

    staged = "('begun', 'prepared')"

    def ledger(self) -> Ledger:
        with closing(connect(self.sink.path)) as db:
            if not self.is_made(db):
                return Ledger(0, None)
            sql = "SELECT slot, epoch, rows, checksum FROM ledger WHERE number = (SELECT max(number) FROM ledger)"
            found = db.execute(sql).fetchall()
            fence = fence_of(db)
        if not found:
            return Ledger(fence, None)
        epoch = Epoch.from_json(json.loads(found[0][1]))
        slots = {slot: (rows, checksum) for slot, _, rows, checksum in found}
        total = sum(rows for rows, _ in slots.values()), add_checksums(c for _, c in slots.values())
        return Ledger(fence, Entry(epoch, *total, None if -1 in slots else slots))

    def close(self) -> None:
        """Every call opens what it needs."""

    def is_made(self, db: sqlite3.Connection) -> bool:
        return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger'").fetchone() is not None

    @contextmanager
    def fenced(self) -> Iterator[sqlite3.Connection]:
        with transaction(self.sink.path) as db:
            self.check_fence(db)
            yield db

    def check_fence(self, db: sqlite3.Connection) -> None:
        if fence_of(db) > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, fence_of(db))

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        found = db.execute("SELECT state FROM slots WHERE slot = ?", [str(record.slot)]).fetchone()
        return str(found[0]) if found else "gone"

    def check_origin(self, db: sqlite3.Connection, epoch: Epoch) -> None:
        values = [epoch.number, json.dumps(epoch.to_json())]
        if db.execute("SELECT 1 FROM ledger WHERE number = ? AND epoch <> ?", values).fetchone():
            raise SinkError(f"{self.binding}: holds epoch {epoch.number} of another origin; nothing was changed")

    def show(self, db: sqlite3.Connection, record: Prepared) -> None:
        slot = [str(record.slot)]
        db.execute("INSERT INTO visible SELECT rows FROM slots WHERE slot = ?", slot)
        db.execute("UPDATE slots SET state = 'visible', rows = NULL WHERE slot = ?", slot)

    def enter(self, db: sqlite3.Connection, epoch: Epoch, slot: int, prepared: Sequence[Prepared]) -> None:
        rows, checksum = sum(p.rows for p in prepared), add_checksums(p.checksum for p in prepared)
        values = [epoch.number, slot, json.dumps(epoch.to_json()), rows, checksum]
        db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?)", values)


class HonestCommitter(Settler):
    """Makes a whole epoch visible in one transaction."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            if self.is_held(db, epoch):
                return ALREADY_COMMITTED
            lost = [p for p in prepared if self.state(db, p) != "prepared"]
            if lost:
                return Outcome.refused(f"`{lost[0].slot}` is {self.state(db, lost[0])}")
            for record in prepared:
                self.show(db, record)
            self.enter(db, epoch, -1, prepared)
            reach("commit.apply", epoch.number)
        reach("commit.applied", epoch.number)
        return COMMITTED

    def is_held(self, db: sqlite3.Connection, epoch: Epoch) -> bool:
        self.check_origin(db, epoch)
        return db.execute("SELECT 1 FROM ledger WHERE number >= ?", [epoch.number]).fetchone() is not None


class HonestSlotCommitter(Settler):
    """Makes each slot visible on its own, as a server with prepared transactions does."""

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        return [self._commit(epoch, record) for record in prepared]

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self.fenced() as db:
            self.check_origin(db, epoch)
            # An epoch that is whole stays so, also if a person has accepted it without some of its slots.
            values = [epoch.number, epoch.number, record.slot.number]
            if db.execute(
                "SELECT 1 FROM ledger WHERE number > ? OR (number = ? AND slot IN (-1, ?))", values
            ).fetchone():
                return ALREADY_COMMITTED
            if self.state(db, record) != "prepared":
                return Outcome.refused(f"`{record.slot}` is {self.state(db, record)}")
            self.show(db, record)
            self.enter(db, epoch, record.slot.number, [record])
            reach("commit.apply", epoch.number)
        reach("commit.applied", epoch.number)
        return COMMITTED

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        with self.fenced() as db:
            self.check_origin(db, epoch)
            if db.execute("SELECT 1 FROM ledger WHERE number >= ? AND slot = -1", [epoch.number]).fetchone():
                return ALREADY_COMMITTED
            self.enter(db, epoch, -1, [])
        return COMMITTED
