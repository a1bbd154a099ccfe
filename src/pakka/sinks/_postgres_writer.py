"""A slot's way into PostgreSQL as a prepared transaction: COPY into the target, fence and ledger row, PREPARE TRANSACTION."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import errors

from pakka.errors import SinkError
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.postgres_line import BULK, Address, Line
from pakka.sinks._lines import Lines
from pakka.sinks._postgres_clerk import BEGIN, NO_TABLES, PLACE, Names, lines_of
from pakka.sinks._postgres_column import Fit, Table, read_table
from pakka.sinks._postgres_copy import CopyStream, SteadyWriter
from pakka.sinks._postgres_error import told
from pakka.sinks._postgres_table import is_ready, make_ready
from pakka.sinks._sql_writer import SqlWriter

if TYPE_CHECKING:
    from pakka.sinks.postgres import PostgresSink

_LOCK_MS = 30_000
# A copy takes as long as Spark takes to make the rows; what holds it up is the line's own limit on silence.
_FOR_EVER_S = 0

_lines: dict[tuple[int, str], Lines[Line]] = {}


def lines_to(address: Address, url: str) -> Lines[Line]:
    """Connections that tasks of one process use one after another. A forked process has none of its parent's."""
    return _lines.setdefault((os.getpid(), url), lines_of(address))


