"""The target of a MySQL sink: there before the first row, and with the columns that the rows need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.errors import UnavailableError
from pakka.sinks._columns import Place
from pakka.sinks._mysql_column import (
    Table,
    add_columns_statement,
    check_engine,
    create_statement,
    quoted,
    read_table,
)
from pakka.sinks._mysql_fit import Fit
from pakka.sinks._mysql_index import other_keys
from pakka.sinks._mysql_line import Line
from pakka.sinks._mysql_load import Server

if TYPE_CHECKING:
    from pakka.sinks.mysql import MysqlSink

_TURN, _TURN_S = "pakka.target", 30
"""A lock of the server that nobody else takes: one writer at a time makes or changes tables."""


def make_ready(line: Line, place: Place, sink: MysqlSink, schema: pa.Schema, server: Server) -> Table:
    """Make the table, or add columns to it, if the options say so; then check what can be checked without a row.

    Not inside the rows' own transaction: the server ends one at every statement that changes a table.
    """
    target = sink.where
    table = read_table(line, target)
    if table is None and not sink.create:
        raise place.refuse(f"there is no {place}", hint="make it, or set `create: true`")
    if table is None or (sink.evolve and _statement(place, sink, table, schema, server)):
        table = _change(line, place, sink, schema, server)
    check_engine(place, table, target)
    if sink.key:
        check_key(place, sink, table, schema.names)
    return table


def _change(line: Line, place: Place, sink: MysqlSink, schema: pa.Schema, server: Server) -> Table:
    if line.ask("SELECT GET_LOCK(%s, %s)", (_TURN, _TURN_S)) != [(1,)]:
        raise UnavailableError(
            f"{place.binding}: another writer is making or changing a table in {place.path}; nothing was changed",
            hint="run again when it is done",
        )
    try:
        # Another slot may have done it while this one waited.
        statement = _statement(place, sink, read_table(line, sink.where), schema, server)
        if statement:
            line.do(statement)
        made = read_table(line, sink.where)
    finally:
        if line.is_open:
            line.ask("SELECT RELEASE_LOCK(%s)", (_TURN,))
    if made is None:
        raise place.refuse(f"{place} was made, and is gone", hint="see who drops it")
    return made


def _statement(place: Place, sink: MysqlSink, table: Table | None, schema: pa.Schema, server: Server) -> str:
    if table is None:
        return create_statement(place, sink.where, schema, sink.key, is_mariadb=server.is_mariadb)
    if not sink.evolve:
        return ""
    return add_columns_statement(place, sink.where, table, schema, is_mariadb=server.is_mariadb)


def check_key(place: Place, sink: MysqlSink, table: Table, stored: Sequence[str]) -> None:
    """There must be a unique index of the key, and none by which a row meets the row of another key."""
    if not any(index.is_whole and index.is_on(sink.key) for index in table.uniques):
        names = ", ".join(quoted(name) for name in sink.key)
        raise place.refuse(
            f"{place} has no PRIMARY KEY and no UNIQUE index on exactly ({names}), by which `{sink.mode}` finds rows",
            hint=f"`ALTER TABLE {sink.where.sql} ADD UNIQUE ({names})`",
        )
    others = other_keys(table.uniques, sink.key, table.apart(stored))
    if others:
        raise place.refuse(
            f"{place} has another unique index, `{others[0]}`: a row that meets it would change the row of another key",
            hint=f"`ALTER TABLE {sink.where.sql} DROP INDEX {quoted(others[0])}`; or leave out with `select` a column of it that is "
            "NULL by default",
        )


def fit_to(place: Place, sink: MysqlSink, schema: pa.Schema, table: Table | None, server: Server) -> Fit:
    """Rows of this schema for the table as it is."""
    if table is None:
        raise place.refuse(f"{place} is gone", hint="see who drops it")
    operation = sink.operation if sink.mode == "mirror" else ""
    return Fit(place, schema, table, key=sink.key, operation=operation, value_bytes_max=server.packet_bytes)


def stored_schema(sink: MysqlSink, schema: pa.Schema) -> pa.Schema:
    """What of the rows the table holds."""
    left_out = sink.operation if sink.mode == "mirror" else ""
    return pa.schema([field for field in schema if field.name != left_out])
