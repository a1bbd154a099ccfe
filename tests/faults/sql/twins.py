"""Broken twins of the SQL sinks: each breaks one promise on purpose, so that it can be seen that these tests find out.

A twin is the same lie on every server. Where a writer speaks the server's own SQL, there is one for each.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pakka.contract.sink import Committer, Sink, Writer
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Kind, Outcome
from pakka.model.prepared import Prepared
from pakka.sinks._mysql_column import quoted
from pakka.sinks._mysql_line import Line as MysqlLine
from pakka.sinks._mysql_writer import MysqlWriter
from pakka.sinks._postgres_writer import PostgresWriter
from pakka.sinks._sql_committer import PreparedWay
from pakka.sinks._two_phase import Page, TwoPhaseCommitter
from pakka.sinks.mysql import MysqlSink
from pakka.sinks.postgres import PostgresSink
from pakka.sinks.spooled import SpooledCommitter
from tests.faults.sql.outputs import SqlOutlet


class UnfencedPostgres(PostgresWriter):
    """Takes no lock of the fence, and does not look at it when it prepares.

    Caught by the judge, who finds it in doubt: it prepares when the next driver has settled everything and is gone.
    """

    def _enter(self, checksum: str) -> None:
        row = self._ledger_row(checksum)
        marks = ", ".join(f"%({column})s" for column in row)
        self._open_line.ask(f"INSERT INTO {self.names.ledger} ({', '.join(row)}) VALUES ({marks})", row)


class UnfencedMysql(MysqlWriter):
    """The same."""

    def _enter(self, line: MysqlLine, checksum: str) -> None:
        row = self._ledger_row(checksum)
        columns, marks = ", ".join(map(quoted, row)), ", ".join(f"%({column})s" for column in row)
        line.do(f"INSERT INTO {self.clerk.names.ledger} ({columns}) VALUES ({marks})", row)


class ApartPostgres(PostgresWriter):
    """Writes its ledger row in another transaction, as if the two could not part.

    Caught by the judge, who misses rows: the ledger says that they are visible, and the next run passes them over.
    """

    def _enter(self, checksum: str) -> None:
        mine = self._line
        with self._lines.lend() as other:
            self._line = other
            try:
                super()._enter(checksum)
            finally:
                self._line = mine


class ApartMysql(MysqlWriter):
    """The same."""

    def _enter(self, line: MysqlLine, checksum: str) -> None:
        with closing(self.sink.connect()) as other:
            super()._enter(other, checksum)


class _Eager:
    """Commits its slot at once, and calls that prepared.

    Caught by the judge, who sees rows of an epoch that nobody has decided.
    """

    def prepare(self: Any, checksum: str) -> Prepared:
        record: Prepared = super().prepare(checksum)
        with closing(self.sink.open_clerk(self.binding)) as clerk:
            clerk.commit(self.ident)
        return record


class EagerPostgres(_Eager, PostgresWriter):
    pass


class EagerMysql(_Eager, MysqlWriter):
    pass


class Trusting(PreparedWay):
    """Takes an id that the server does not know for a committed one.

    Caught by the judge, who misses the rows of a slot that an administrator has rolled back.
    """

    def _commit(self, epoch: Epoch, record: Prepared, page: Page) -> Outcome:
        outcome = super()._commit(epoch, record, page)
        return COMMITTED if outcome.kind is Kind.REFUSED else outcome


class Forgetful(PreparedWay):
    """Has nothing to abort, it says.

    Caught by the fence, which cannot be raised while something is prepared under an older one: the next driver gives up.
    """

    def pending(self) -> list[Prepared]:
        return []


class _Made:
    """A sink of parts that can be chosen."""

    writer: type
    committer: type

    def open_prepared_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        writer: Writer = self.writer(self, binding, slot, schema)
        return writer

    def open_committer(self: Any, binding: Binding, fence: int) -> Committer:
        committer: Committer = self.committer(binding, fence, self.open_clerk(binding))
        return committer


@dataclass(frozen=True)
class PostgresTwin(_Made, PostgresSink):
    writer: type = PostgresWriter
    committer: type = PreparedWay


@dataclass(frozen=True)
class MysqlTwin(_Made, MysqlSink):
    writer: type = MysqlWriter
    committer: type = PreparedWay


_TWINS = {"postgres": PostgresTwin, "mariadb": MysqlTwin}


class _OneWay:
    """Knows nothing of what a run of the other way has left.

    Caught by the judge, who finds a spool that nobody sweeps; or by the fence, which what is prepared keeps from being raised.
    """

    def open_committer(self: Any, binding: Binding, fence: int) -> Committer:
        if self.is_prepared:
            return TwoPhaseCommitter(binding, fence, self.open_clerk(binding))
        return SpooledCommitter(binding, fence, self.open_applier(binding), is_exact=True)


class OneWayPostgres(_OneWay, PostgresSink):
    pass


class OneWayMysql(_OneWay, MysqlSink):
    pass


def _of(site: Path, **parts: dict[str, type] | type) -> dict[str, Sink]:
    """The twin for the server of this site; a part that is not the same for all is given by server."""
    outlet = SqlOutlet.read(site)
    chosen = {name: part[outlet.system] if isinstance(part, dict) else part for name, part in parts.items()}
    return {"refunds": _TWINS[outlet.system](outlet.url, "refunds", way="prepared", **chosen)}


def unfenced(site: Path) -> dict[str, Sink]:
    return _of(site, writer={"postgres": UnfencedPostgres, "mariadb": UnfencedMysql})


def apart(site: Path) -> dict[str, Sink]:
    return _of(site, writer={"postgres": ApartPostgres, "mariadb": ApartMysql})


def eager(site: Path) -> dict[str, Sink]:
    return _of(site, writer={"postgres": EagerPostgres, "mariadb": EagerMysql})


def trusting(site: Path) -> dict[str, Sink]:
    return _of(site, committer=Trusting)


def forgetful(site: Path) -> dict[str, Sink]:
    return _of(site, committer=Forgetful)


def one_way_prepared(site: Path) -> dict[str, Sink]:
    return _one_way(site, "prepared")


def one_way_spooled(site: Path) -> dict[str, Sink]:
    return _one_way(site, "spooled")


def _one_way(site: Path, way: str) -> dict[str, Sink]:
    outlet = SqlOutlet.read(site)
    kind = {"postgres": OneWayPostgres, "mariadb": OneWayMysql}[outlet.system]
    return {"refunds": kind(outlet.url, "refunds", way=way)}
