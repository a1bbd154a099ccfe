"""An honest sink over staging tables of a SQLite file, and its cheating twins: each breaks one thing, in every process."""

import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pakka import points
from pakka.contract.audit import AUDIT_ID
from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, SinkError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums

TABLES = """
CREATE TABLE IF NOT EXISTS book (audit_id TEXT);
CREATE TABLE IF NOT EXISTS staged (slot TEXT PRIMARY KEY, rows TEXT, record TEXT);
CREATE TABLE IF NOT EXISTS ledger (epoch INTEGER PRIMARY KEY, json TEXT, slots TEXT);
CREATE TABLE IF NOT EXISTS fence (one INTEGER PRIMARY KEY CHECK (one = 1), fence INTEGER);
INSERT OR IGNORE INTO fence VALUES (1, 0);
"""


@dataclass(frozen=True)
class BookSink:
    """Rows wait in a staging table, and are moved to the book with ledger and fence in one transaction."""

    path: str
    cheat: str = ""

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.SPOOLED, "staging table")

    def target(self) -> str:
        return self.path

    def open_writer(self, binding, slot, schema) -> "BookWriter":
        return BookWriter(self, slot)

    def open_committer(self, binding, fence) -> "Settling":
        if self.cheat == "has no commit":
            return WriterOnly(self, fence)
        if "slot" in self.cheat:
            return SlotCommitter(self, fence)
        return BookCommitter(self, fence)

    def scratch(self, token: str) -> "BookScratch":
        return BookScratch(replace(self, path=f"{self.path}.audit-{token}"))

    def scratch_tokens(self) -> Sequence[str]:
        path = Path(self.path)
        return [p.name.rpartition(".audit-")[2] for p in path.parent.glob(f"{path.name}.audit-*")]

    @contextmanager
    def transaction(self, fence: int | None = None) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as db:
            db.execute("BEGIN IMMEDIATE")
            (seen,) = db.execute("SELECT fence FROM fence").fetchone()
            if fence is not None and fence < seen and self.cheat != "ignores the fence":
                raise FencedError.of("sink", "audit", fence, seen)
            yield db
            db.execute("COMMIT")


class BookWriter:
    def __init__(self, sink: BookSink, slot) -> None:
        self.sink = sink
        self.slot = slot
        self.ids: list[str] = []

    def write(self, batch) -> None:
        if self.sink.cheat == "loses the last batch" and self.ids:
            return
        self.ids += batch.column(AUDIT_ID).to_pylist()

    def prepare(self, checksum: str) -> Prepared:
        if self.sink.cheat == "ends its process" and sys.argv[0].endswith("host.py"):
            os._exit(1)
        record = Prepared(self.slot, len(self.ids), checksum)
        row = (str(self.slot), json.dumps(self.ids), json.dumps(record.to_json()))
        with self.sink.transaction(self.slot.fence) as db:
            if self.sink.cheat in ("shows rows at prepare", "has no commit"):
                db.executemany("INSERT INTO book VALUES (?)", [(i,) for i in self.ids])
            if self.sink.cheat == "accepts a used id":
                db.execute("INSERT OR REPLACE INTO staged VALUES (?, ?, ?)", row)
            elif db.execute("SELECT 1 FROM staged WHERE slot = ?", row[:1]).fetchone():
                raise SinkError(f"`{self.slot}` was used before")
            else:
                db.execute("INSERT INTO staged VALUES (?, ?, ?)", row)
        return record

    def discard(self) -> None:
        pass


class Settling:
    """What every committer can: fence, abort, pending, ledger."""

    def __init__(self, sink: BookSink, fence: int) -> None:
        self.sink = sink
        self.fence = fence

    def raise_fence(self) -> bool:
        with self.sink.transaction(self.fence) as db:
            db.execute("UPDATE fence SET fence = max(fence, ?)", (self.fence,))
            if self.sink.cheat == "forgets prepared rows on restart":
                db.execute("UPDATE staged SET rows = '[]'")
        return True

    def abort(self, prepared) -> None:
        with self.sink.transaction(self.fence) as db:
            for record in prepared:
                name = str(record.slot)
                row = db.execute("SELECT slots FROM ledger WHERE epoch = ?", (record.slot.epoch,)).fetchone()
                if row and name in json.loads(row[0]):
                    if self.sink.cheat == "aborts what was committed":
                        db.execute("DELETE FROM book WHERE audit_id LIKE ?", (f"e{record.slot.epoch}-%",))
                        continue
                    raise SinkError(f"`{name}` is committed")
                if self.sink.cheat == "second abort raises" and not self._is_staged(db, name):
                    raise SinkError(f"`{name}` is not there")
                if self.sink.cheat == "leaks on abort":
                    db.execute("UPDATE staged SET record = NULL WHERE slot = ?", (name,))
                else:
                    db.execute("DELETE FROM staged WHERE slot = ?", (name,))

    def _is_staged(self, db: sqlite3.Connection, name: str) -> bool:
        return db.execute("SELECT 1 FROM staged WHERE slot = ?", (name,)).fetchone() is not None

    def pending(self) -> Sequence[Prepared]:
        with self.sink.transaction() as db:
            records = db.execute("SELECT record FROM staged WHERE record IS NOT NULL").fetchall()
        return [Prepared.from_json(json.loads(record)) for (record,) in records]

    def ledger(self) -> Ledger:
        with self.sink.transaction() as db:
            return Ledger(db.execute("SELECT fence FROM fence").fetchone()[0], None)

    def close(self) -> None:
        pass


