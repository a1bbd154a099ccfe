"""The target of a PostgreSQL sink: there before the first row, and with the columns that the rows need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.postgres_line import Line
from pakka.sinks._postgres_column import Place, Table, add_columns_statements, create_statements, read_table

if TYPE_CHECKING:
    from pakka.sinks.postgres import PostgresSink

_LOCK_TARGET = 7098463
"""Any number that nobody else locks: one writer at a time makes or changes tables."""


def is_ready(sink: PostgresSink, table: Table | None, schema: pa.Schema) -> bool:
    """Whether the table is there, with all the columns that it is to have."""
    return table is not None and not (sink.evolve and add_columns_statements(sink.where, table, schema))


def make_ready(line: Line, place: Place, sink: PostgresSink, schema: pa.Schema) -> Table:
    """Make the table, or add columns to it, if the options say so. In a transaction of its own, before any row: inside the
    rows' own one it would keep every other slot waiting until the commit.
    """
    target = sink.where
    table = read_table(line.db, target)
    if table is not None and is_ready(sink, table, schema):
        return table
    if table is None and not sink.create:
        raise place.refuse(f"there is no {place}", hint="make it, or set `create: true`")
    line.ask(f"BEGIN; SET LOCAL lock_timeout = '30s'; SELECT pg_advisory_xact_lock({_LOCK_TARGET})")
    # Another slot may have done it while this one waited.
    table = read_table(line.db, target)
    statements = (
        create_statements(target, schema, sink.key) if table is None else add_columns_statements(target, table, schema)
    )
    for statement in statements:
        line.ask(statement)
    line.ask("COMMIT")
    made = read_table(line.db, target)
    if made is None:
        raise place.refuse(f"{place} was made, and is gone", hint="see who drops it")
    return made