class PostgresWriter(SqlWriter[Line]):
    """One attempt at one slot, in one transaction of the server."""

    def __init__(self, sink: PostgresSink, binding: Binding, slot: Slot, schema: pa.Schema) -> None:
        super().__init__(sink, binding, slot)
        self.sink = sink
        self.names = Names(sink.where)
        self._copy: tuple[Any, AbstractContextManager[Any], CopyStream] | None = None
        self._lines = lines_to(sink.address, sink.url)
        with told(self._who, sink.address):
            self._line = self._lines.take()
        with self._told():
            self.fit = self._begin(schema)

    def write(self, batch: pa.RecordBatch) -> None:
        with self._told():
            fitted = self.fit(batch)
            if not self._is_visible:
                copy, _, stream = self._copy or self._start_copy(fitted.schema)
                with self._open_line.within():
                    copy.write(stream.write(fitted))
        self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        if not self._is_visible:
            with self._told():
                self._finish_copy()
                reach("task.sql.loaded", self.slot.epoch)
                self._enter(checksum)
                self._send_prepare()
            reach("task.sql.prepared", self.slot.epoch)
        line, self._line = self._open_line, None
        self._lines.give_back(line)
        return Prepared(self.slot, self.rows, checksum, {"id": self.ident})

    def discard(self) -> None:
        self._let_go()
        if self._is_sent:
            clerk = self.sink.open_clerk(self.binding)
            try:
                clerk.roll_back(self.ident)
            finally:
                clerk.close()
            self._is_sent = False

    def _let_go(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()  # which rolls back
        if self._copy is not None:
            # One that is not ended would end itself when it is collected, and complain that its line is closed.
            _, context, _ = self._copy
            with suppress(psycopg.Error, GeneratorExit):
                context.__exit__(GeneratorExit, GeneratorExit(), None)
            self._copy = None

    def _begin(self, schema: pa.Schema) -> Fit:
        """Everything that can be refused is refused here, before the first row."""
        line = self._open_line
        with line.within():
            self._look(line)
            if self._is_visible:
                return Fit(self.place, schema, make_ready(line, self.place, self.sink, schema))
            table = self._lock_table(line)
            if not is_ready(self.sink, table, schema):
                line.ask("ROLLBACK")
                make_ready(line, self.place, self.sink, schema)
                table = self._lock_table(line)
            if table is not None and table.is_unique and (gids := self._earlier_attempts(line)):
                line.ask("ROLLBACK")  # inside a transaction none can be ended that is prepared
                for gid in gids:
                    _drop(line, gid)
                table = self._lock_table(line)
            if table is None:
                raise self.place.refuse(f"{self.place} is gone", hint="see who drops it")
            return Fit(self.place, schema, table)

    def _look(self, line: Line) -> None:
        """The fence, the place that ids of this database and schema end with, and whether another attempt is visible."""
        ((fence, database, schema, self._is_visible),) = line.ask(
            f"""
            SELECT coalesce((SELECT fence FROM {self.names.fence} WHERE pipeline = %(pipeline)s AND sink = %(sink)s), 0), {PLACE},
                coalesce((SELECT bool_and((fence, attempt) <> (%(fence)s, %(attempt)s)) FROM {self.names.ledger}
                    WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND epoch = %(epoch)s AND slot = %(slot)s), false)
            """,
            {**self._ledger_row(""), "schema": self.sink.where.schema},
        )
        self._check_fence(fence)
        self.ident = f"{self.slot}/{database}.{schema}"

    def _lock_table(self, line: Line) -> Table | None:
        """Begin. From here on nobody can change the columns: COPY in binary form would take the bytes of one type for another's.

        None if there is no table; then the transaction can only be rolled back.
        """
        begin = BEGIN.format(statement_s=_FOR_EVER_S, lock_ms=_LOCK_MS, idle_s=_FOR_EVER_S)
        try:
            return read_table(
                line.db, self.sink.where, f"{begin}; LOCK TABLE {self.sink.where.sql} IN ROW EXCLUSIVE MODE;"
            )
        except NO_TABLES:
            return None

    def _earlier_attempts(self, line: Line) -> list[str]:
        """A prepared attempt holds its keys of a unique index, and this one, with the same rows, would wait for it for ever.

        Spark begins a second attempt when the first has failed. Should the first have won after all, its record is refused at
        the commit and the epoch runs again: nothing is lost by it.
        """
        prefix = str(replace(self.slot, attempt=0)).removesuffix("0")
        place = self.ident.partition("/")[2]
        found = line.ask("SELECT gid FROM pg_prepared_xacts WHERE starts_with(gid, %s)", (prefix,))
        return [gid for (gid,) in found if gid.partition("/")[2] == place]

    def _start_copy(self, schema: pa.Schema) -> tuple[Any, AbstractContextManager[Any], CopyStream]:
        line = self._open_line
        stream = CopyStream(schema)
        with line.within():
            cursor = line.db.cursor()
            statement = stream.statement(self.sink.where.sql, self.fit.columns)
            context = cursor.copy(statement, writer=SteadyWriter(cursor))
            copy = context.__enter__()
            copy.write(stream.start())
        self._cursor = cursor
        self._copy = (copy, context, stream)
        return self._copy

    def _finish_copy(self) -> None:
        if self._copy is None:
            return
        copy, context, stream = self._copy
        with self._open_line.within(BULK):
            copy.write(stream.finish())
            context.__exit__(None, None, None)
        self._copy = None
        if self._cursor.rowcount != self.rows:
            raise SinkError(
                f"{self._who}: {self.rows} rows were sent and {self._cursor.rowcount} were taken; nothing was prepared",
                hint="see the rules and triggers of the table",
            )

    def _enter(self, checksum: str) -> None:
        """The fence under a lock that stays until the end, and the ledger row that the rows come into sight with."""
        row = self._ledger_row(checksum)
        marks = ", ".join(f"%({column})s" for column in row)
        line = self._open_line
        try:
            with line.within():
                ((fence, is_used),) = line.ask(
                    f"""
                    WITH held AS (
                        SELECT fence FROM {self.names.fence} WHERE pipeline = %(pipeline)s AND sink = %(sink)s FOR SHARE),
                    known AS (SELECT EXISTS (SELECT 1 FROM pg_prepared_xacts WHERE gid = %(gid)s) AS is_used),
                    entered AS (
                        INSERT INTO {self.names.ledger} ({", ".join(row)}) SELECT {marks} FROM held, known
                        WHERE held.fence = %(fence)s AND NOT is_used)
                    SELECT coalesce((SELECT fence FROM held), 0), is_used FROM known
                    """,
                    {**row, "gid": self.ident},
                )
        except errors.UniqueViolation as error:
            raise self._used() from error
        self._check_fence(fence)
        if is_used:
            raise self._used()

    def _send_prepare(self) -> None:
        line = self._open_line
        self._is_sent = True
        try:
            with line.within(BULK):
                line.end(f"PREPARE TRANSACTION '{self.ident}'")
        except errors.DuplicateObject as error:
            self._is_sent = False  # it is another's
            raise self._used() from error
        except errors.ObjectNotInPrerequisiteState as error:
            raise SinkError(
                f"{self._who}: {self.sink.address}: {error.diag.message_primary}; nothing was prepared",
                hint="set `max_prepared_transactions` on the server, or use `way: spooled`",
            ) from error

    @contextmanager
    def _told(self) -> Iterator[None]:
        """After any error the transaction is of no use, and its locks are let go at once, before anybody asks for it."""
        try:
            with told(self._who, self.sink.address, "nothing of it is visible"):
                yield
        except BaseException:
            self._let_go()
            raise


def _drop(line: Line, gid: str) -> None:
    try:
        line.ask(f"ROLLBACK PREPARED '{gid}'")
    except errors.UndefinedObject:
        return