class BookCommitter(Settling):
    def commit_epoch(self, epoch, prepared) -> Outcome:
        names = [str(p.slot) for p in prepared]
        fence = self.fence
        if self.sink.cheat == "checks the fence too early":
            with self.sink.transaction(fence):
                fence = None
            points.reach("commit.apply", epoch.number)
        with self.sink.transaction(fence) as db:
            known = db.execute("SELECT 1 FROM ledger WHERE epoch >= ?", (epoch.number,)).fetchone()
            if known and self.sink.cheat == "second commit raises":
                raise SinkError("committed before")
            if known and self.sink.cheat != "second commit duplicates":
                return ALREADY_COMMITTED
            for name in names:
                found = db.execute("SELECT rows FROM staged WHERE slot = ?", (name,)).fetchone()
                if found is None:
                    return Outcome.refused(f"{name} is gone")
                for i in json.loads(found[0]):
                    db.execute("INSERT INTO book VALUES (?)", (i,))
                    if self.sink.cheat == "commits row by row":
                        db.execute("COMMIT")
                        # As long as a server takes to answer: the auditor's reader cannot see what is over before it looks.
                        time.sleep(0.005)
                        db.execute("BEGIN IMMEDIATE")
            points.reach("commit.apply", epoch.number)
            entry = Entry(epoch, sum(p.rows for p in prepared), add_checksums(p.checksum for p in prepared))
            row = (epoch.number, json.dumps([entry.rows, entry.checksum]), json.dumps(names))
            db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)", row)
            if self.sink.cheat != "second commit duplicates":
                db.executemany("DELETE FROM staged WHERE slot = ?", [(n,) for n in names])
        return COMMITTED


class SlotCommitter(Settling):
    """Commits slot by slot, each in a transaction of its own: honest, unless it forgets which slots it has committed."""

    def commit(self, epoch, prepared) -> list[Outcome]:
        return [self._commit(epoch, str(record.slot), record) for record in prepared]

    def _commit(self, epoch, name: str, record: Prepared) -> Outcome:
        with self.sink.transaction(self.fence) as db:
            row = db.execute("SELECT slots FROM ledger WHERE epoch = ?", (epoch.number,)).fetchone()
            known = json.loads(row[0]) if row else []
            numbers = {name.split(".")[-2] for name in known}
            if str(record.slot.number) in numbers and self.sink.cheat != "commits a slot twice":
                return ALREADY_COMMITTED
            found = db.execute("SELECT rows FROM staged WHERE slot = ?", (name,)).fetchone()
            if found is None:
                return Outcome.refused(f"{name} is gone")
            db.executemany("INSERT INTO book VALUES (?)", [(i,) for i in json.loads(found[0])])
            db.execute("INSERT OR REPLACE INTO ledger VALUES (?, '', ?)", (epoch.number, json.dumps([*known, name])))
            if self.sink.cheat != "commits a slot twice":
                db.execute("DELETE FROM staged WHERE slot = ?", (name,))
        return COMMITTED


class WriterOnly(Settling):
    """Its writers show rows at once, and there is nothing to commit."""


@dataclass(frozen=True)
class BookScratch:
    sink: BookSink

    def make(self) -> None:
        with closing(sqlite3.connect(self.sink.path)) as db:
            db.executescript("PRAGMA journal_mode = WAL;" + TABLES)

    def read(self) -> list[str]:
        with closing(sqlite3.connect(self.sink.path)) as db:
            return [i for (i,) in db.execute("SELECT audit_id FROM book")]

    def stored(self) -> frozenset[str]:
        with closing(sqlite3.connect(self.sink.path)) as db:
            return frozenset(slot for (slot,) in db.execute("SELECT slot FROM staged"))

    def remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(self.sink.path + end).unlink(missing_ok=True)
