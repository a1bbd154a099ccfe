"""The PostgreSQL sink on trial: a database of its own for each place, behind a line that can be cut."""

import datetime as dt
import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pyarrow.types as pt
from psycopg.types.json import set_json_loads

from pakka.sinks import _postgres_writer
from pakka.sinks.postgres import PostgresSink
from pakka.testing.contract import Cut
from tests.conformance.decode import loads, value_of
from tests.conformance.harnesses import Shipped, Spooling
from tests.fixtures.postgres import PASSWORD, PostgresServer
from tests.fixtures.proxy import Proxy

_NO_SERVER = "postgresql://nobody@127.0.0.1:1/nowhere"
_EVERY_DAY = (dt.date, dt.time, dt.datetime, Decimal, bytes, bool, int, str)


class PostgresHarness(Shipped):
    """Rows as any client of the server reads them; staged is what the server lists as prepared."""

    name = "postgres"
    way: ClassVar[str] = "prepared"
    commit_words: ClassVar[bytes] = b"COMMIT PREPARED"
    server: ClassVar[PostgresServer | None] = None
    """Set by the tests that run the contract. A sink can be made and looked at without one."""
    secrets = (PASSWORD, PASSWORD.replace("%2F", "/"))

    _ground: ClassVar[dict[int, tuple[str, Proxy]]] = {}
    """One database and one proxy for each server; every place is a schema of it, which is made in a moment."""

    @property
    def schema(self) -> str:
        return f"place_{hashlib.sha256(str(self.place).encode()).hexdigest()[:16]}"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        if self.server is not None:
            with closing(self.connect()) as db:
                db.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    @classmethod
    def ground(cls) -> tuple[str, Proxy]:
        assert cls.server is not None
        if cls.server.port not in cls._ground:
            cls._ground[cls.server.port] = (cls.server.create_database(), Proxy(("127.0.0.1", cls.server.port)))
        return cls._ground[cls.server.port]

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.ground()[0], autocommit=True)

    def sink(self):
        url = _NO_SERVER
        if self.server is not None:
            direct, proxy = self.ground()
            url = self.server.url(direct.rpartition("/")[2], proxy.port)
        return PostgresSink(url, f"{self.schema}.refund", way=self.way)

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
        with closing(self.connect()) as db:
            place = db.execute("SELECT oid FROM pg_namespace WHERE nspname = %s", (self.schema,)).fetchone()[0]
            found = db.execute("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", (f"%.{place}",)).fetchall()
        return [gid for (gid,) in found]

    def restart(self):
        for lines in _postgres_writer._lines.values():
            lines.close()
        _postgres_writer._lines.clear()

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        cut, (_, proxy) = Cut(), self.ground()
        before = proxy.cuts
        proxy.cut_at(self.commit_words, is_delivered=is_done)
        yield cut
        cut.is_struck = proxy.cuts > before

    def close(self):
        self.restart()
        with closing(self.connect()) as db:
            # A writer that nobody discarded still holds its lock on the table.
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            for gid in PostgresHarness.litter(self):
                db.execute(f"ROLLBACK PREPARED '{gid}'")
            db.execute(f"DROP SCHEMA {self.schema} CASCADE")


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
