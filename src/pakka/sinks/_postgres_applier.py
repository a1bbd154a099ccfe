"""A whole epoch into PostgreSQL in one transaction: rows, ledger row and fence check, visible at one instant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors

from pakka.errors import SinkError, UnknownOutcomeError
from pakka.model.id import Binding
from pakka.postgres_line import BULK, Line
from pakka.sinks._postgres_clerk import BEGIN, PostgresClerk, fence_of, look
from pakka.sinks._postgres_column import Fit, Place, quoted, read_table
from pakka.sinks._postgres_copy import CopyStream, SteadyWriter
from pakka.sinks._postgres_error import reason_of, told
from pakka.sinks._postgres_table import make_ready
from pakka.sinks._sql_applier import OPERATIONS, SqlApplier
from pakka.sinks._two_phase import HEADER, LEDGER_EPOCHS
from pakka.sinks.spooled import Token

if TYPE_CHECKING:
    from pakka.sinks.postgres import PostgresSink

_SPOOL = "pg_temp.pakka_rows"
_ORDER = "pakka_order"
"""The running number of a row in its epoch: without a version, the last one of a key wins."""
_LOCK_MS = 30_000
_FOR_EVER_S = 0


class PostgresApplier(SqlApplier[Line]):
    """Holds the driver's connections to one database, for one sink of one pipeline."""

    def __init__(self, sink: PostgresSink, binding: Binding) -> None:
        self.sink = sink
        self.place = Place(binding, str(sink.address), str(sink.where))
        self.clerk: PostgresClerk
        super().__init__(binding, sink.open_clerk(binding))

    def open_load(self, line: Line, schema: pa.Schema) -> _Load:
        return _Load(self, line, schema)

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        with self._transaction() as line:
            with line.within():
                if not self._enter(line, token):
                    return False
            self.load(line, batches)
        return True

    def _enter(self, line: Line, token: Token) -> bool:
        """Fence and epoch are looked at under the lock of the fence row: nobody can change either before our COMMIT."""
        names = self.clerk.names
        fence = fence_of(line, names, self.key, "FOR UPDATE")
        page = look(line, names, self.key, None)
        if fence != token.fence or token.epoch <= page.newest:
            return False
        line.ask(
            f"INSERT INTO {names.ledger} VALUES (%(pipeline)s, %(sink)s, %(epoch)s, {HEADER}, 0, 0, %(rows)s, %(checksum)s, DEFAULT, "
            "%(entry)s)",
            {**self.key, "epoch": token.epoch, "rows": token.rows, "checksum": token.checksum, "entry": token.entry},
        )
        # The entry names every slot and is asked of the newest epoch only, so the older ones do without.
        mine = "pipeline = %(pipeline)s AND sink = %(sink)s AND epoch"
        line.ask(f"UPDATE {names.ledger} SET entry = NULL WHERE {mine} = %(epoch)s", {**self.key, "epoch": page.newest})
        line.ask(
            f"DELETE FROM {names.ledger} WHERE {mine} <= %(epoch)s", {**self.key, "epoch": token.epoch - LEDGER_EPOCHS}
        )
        return True

    @contextmanager
    def _transaction(self) -> Iterator[Line]:
        with told(self.binding, self.sink.address):
            line = self.clerk.lines.take()
        try:
            with told(self.binding, self.sink.address):
                with line.within():
                    line.ask(BEGIN.format(statement_s=_FOR_EVER_S, lock_ms=_LOCK_MS, idle_s=60))
                yield line
            self._commit(line)
        except BaseException:
            line.close()  # which rolls back, if it is not too late
            raise
        self.clerk.lines.give_back(line)

    def _commit(self, line: Line) -> None:
        try:
            with line.within(BULK):
                line.end("COMMIT")
        except errors.IntegrityError as error:
            # A constraint that is checked at the end: the server has rolled back.
            raise SinkError(
                f"{self.binding}: {self.sink.address}: {reason_of(error, self.sink.address)}; nothing was changed",
                hint="send such rows to the dead letters by a rule, or change the table",
            ) from error
        except psycopg.Error as error:
            # Whether it was carried out, the ledger knows, and nobody else.
            raise UnknownOutcomeError(
                f"{self.binding}: {self.sink.address}: no answer to COMMIT: {reason_of(error, self.sink.address)}"
            ) from error


