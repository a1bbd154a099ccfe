"""Broken twins: each breaks one promise on purpose, so that it can be seen that the judge finds out."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pakka.contract.sink import Committer, Sink, Writer
from pakka.coordinator.epoch import Coordinator
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._publish import Publisher
from pakka.sinks.files import ParquetSink
from tests.faults import outputs
from tests.faults.slips import SlipCommitter, SlipSink, SlipWriter


@dataclass(frozen=True)
class Twin(SlipSink):
    """A slip sink with other parts."""

    writer: Callable[[str, Slot], Writer] = SlipWriter
    committer: Callable[[str, Binding, int], Committer] = SlipCommitter

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> SlipWriter:
        return self.writer(self.path, slot)

    def open_committer(self, binding: Binding, fence: int) -> SlipCommitter:
        return self.committer(self.path, binding, fence)


class EagerWriter(SlipWriter):
    """Shows its rows at prepare."""

    def prepare(self, checksum: str) -> Prepared:
        prepared = super().prepare(checksum)
        with self._fenced() as db:
            db.execute("INSERT INTO slips SELECT id, batch FROM staged WHERE slot = ?", [str(self.slot)])
            db.execute("DELETE FROM staged WHERE slot = ?", [str(self.slot)])
        return prepared


class ForgetfulCommitter(SlipCommitter):
    """Keeps what was staged and asks no ledger, so that a second commit is a second copy."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self._fenced() as db:
            slot = str(record.slot)
            db.execute("INSERT INTO slips SELECT id, batch FROM staged WHERE slot = ?", [slot])
            db.execute("DELETE FROM prepared WHERE slot = ?", [slot])
            _enter(db, epoch, record)
        return COMMITTED


class LateCommitter(SlipCommitter):
    """Looks at fence and ledger first, and acts in another transaction, as if nothing could happen in between."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self._fenced() as db:
            values = [epoch.number, record.slot.number]
            if db.execute("SELECT 1 FROM ledger WHERE epoch = ? AND number = ?", values).fetchone():
                return ALREADY_COMMITTED
            rows = db.execute("SELECT id, batch FROM staged WHERE slot = ?", [str(record.slot)]).fetchall()
        reach("commit.apply", epoch.number)
        db = sqlite3.connect(self.path, timeout=10)
        db.executemany("INSERT INTO slips VALUES (?, ?)", rows)
        _enter(db, epoch, record)
        db.commit()
        db.close()
        return COMMITTED


class LazyCommitter(SlipCommitter):
    """Says that it has aborted."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        return


class LyingCommitter(SlipCommitter):
    """Enters the slot in its ledger, and forgets the rows."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self._fenced() as db:
            for table in ("staged", "prepared"):
                db.execute(f"DELETE FROM {table} WHERE slot = ?", [str(record.slot)])
            _enter(db, epoch, record)
        return COMMITTED


class OpenPublisher(Publisher):
    """Builds an epoch's directory where everybody looks."""

    def _building(self, number: int) -> Path:
        return self._directory(number)


@dataclass(frozen=True)
class OpenParquetSink(ParquetSink):
    """Parquet files, in sight one by one."""

    def open_committer(self, binding: Binding, fence: int) -> Publisher:
        return OpenPublisher(Path(self.target()), self._staging(binding, fence))


def _enter(db: sqlite3.Connection, epoch: Epoch, record: Prepared) -> None:
    values = [epoch.number, record.slot.number, str(record.slot), json.dumps(epoch.to_json())]
    db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?, ?)", [*values, record.rows, record.checksum])


def _with(site: Path, **parts: object) -> dict[str, Sink]:
    sinks = outputs.with_slips(site)
    return {**sinks, "slips": Twin(str(site / "out" / "slips.db"), **parts)}


def eager(site: Path) -> dict[str, Sink]:
    return _with(site, writer=EagerWriter)


def forgetful(site: Path) -> dict[str, Sink]:
    return _with(site, committer=ForgetfulCommitter)


def late(site: Path) -> dict[str, Sink]:
    return _with(site, committer=LateCommitter)


def lazy(site: Path) -> dict[str, Sink]:
    return _with(site, committer=LazyCommitter)


def lying(site: Path) -> dict[str, Sink]:
    return _with(site, committer=LyingCommitter)


def in_the_open(site: Path) -> dict[str, Sink]:
    return {**outputs.standard(site), "refunds": OpenParquetSink(str(site / "out" / "refunds"))}


def decide_nothing() -> None:
    """In the driver: the decision is not written."""
    Coordinator._decide = lambda *_: None
