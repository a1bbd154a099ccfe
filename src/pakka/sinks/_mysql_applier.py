"""A whole epoch into MySQL in one transaction: rows, ledger row and fence check, visible at one instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.errors import UnknownOutcomeError
from pakka.model.id import Binding
from pakka.sinks import _mysql_clerk
from pakka.sinks._columns import Place
from pakka.sinks._mysql_clerk import MysqlClerk, fence_of, forget, look
from pakka.sinks._mysql_column import Column, Table, hold_tables, quoted, read_table
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_index import fold
from pakka.sinks._mysql_line import BULK_ANSWER_S, DriverError, Line, lines_of, text_of
from pakka.sinks._mysql_load import Loader, Server
from pakka.sinks._mysql_table import check_key
from pakka.sinks._sql_applier import SqlApplier
from pakka.sinks._two_phase import HEADER, LEDGER_EPOCHS
from pakka.sinks.spooled import Token

if TYPE_CHECKING:
    from pakka.sinks.mysql import MysqlSink

_SPOOL = "pakka_rows"
_ORDER = "pakka_order"
"""The running number of a row in its epoch: without a version, the last one of a key wins."""
_RANK = "pakka_rank"
_LOCK_WAIT_S = 30


class MysqlApplier(SqlApplier[Line]):
    """Holds the driver's connections to one database, for one sink of one pipeline."""

    def __init__(self, sink: MysqlSink, binding: Binding) -> None:
        self.sink = sink
        self.place = Place(binding, str(sink.address), str(sink.where))
        self.lines = lines_of(sink.address, BULK_ANSWER_S)
        self.clerk: MysqlClerk
        super().__init__(binding, sink.open_clerk(binding))

    def open_load(self, line: Line, schema: pa.Schema) -> _Load:
        return _Load(self, line, schema)

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        with self._transaction() as line:
            if not self._enter(line, token):
                return False
            self.load(line, batches)
        return True

    def close(self) -> None:
        super().close()
        self.lines.close()

    def _enter(self, line: Line, token: Token) -> bool:
        """Fence and epoch are looked at under the lock of the fence row: nobody can change either before our COMMIT."""
        names = self.clerk.names
        fence = fence_of(line, names, self.key, "FOR UPDATE")
        page = look(line, names, self.key, None)
        if fence != token.fence or token.epoch <= page.newest:
            return False
        hold_tables(line, self.place, names.own)
        line.do(
            f"INSERT INTO {names.ledger} (pipeline, sink, epoch, slot, fence, attempt, `rows`, checksum, entry) VALUES "
            f"(%(pipeline)s, %(sink)s, %(epoch)s, {HEADER}, 0, 0, %(rows)s, %(checksum)s, %(entry)s)",
            {**self.key, "epoch": token.epoch, "rows": token.rows, "checksum": token.checksum, "entry": token.entry},
        )
        # The entry names every slot and is asked of the newest epoch only, so the older ones do without.
        line.do(
            f"UPDATE {names.ledger} SET entry = NULL WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND epoch = %(epoch)s "
            f"AND slot = {HEADER} AND fence = 0 AND attempt = 0",
            {**self.key, "epoch": page.newest},
        )
        forget(line, names, self.key, token.epoch - LEDGER_EPOCHS)
        return True

    @contextmanager
    def _transaction(self) -> Iterator[Line]:
        with told(self.binding, self.sink.address):
            line = self.lines.take()
        try:
            with told(self.binding, self.sink.address):
                line.do(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_WAIT_S}, wait_timeout = {_mysql_clerk.IDLE_S}")
                line.do("START TRANSACTION")
                yield line
            self._commit(line)
        except BaseException:
            line.close()  # which rolls back, if it is not too late
            raise
        self.lines.give_back(line)

    def _commit(self, line: Line) -> None:
        try:
            line.do("COMMIT")
        except DriverError as error:
            # Whether it was carried out, the ledger knows, and nobody else.
            raise UnknownOutcomeError(
                f"{self.binding}: {self.sink.address}: no answer to COMMIT: {text_of(error)}"
            ) from error


