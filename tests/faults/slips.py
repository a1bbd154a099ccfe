"""A true sink that commits slot by slot, as a server with prepared transactions does; none of the embedded ones does.

One SQLite file: a slot's rows are staged in a table that no reader looks at, and its commit moves them into sight and
enters the slot in the ledger, in one transaction that checks the fence.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums

_TABLES = """
CREATE TABLE IF NOT EXISTS slips (id INTEGER, batch INTEGER);
CREATE TABLE IF NOT EXISTS staged (slot TEXT, id INTEGER, batch INTEGER);
CREATE TABLE IF NOT EXISTS prepared (slot TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS fence (fence INTEGER);
CREATE TABLE IF NOT EXISTS ledger (epoch INTEGER, number INTEGER, slot TEXT, origin TEXT, rows INTEGER, checksum TEXT,
                                   PRIMARY KEY (epoch, number));
"""

_WHOLE = -1
"""The number under which the ledger has that every slot of an epoch is in sight."""


@contextmanager
def _transaction(path: str) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")
    finally:
        db.close()


def _fence(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(fence), 0) FROM fence").fetchone()[0])


@dataclass(frozen=True)
class SlipSink:
    """Slips in a SQLite file, each slot in sight on its own."""

    path: str

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.PREPARED, "a slot's rows and its ledger row change together")

    def target(self) -> str:
        return f"slips:{self.path}"

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> "SlipWriter":
        return SlipWriter(self.path, slot)

    def open_committer(self, binding: Binding, fence: int) -> "SlipCommitter":
        return SlipCommitter(self.path, binding, fence)


class SlipWriter:
    """Stages each batch in a transaction of its own, and enters the slot as prepared at the end."""

    def __init__(self, path: str, slot: Slot) -> None:
        self.path = path
        self.slot = slot
        self.rows = 0
        with self._fenced() as db:
            db.execute("INSERT INTO prepared VALUES (?)", [str(slot)])

    def write(self, batch: pa.RecordBatch) -> None:
        with self._fenced() as db:
            rows = [(str(self.slot), r["id"], r["batch"]) for r in batch.to_pylist()]
            db.executemany("INSERT INTO staged VALUES (?, ?, ?)", rows)
        self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        with self._fenced():
            return Prepared(self.slot, self.rows, checksum)

    def discard(self) -> None:
        with _transaction(self.path) as db:
            _drop(db, self.slot)

    @contextmanager
    def _fenced(self) -> Iterator[sqlite3.Connection]:
        with _transaction(self.path) as db:
            seen = _fence(db)
            if seen > self.slot.fence:
                raise FencedError.of(f"sink `{self.slot.sink}`", self.slot.pipeline, self.slot.fence, seen)
            yield db


class SlipCommitter:
    """Moves staged slots into sight, one transaction each."""

    def __init__(self, path: str, binding: Binding, fence: int) -> None:
        self.path = path
        self.binding = binding
        self.fence = fence
        db = sqlite3.connect(path, timeout=10)
        db.executescript(_TABLES)
        db.close()

    def raise_fence(self) -> bool:
        with self._fenced() as db:
            db.execute("DELETE FROM fence")
            db.execute("INSERT INTO fence VALUES (?)", [self.fence])
        return True

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        return [self._commit(epoch, record) for record in prepared]

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self._fenced() as db:
            number, slot = record.slot.number, str(record.slot)
            held = db.execute(
                "SELECT 1 FROM ledger WHERE epoch = ? AND number IN (?, ?)", [epoch.number, number, _WHOLE]
            )
            if held.fetchone():
                return ALREADY_COMMITTED
            if not db.execute("SELECT 1 FROM prepared WHERE slot = ?", [slot]).fetchone():
                return Outcome.refused(f"`{slot}` is neither prepared nor committed")
            db.execute("INSERT INTO slips SELECT id, batch FROM staged WHERE slot = ?", [slot])
            _drop(db, record.slot)
            _enter(db, epoch, number, slot, record.rows, record.checksum)
        return COMMITTED

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        with self._fenced() as db:
            held = db.execute("SELECT 1 FROM ledger WHERE epoch >= ? AND number = ?", [epoch.number, _WHOLE])
            if held.fetchone():
                return ALREADY_COMMITTED
            _enter(db, epoch, _WHOLE, "", 0, add_checksums(()))
        return COMMITTED

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self._fenced() as db:
            for slot in (p.slot for p in prepared):
                if db.execute("SELECT 1 FROM ledger WHERE slot = ?", [str(slot)]).fetchone():
                    raise SinkError(f"{self.binding}: `{slot}` is committed and cannot be aborted; it stays visible")
                _drop(db, slot)

    def pending(self) -> Sequence[Prepared]:
        with _transaction(self.path) as db:
            slots = [Slot.parse(text) for (text,) in db.execute("SELECT slot FROM prepared")]
        return [Prepared(slot, 0, add_checksums(())) for slot in slots if slot]

    def ledger(self) -> Ledger:
        with _transaction(self.path) as db:
            rows = db.execute(
                "SELECT origin, number, rows, checksum FROM ledger WHERE epoch = (SELECT max(epoch) FROM ledger)"
            ).fetchall()
            fence = _fence(db)
        if not rows:
            return Ledger(fence, None)
        slots = {number: (count, checksum) for _, number, count, checksum in rows}
        total = sum(count for count, _ in slots.values()), add_checksums(c for _, c in slots.values())
        epoch = Epoch.from_json(json.loads(rows[0][0]))
        return Ledger(fence, Entry(epoch, *total, None if _WHOLE in slots else slots))

    def close(self) -> None:
        pass

    @contextmanager
    def _fenced(self) -> Iterator[sqlite3.Connection]:
        with _transaction(self.path) as db:
            seen = _fence(db)
            if seen > self.fence:
                raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, seen)
            yield db


def _enter(db: sqlite3.Connection, epoch: Epoch, number: int, slot: str, rows: int, checksum: str) -> None:
    values = [epoch.number, number, slot, json.dumps(epoch.to_json()), rows, checksum]
    db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)


def _drop(db: sqlite3.Connection, slot: Slot) -> None:
    for table in ("staged", "prepared"):
        db.execute(f"DELETE FROM {table} WHERE slot = ?", [str(slot)])
