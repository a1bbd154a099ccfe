"""A whole epoch into MySQL in one transaction: rows, ledger row and fence check, visible at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.errors import PakkaError, UnknownOutcomeError
from pakka.model.id import Binding
from pakka.sinks import _mysql_clerk
from pakka.sinks._columns import Place
from pakka.sinks._mysql_clerk import MysqlClerk, fence_of, forget, look
from pakka.sinks._mysql_column import Column, Table, hold_tables, quoted, read_table
from pakka.sinks._mysql_culprit import Lineup
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_index import fold
from pakka.sinks._mysql_line import BULK_ANSWER_S, DriverError, Line, code_of, lines_of, text_of
from pakka.sinks._mysql_load import OF_A_ROW, Loader, Server, shown, trouble
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
_RANKS = "pakka_ranks"
_LOCK_WAIT_S = 30


class MysqlApplier(SqlApplier[Line]):
    """Holds the driver's connections to one database, for one sink of one pipeline."""

    def __init__(self, sink: MysqlSink, binding: Binding) -> None:
        self.sink = sink
        self.place = Place(binding, str(sink.address), str(sink.where))
        self.lines = lines_of(sink.address, BULK_ANSWER_S)
        self.blamed: dict[str, str] = {}
        """By what the server has said of an epoch that waits, the same with the row: it is asked again, and a search takes time."""
        self.clerk: MysqlClerk
        super().__init__(binding, sink.open_clerk(binding))

    def open_load(self, line: Line, schema: pa.Schema) -> _Load:
        return _Load(self, line, schema)

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        with self._transaction() as line:
            if not self._enter(line, token):
                return False
            self.load(line, batches)
        self.blamed.clear()
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
        self.blamed = applier.blamed
        self.line = line
        self.schema = schema
        self.is_mirror = self.sink.mode == "mirror"
        names = [name for name in schema.names if not (self.is_mirror and name == self.sink.operation)]
        self.columns = self._find(names)
        self.is_direct = self.sink.mode == "append"
        self.spool = self.sink.where.beside(_SPOOL).sql
        into = self.sink.where.sql if self.is_direct else self._make_spool()
        self.loader = Loader(self.place, line, Server.of(line), into)

    def write(self, batch: pa.RecordBatch) -> None:
        self.loader.write(batch)

    def finish(self) -> None:
        self.loader.flush()
        if self.is_direct:
            return
        for statement in (self._delete, self._insert) if self.is_mirror else (self._insert,):
            try:
                self.line.do(statement(self._newest("*")))
            except DriverError as error:
                if code_of(error) not in OF_A_ROW:
                    raise
                if (found := self._blame(statement, error)) is not None:
                    raise found from error
                raise
        self.line.do(f"DROP TEMPORARY TABLE {self.spool}")

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
        self.line.do(f"DROP TEMPORARY TABLE IF EXISTS {self.spool}")
        self.line.do(f"CREATE TEMPORARY TABLE {self.spool} ({', '.join(parts)}) ENGINE=InnoDB")
        return self.spool

    @property
    def _keys(self) -> str:
        return ", ".join(f"n.{quoted(name)}" for name in self.sink.key)

    def _newest(self, columns: str) -> str:
        """These columns of the newest row of each key."""
        keys = ", ".join(quoted(name) for name in self.sink.key)
        version = f"{quoted(self.sink.version)} DESC, " if self.sink.version else ""
        return (
            f"(SELECT * FROM (SELECT {columns}, row_number() OVER (PARTITION BY {keys} ORDER BY {version}{_ORDER} DESC) "
            f"AS {_RANK} FROM {self.spool}) AS ranked WHERE {_RANK} = 1) AS n"
        )

    def _delete(self, rows: str) -> str:
        same = " AND ".join(f"t.{quoted(key)} = n.{quoted(key)}" for key in self.sink.key)
        older = f" AND {self._is_older('t')}" if self.sink.version else ""
        return (
            f"DELETE t FROM {self.sink.where.sql} AS t JOIN {rows} ON {same} "
            f"WHERE n.{quoted(self.sink.operation)} = 'delete'{older}"
        )

    def _insert(self, rows: str) -> str:
        """In the order of its keys, so that two writers do not dead-lock."""
        names = [quoted(column.name) for column in self.columns]
        return (
            f"INSERT INTO {self.sink.where.sql} ({', '.join(names)}) SELECT {', '.join(f'n.{name}' for name in names)} FROM {rows} "
            f"{self._kept}ORDER BY {self._keys} ON DUPLICATE KEY UPDATE {self._updates()}"
        )

    @property
    def _kept(self) -> str:
        return f"WHERE n.{quoted(self.sink.operation)} <> 'delete' " if self.is_mirror else ""

    def _blame(self, statement: Callable[[str], str], error: DriverError) -> PakkaError | None:
        """The error with the row that a statement fails for; none if no row of them is refused any more."""
        told = text_of(error)
        if told not in self.blamed:
            is_insert = statement == self._insert
            names = [*self.sink.key, _ORDER, *([self.sink.operation] if self.is_mirror else ())]
            newest = f"{self._newest(', '.join(map(quoted, names)))} {self._kept if is_insert else ''}"
            ordered = f"SELECT n.{_ORDER} FROM {newest} ORDER BY {self._keys}"
            lineup = Lineup(self.line, self.sink.where.beside(_RANKS).sql, self.spool, _ORDER, ordered)
            found = lineup.find(statement, is_ordered=is_insert)
            if found is None:
                return None
            row, error = found
            names = [column.name for column in self.columns]
            (cells,) = self.line.ask(f"SELECT {', '.join(f'n.{quoted(name)}' for name in names)} FROM {row}")
            self.blamed[told] = f"{text_of(error)}; the row is {shown([*zip(names, cells, strict=True)])}"
        return trouble(self.place, {code_of(error)}, self.blamed[told])

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