class _Load:
    """Rows of one schema: straight into the target, or through a temporary table that the target is then changed from."""

    def __init__(self, applier: PostgresApplier, line: Line, schema: pa.Schema) -> None:
        self.sink = applier.sink
        self.line = line
        self.schema = schema
        self.rows = 0
        place, target = applier.place, self.sink.where
        with line.within():
            line.ask(f"LOCK TABLE {target.sql} IN ROW EXCLUSIVE MODE")
            table = read_table(line.db, target)
        if table is None:
            raise place.refuse(f"{place} is gone", hint="see who drops it")
        is_mirror = self.sink.mode == "mirror"
        extra = (self.sink.operation,) if is_mirror else ()
        self.fit = Fit(place, schema, table, key=self.sink.key, leave_out=extra)
        self.is_direct = self.sink.mode == "append"
        self.columns = [*self.fit.columns]
        into = target.sql if self.is_direct else self._make_spool(extra)
        fitted = [*self.columns, *extra]
        self.stream = CopyStream(self.fit.schema)
        with line.within():
            self.cursor = line.db.cursor()
            self.context = self.cursor.copy(self.stream.statement(into, fitted), writer=SteadyWriter(self.cursor))
            self.copy = self.context.__enter__()
            self.copy.write(self.stream.start())

    def write(self, batch: pa.RecordBatch) -> None:
        with self.line.within():
            self.copy.write(self.stream.write(self.fit(batch, deletes_in(self.fit.place, batch, self.sink))))
        self.rows += batch.num_rows

    def finish(self) -> None:
        with self.line.within(BULK):
            self.copy.write(self.stream.finish())
            self.context.__exit__(None, None, None)
        if self.cursor.rowcount != self.rows:
            raise SinkError(
                f"{self.fit.place.binding}: {self.rows} rows were sent and {self.cursor.rowcount} were taken; nothing was changed",
                hint="see the rules and triggers of the table",
            )
        for statement in () if self.is_direct else self._statements():
            # However long it takes: the line's own keep-alive finds out whether the server is still there.
            self.line.ask(statement)

    def _make_spool(self, extra: Sequence[str]) -> str:
        names = ", ".join(quoted(name) for name in self.columns)
        added = "".join(f", ADD {quoted(name)} text" for name in extra)
        with self.line.within():
            self.line.ask(f"DROP TABLE IF EXISTS {_SPOOL}")
            self.line.ask(
                f"CREATE TEMPORARY TABLE pakka_rows ON COMMIT DROP AS SELECT {names} FROM {self.sink.where.sql} WITH NO DATA"
            )
            self.line.ask(f"ALTER TABLE {_SPOOL} ADD {_ORDER} bigint GENERATED ALWAYS AS IDENTITY{added}")
        return _SPOOL

    def _statements(self) -> Iterator[str]:
        """The newest row of each key, put into the target in the order of its keys, so that two writers do not dead-lock."""
        key = ", ".join(quoted(name) for name in self.sink.key)
        names = ", ".join(quoted(name) for name in self.columns)
        version = f"{quoted(self.sink.version)} DESC NULLS LAST, " if self.sink.version else ""
        newest = f"SELECT DISTINCT ON ({key}) * FROM {_SPOOL} ORDER BY {key}, {version}{_ORDER} DESC"
        target = self.sink.where.sql
        is_mirror = self.sink.mode == "mirror"
        operation = quoted(self.sink.operation)
        if is_mirror:
            same = " AND ".join(f"t.{quoted(k)} = n.{quoted(k)}" for k in self.sink.key)
            older = f" AND {self._is_older('t', 'n')}" if self.sink.version else ""
            yield f"DELETE FROM {target} t USING ({newest}) n WHERE {same} AND n.{operation} = 'delete'{older}"
        rest = [quoted(name) for name in self.columns if name not in self.sink.key]
        update = ", ".join(f"{name} = excluded.{name}" for name in rest)
        where = f" WHERE {self._is_older('t', 'excluded')}" if self.sink.version and rest else ""
        conflict = f"DO UPDATE SET {update}{where}" if rest else "DO NOTHING"
        chosen = f"WHERE n.{operation} <> 'delete' " if is_mirror else ""
        yield (
            f"INSERT INTO {target} AS t ({names}) SELECT {names} FROM ({newest}) n {chosen}ORDER BY {key} ON CONFLICT ({key}) {conflict}"
        )

    def _is_older(self, old: str, new: str) -> str:
        version = quoted(self.sink.version)
        return f"({old}.{version} IS NULL OR {old}.{version} < {new}.{version})"


def check_target(sink: PostgresSink, place: Place, line: Line, schema: pa.Schema) -> Fit:
    """What an executor asks before it spools a row: does the table take these rows?"""
    extra = (sink.operation,) if sink.mode == "mirror" else ()
    stored = pa.schema([field for field in schema if field.name not in extra])
    table = make_ready(line, place, sink, stored)
    return Fit(place, schema, table, key=sink.key, leave_out=extra)


def deletes_in(place: Place, batch: pa.RecordBatch, sink: PostgresSink) -> pa.Array | None:
    """Which rows of a mirror only name what to delete. A change that is none of the three is refused: taken for an update it
    could bring back what was deleted.
    """
    if sink.mode != "mirror":
        return None
    found = batch.column(sink.operation).cast(pa.string())
    known = pc.is_in(found, pa.array(OPERATIONS))
    if pc.any(pc.invert(known)).as_py():
        strange = found.filter(pc.invert(known))[0].as_py()
        raise place.refuse(
            f"column `{sink.operation}` has {strange!r}, and an operation is one of {', '.join(OPERATIONS)}",
            hint="translate it in `select`, such as `CASE op WHEN 'c' THEN 'insert' ... END AS operation`",
        )
    return pc.equal(found, "delete")
