"""Rows into a table of a real server, the way the sink does it: read the table, fit, copy."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa

from pakka.model.id import Binding
from pakka.sinks._postgres_column import Fit, Place, Table, Target, create_statements, read_table
from pakka.sinks._postgres_copy import CopyStream, SteadyWriter

PLACE = Place(Binding("refunds", "audit", "/spool"), "postgresql://server/db", "t")
TARGET = Target(None, "t")


def column(values: Sequence[Any], kind: pa.DataType, name: str = "x") -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], schema=pa.schema([(name, kind)]))


def make(db: psycopg.Connection, schema: pa.Schema, key: Sequence[str] = (), target: Target = TARGET) -> None:
    for statement in create_statements(target, schema, key):
        db.execute(statement)


def the_table(db: psycopg.Connection, target: Target = TARGET) -> Table:
    table = read_table(db, target)
    assert table is not None
    return table


def fit_of(db: psycopg.Connection, schema: pa.Schema, target: Target = TARGET, **options: Any) -> Fit:
    return Fit(PLACE, schema, the_table(db, target), **options)


def copy(db: psycopg.Connection, *batches: pa.RecordBatch, target: Target = TARGET, **options: Any) -> None:
    fit = fit_of(db, batches[0].schema, target, **options)
    fitted = [fit(batch) for batch in batches]
    assert all(batch.schema == fit.schema for batch in fitted)
    stream = CopyStream(fit.schema)
    cursor = db.cursor()
    with cursor.copy(stream.statement(target.sql, fit.columns), writer=SteadyWriter(cursor)) as data:
        for part in (stream.start(), *map(stream.write, fitted), stream.finish()):
            data.write(part)
    assert cursor.rowcount == sum(batch.num_rows for batch in batches)
