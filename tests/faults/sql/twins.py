"""Broken twins of the SQL sinks: each breaks one promise on purpose, so that it can be seen that these tests find out."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pakka.contract.sink import Committer, Sink, Writer
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Kind, Outcome
from pakka.model.prepared import Prepared
from pakka.sinks._postgres_clerk import PostgresClerk
from pakka.sinks._postgres_writer import PostgresWriter
from pakka.sinks._two_phase import Page, TwoPhaseCommitter
from pakka.sinks.postgres import PostgresSink
from tests.faults.sql.outputs import Outlet


class Unfenced(PostgresWriter):
    """Takes no lock of the fence, and does not look at it when it prepares."""

    def _enter(self, checksum: str) -> None:
        line = self._open_line
        slot = self.slot
        line.ask(
            f"INSERT INTO {self.names.ledger} (pipeline, sink, epoch, slot, fence, attempt, rows, checksum) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (slot.pipeline, slot.sink, slot.epoch, slot.number, slot.fence, slot.attempt, self.rows, checksum),
        )


class Apart(PostgresWriter):
    """Writes its ledger row in another transaction, as if the two could not part."""

    def _enter(self, checksum: str) -> None:
        mine = self._line
        with self._lines.lend() as other:
            self._line = other
            try:
                super()._enter(checksum)
            finally:
                self._line = mine


class Eager(PostgresWriter):
    """Commits its slot at once, and calls that prepared."""

    def _send_prepare(self) -> None:
        self._open_line.ask("COMMIT")


class Trusting(TwoPhaseCommitter):
    """Takes an id that the server does not know for a committed one."""

    def _commit(self, epoch: Epoch, record: Prepared, page: Page) -> Outcome:
        outcome = super()._commit(epoch, record, page)
        return COMMITTED if outcome.kind is Kind.REFUSED else outcome


class Forgetful(TwoPhaseCommitter):
    """Has nothing to abort, it says."""

    def pending(self) -> list[Prepared]:
        return []


@dataclass(frozen=True)
class Twin(PostgresSink):
    writer: type[PostgresWriter] = PostgresWriter
    committer: type[TwoPhaseCommitter] = TwoPhaseCommitter

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        return self.writer(self, binding, slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        return self.committer(binding, fence, PostgresClerk(self.address, self.where, binding))


def _of(site: Path, **parts: type) -> dict[str, Sink]:
    return {"refunds": Twin(Outlet.read(site).url, "refunds", way="prepared", **parts)}


def unfenced(site: Path) -> dict[str, Sink]:
    return _of(site, writer=Unfenced)


def apart(site: Path) -> dict[str, Sink]:
    return _of(site, writer=Apart)


def eager(site: Path) -> dict[str, Sink]:
    return _of(site, writer=Eager)


def trusting(site: Path) -> dict[str, Sink]:
    return _of(site, committer=Trusting)


def forgetful(site: Path) -> dict[str, Sink]:
    return _of(site, committer=Forgetful)
