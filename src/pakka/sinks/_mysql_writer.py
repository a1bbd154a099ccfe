"""A slot's way into MySQL as a prepared branch: rows into the target, fence and ledger row, XA PREPARE, and out of the line.

MariaDB lets nobody else end a branch while its writer is connected, so the writer leaves as soon as it has prepared.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._mysql_clerk import DUPLICATE, digest, fence_of, ident_of, listed, slot_of, xid
from pakka.sinks._mysql_column import Table, hold_tables, quoted, read_table
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_fit import Fit
from pakka.sinks._mysql_line import BULK_ANSWER_S, DriverError, Line, code_of
from pakka.sinks._mysql_load import Loader, Server
from pakka.sinks._mysql_table import fit_to, make_ready
from pakka.sinks._sql_writer import SqlWriter

if TYPE_CHECKING:
    from pakka.sinks.mysql import MysqlSink

_TAKEN_XID = 1440
_LEAVE_S = 3
"""How long the server keeps the line of a writer that has prepared and does not leave: its process is frozen, or its machine has
lost power without a word. Less than a committer waits for it."""


class MysqlWriter(SqlWriter[Line]):
    """One attempt at one slot, in one branch of the server."""

    def __init__(self, sink: MysqlSink, binding: Binding, slot: Slot, schema: pa.Schema) -> None:
        super().__init__(sink, binding, slot)
        self.sink = sink
        self.ident = ident_of(slot, sink.where.schema)
        self.clerk = sink.open_clerk(binding)
        with told(self._who, sink.address):
            self._line = Line(sink.address, BULK_ANSWER_S)
        try:
            with self._told():
                self.fit, self.loader = self._begin(schema)
        except BaseException:
            self.discard()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        fitted = self.fit(batch)
        if not self._is_visible:
            with self._told():
                self.loader.write(fitted)
        self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        line = self._open_line
        if not self._is_visible:
            with self._told():
                self.loader.flush()
                reach("task.sql.loaded", self.slot.epoch)
                self._enter(line, checksum)
                line.do(f"XA END {xid(self.ident)}")
                self._is_sent = True
                line.do(f"XA PREPARE {xid(self.ident)}")
            reach("task.sql.prepared", self.slot.epoch)
        self._line = None
        line.close()
        self.clerk.close()
        return Prepared(self.slot, self.rows, checksum, {"id": self.ident})

    def discard(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()  # which rolls back, up to XA PREPARE
        try:
            if self._is_sent:
                self.clerk.roll_back(self.ident)
        finally:
            self.clerk.close()
        self._is_sent = False

    def _begin(self, schema: pa.Schema) -> tuple[Fit, Loader]:
        """Everything that can be refused is refused here, before the first row."""
        line = self._open_line
        self._check_fence(fence_of(line, self.clerk.names, self.key))
        server = Server.of(line)
        table = make_ready(line, self.place, self.sink, schema, server)
        self._is_visible = self._has_committed_attempt(line, self.clerk.names.ledger)
        loader = Loader(self.place, line, server, self.sink.where.sql, self._turn(server, table))
        if self._is_visible:
            return fit_to(self.place, self.sink, schema, table, server), loader
        self._drop_earlier_attempts(line, table)
        try:
            line.do(f"XA START {xid(self.ident)}")
        except DriverError as error:
            if code_of(error) != _TAKEN_XID:
                raise
            raise self._used() from error
        hold_tables(line, self.place, (self.sink.where, *self.clerk.names.own))
        return fit_to(self.place, self.sink, schema, read_table(line, self.sink.where), server), loader

    def _turn(self, server: Server, table: Table) -> str:
        """The lock under which slots load in turns; none where they had better load at once.

        Where every row goes to the end of the table, two writers fight over its last page, and MariaDB takes twice the time for a
        row. With a key that puts their rows into different places they do not meet.
        """
        is_taken = server.is_mariadb and table.grows_at_its_end
        return f"pakka.turn.{digest(str(self.sink.where), 20)}" if is_taken else ""

    def _drop_earlier_attempts(self, line: Line, table: Table) -> None:
        """A prepared attempt holds its keys of a unique index, and this one, with the same rows, would wait for it for ever.

        Spark begins a second attempt when the first has failed. Should the first have won after all, its record is refused at
        the commit and the epoch runs again: nothing is lost by it.
        """
        if not table.uniques:
            return
        mine = (self.slot.epoch, self.slot.fence, self.slot.number)
        for ident in listed(line):
            slot = slot_of(ident, self.binding, self.sink.where.schema)
            if slot is not None and (slot.epoch, slot.fence, slot.number) == mine and slot != self.slot:
                self.clerk.roll_back(ident)

    def _enter(self, line: Line, checksum: str) -> None:
        """The fence under a lock, and the ledger row that the rows come into sight with; its own lock stays until the end."""
        line.do(f"SET SESSION wait_timeout = {_LEAVE_S}")
        self._check_fence(fence_of(line, self.clerk.names, self.key, "LOCK IN SHARE MODE"))
        try:
            row = self._ledger_row(checksum)
            columns = ", ".join(quoted(column) for column in row)
            marks = ", ".join(f"%({column})s" for column in row)
            line.do(f"INSERT INTO {self.clerk.names.ledger} ({columns}) VALUES ({marks})", row)
        except DriverError as error:
            if code_of(error) != DUPLICATE:
                raise
            raise self._used() from error

    def _told(self) -> AbstractContextManager[None]:
        return told(self._who, self.sink.address, "nothing of it is visible")
