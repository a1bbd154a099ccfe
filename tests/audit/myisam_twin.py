"""A twin of a table of MyISAM, where BEGIN, COMMIT and ROLLBACK are taken and ignored: played by a SQLite file.

pakka's own sink refuses a real one before there is anything to audit (docs/reference/sinks.md); an audit must find out whoever does not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pakka.contract.audit import AUDIT_ID
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.testing.known_bad import _Forgetful

_ANSWER_S = 10.0


@dataclass(frozen=True)
class FakeMyIsamSink:
    """Insert rows, then COMMIT or ROLLBACK, into a table whose engine knows no transactions: every INSERT stays."""

    path: str

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.AT_LEAST_ONCE, Way.PREPARED, "the engine takes BEGIN and ROLLBACK, and ignores them")

    def target(self) -> str:
        return self.path

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> _MyIsamWriter:
        return _MyIsamWriter(self, slot)

    def open_committer(self, binding: Binding, fence: int) -> _MyIsamCommitter:
        return _MyIsamCommitter(self)

    def connect(self) -> sqlite3.Connection:
        """Without a transaction around it each statement is durable and visible when it ends, as in MyISAM."""
        db = sqlite3.connect(self.path, isolation_level=None, timeout=_ANSWER_S)
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"CREATE TABLE IF NOT EXISTS refunds ({AUDIT_ID} TEXT)")
        db.execute("CREATE TABLE IF NOT EXISTS ledger (epoch INTEGER PRIMARY KEY)")
        return db

    def scratch(self, token: str) -> _MyIsamScratch:
        return _MyIsamScratch(replace(self, path=f"{self.path}.audit-{token}"))

    def scratch_tokens(self) -> Sequence[str]:
        path = Path(self.path)
        return [p.name.rpartition(".audit-")[2] for p in path.parent.glob(f"{path.name}.audit-*")]


class _MyIsamWriter:
    """Believes that it writes into a transaction."""

    def __init__(self, sink: FakeMyIsamSink, slot: Slot) -> None:
        self.sink = sink
        self.slot = slot
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        ids = batch.column(AUDIT_ID).to_pylist()
        with closing(self.sink.connect()) as db:
            for value in ids:
                db.execute("INSERT INTO refunds VALUES (?)", (value,))
        self.rows += len(ids)

    def prepare(self, checksum: str) -> Prepared:
        return Prepared(self.slot, self.rows, checksum)

    def discard(self) -> None:
        """ROLLBACK, which the engine ignores."""


class _MyIsamCommitter(_Forgetful):
    def __init__(self, sink: FakeMyIsamSink) -> None:
        self.sink = sink

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with closing(self.sink.connect()) as db:
            added = db.execute("INSERT INTO ledger VALUES (?) ON CONFLICT DO NOTHING", (epoch.number,)).rowcount
        return COMMITTED if added else ALREADY_COMMITTED


@dataclass(frozen=True)
class _MyIsamScratch:
    """A database file of its own beside the audited one."""

    sink: FakeMyIsamSink

    def make(self) -> None:
        self.sink.connect().close()

    def read(self) -> list[str]:
        with closing(sqlite3.connect(self.sink.path)) as db:
            return [value for (value,) in db.execute(f"SELECT {AUDIT_ID} FROM refunds")]

    def stored(self) -> frozenset[str]:
        with closing(sqlite3.connect(self.sink.path)) as db:
            return frozenset(str(row) for row in db.execute("SELECT rowid FROM refunds"))

    def remove(self) -> None:
        Path(self.sink.path).unlink(missing_ok=True)
