"""The PostgreSQL sink on trial."""

import datetime as dt
import re
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.types as pt
from psycopg.types.json import set_json_loads

from pakka.sinks import _postgres_writer
from pakka.sinks.postgres import PostgresSink
from tests.conformance.decode import loads, value_of
from tests.conformance.harnesses import Spooling
from tests.conformance.on_server import OnServer

_EVERY_DAY = (dt.date, dt.time, dt.datetime, Decimal, bytes, bool, int, str)
_COLUMNS = """
    SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), 'DEFAULT ' || pg_get_expr(adbin, adrelid),
        CASE WHEN attnotnull THEN 'NOT NULL' END)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = '{0}'::regclass AND attnum > 0 ORDER BY attnum
"""
_CONSTRAINTS = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '{0}'::regclass AND contype = 'p'"


class PostgresHarness(OnServer):
    name = "postgres"
    commit_words = b"COMMIT PREPARED"

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.ground()[0], autocommit=True)

    def run(self, statements):
        with closing(self.connect()) as db:
            for statement in statements:
                cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def sink(self):
        return PostgresSink(self.url(), f"{self.schema}.refund", way=self.way)

    def rows(self, schema):
        with closing(self.connect()) as db:
            set_json_loads(loads, db)
            db.execute("SET TimeZone = 'UTC'")
            try:
                found = db.execute(f"SELECT * FROM {self.schema}.refund").fetchall()
            except psycopg.errors.UndefinedTable:
                return []
        return [{f.name: _value(cell, f.type) for f, cell in zip(schema, row, strict=True)} for row in found]

    def litter(self):
        return [gid for (gid,) in self.ask("SELECT gid FROM pg_prepared_xacts") if gid.endswith(self.mark())]

    def mark(self) -> str:
        """How the ids of this place end."""
        database = "SELECT oid FROM pg_database WHERE datname = current_database()"
        return "/{}.{}".format(*self.ask(f"SELECT ({database}), '{self.schema}'::regnamespace::oid")[0])

    def restart(self):
        for lines in _postgres_writer._lines.values():
            lines.close()
        _postgres_writer._lines.clear()

    def close(self):
        self.restart()
        # A writer that nobody discarded still holds its lock on the table.
        self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for gid in PostgresHarness.litter(self):
            self.ask(f"ROLLBACK PREPARED '{gid}'")
        self.ask(f"DROP SCHEMA {self.schema} CASCADE")

    def definition(self, table):
        name = f"{self.schema}.{table}"
        parts = [part for query in (_COLUMNS, _CONSTRAINTS) for (part,) in self.ask(query.format(name))]
        return f"CREATE TABLE {name} ({', '.join(parts)})"

    def with_own_ids(self, script):
        return re.sub(r"/\d+\.\d+'", f"{self.mark()}'", script)

    @staticmethod
    def transaction(ident, inserts):
        fence = "SELECT fence FROM {place}.pakka_fence FOR SHARE"
        return ["BEGIN", fence, *inserts, f"PREPARE TRANSACTION '{ident}'"]


class SpooledPostgresHarness(Spooling, PostgresHarness):
    name = "postgres-spooled"
    way = "spooled"
    commit_words = b"COMMIT\0"


def _value(raw: Any, kind: pa.DataType) -> Any:
    if isinstance(raw, list) and pt.is_list(kind):
        return [_value(inner, kind.value_type) for inner in raw]
    if isinstance(raw, float):
        return pa.scalar(raw, kind).as_py()
    return raw if isinstance(raw, _EVERY_DAY) and not pt.is_nested(kind) else value_of(raw, kind)