class _Load:
    """Rows of one schema: straight into the target, or through a temporary table that the target is then changed from."""

    def __init__(self, applier: MysqlApplier, line: Line, schema: pa.Schema) -> None:
        self.sink = applier.sink
        self.place = applier.place
        self.line = line
        self.schema = schema
        self.is_mirror = self.sink.mode == "mirror"
        names = [name for name in schema.names if not (self.is_mirror and name == self.sink.operation)]
        self.columns = self._find(names)
        self.is_direct = self.sink.mode == "append"
        into = self.sink.where.sql if self.is_direct else self._make_spool()
        self.loader = Loader(self.place, line, Server.of(line), into)

    def write(self, batch: pa.RecordBatch) -> None:
        self.loader.write(batch)

    def finish(self) -> None:
        self.loader.flush()
        for statement in () if self.is_direct else self._statements():
            self.line.do(statement)

    def _find(self, names: list[str]) -> list[Column]:
        hold_tables(self.line, self.place, [self.sink.where])
        table = read_table(self.line, self.sink.where)
        if table is None:
            raise self.place.refuse(f"{self.place} is gone", hint="see who drops it")
        if self.sink.key:
            # Somebody may have added an index since the rows were spooled.
            check_key(self.place, self.sink, table, names)
        return [self._column(table, name) for name in names]

    def _column(self, table: Table, name: str) -> Column:
        column = table.find(name)
        if column is None:
            raise self.place.refuse(
                f"{self.place} has lost its column `{name}` since the rows were spooled",
                hint="add it again; then run again",
            )
        return column

    def _make_spool(self) -> str:
        """Where rows wait beside the target: with its types and collations, so that what is one key there is one here."""
        parts = [f"{quoted(_ORDER)} bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY"]
        parts += [column.sql for column in self.columns]
        if self.is_mirror:
            parts.append(f"{quoted(self.sink.operation)} varchar(10) CHARACTER SET ascii NOT NULL")
        spool = self.sink.where.beside(_SPOOL).sql
        self.line.do(f"DROP TEMPORARY TABLE IF EXISTS {spool}")
        self.line.do(f"CREATE TEMPORARY TABLE {spool} ({', '.join(parts)}) ENGINE=InnoDB")
        return spool

    def _statements(self) -> Iterator[str]:
        """The newest row of each key, put into the target in the order of its keys, so that two writers do not dead-lock."""
        spool, target = self.sink.where.beside(_SPOOL).sql, self.sink.where.sql
        keys = [quoted(name) for name in self.sink.key]
        version = f"{quoted(self.sink.version)} DESC, " if self.sink.version else ""
        newest = (
            f"(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {version}{_ORDER} DESC) "
            f"AS {_RANK} FROM {spool}) AS ranked WHERE {_RANK} = 1) AS n"
        )
        operation = f"n.{quoted(self.sink.operation)}"
        if self.is_mirror:
            same = " AND ".join(f"t.{key} = n.{key}" for key in keys)
            older = f" AND {self._is_older('t')}" if self.sink.version else ""
            yield f"DELETE t FROM {target} AS t JOIN {newest} ON {same} WHERE {operation} = 'delete'{older}"
        names = [quoted(column.name) for column in self.columns]
        chosen = f"WHERE {operation} <> 'delete' " if self.is_mirror else ""
        yield (
            f"INSERT INTO {target} ({', '.join(names)}) SELECT {', '.join(f'n.{name}' for name in names)} FROM {newest} {chosen}"
            f"ORDER BY {', '.join(f'n.{key}' for key in keys)} ON DUPLICATE KEY UPDATE {self._updates()}"
        )
        yield f"DROP TEMPORARY TABLE {spool}"

    def _updates(self) -> str:
        """What of the row that is there gives way. Assignments see the ones before them, so the version comes last."""
        keys = {fold(name) for name in self.sink.key}
        rest = [column.name for column in self.columns if fold(column.name) not in keys]
        rest.sort(key=lambda name: fold(name) == fold(self.sink.version))
        target = quoted(self.sink.where.table)
        if not rest:
            first = quoted(self.sink.key[0])
            return f"{target}.{first} = {target}.{first}"
        if not self.sink.version:
            return ", ".join(f"{target}.{quoted(name)} = n.{quoted(name)}" for name in rest)
        is_older = self._is_older(target)
        return ", ".join(
            f"{target}.{quoted(name)} = IF({is_older}, n.{quoted(name)}, {target}.{quoted(name)})" for name in rest
        )

    def _is_older(self, old: str) -> str:
        version = quoted(self.sink.version)
        return f"({old}.{version} IS NULL OR {old}.{version} < n.{version})"
