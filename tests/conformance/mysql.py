"""The MySQL sink on trial: a database of its own for each place, behind a line that can be cut."""

import datetime as dt
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt
import pymysql

from pakka.sinks.mysql import MysqlSink
from pakka.testing.contract import Cut
from tests.conformance.decode import value_of
from tests.conformance.harnesses import Shipped, Spooling
from tests.fixtures.mysql import PASSWORD, MysqlServer, branches, database_of, query
from tests.fixtures.proxy import Proxy

_NO_SERVER = "mysql://nobody@127.0.0.1:1/nowhere"
_NO_TABLE = 1146


class MysqlHarness(Shipped):
    """Rows as any client of the server reads them; staged is what the server lists as prepared."""

    name = "mysql"
    way: ClassVar[str] = "prepared"
    commit_words: ClassVar[bytes] = b"XA COMMIT"
    server: ClassVar[MysqlServer | None] = None
    """Set by the tests that run the contract. A sink can be made and looked at without one."""
    secrets = (PASSWORD, PASSWORD.replace("%2F", "/"))

    _ground: ClassVar[dict[int, tuple[str, Proxy]]] = {}
    """One database to connect to and one proxy for each server; every place is another database beside it."""

    @property
    def database(self) -> str:
        return f"place_{hashlib.sha256(str(self.place).encode()).hexdigest()[:16]}"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        if self.server is not None:
            self.ask(f"CREATE DATABASE IF NOT EXISTS {self.database} CHARACTER SET utf8mb4")

    @classmethod
    def ground(cls) -> tuple[str, Proxy]:
        assert cls.server is not None
        if cls.server.port not in cls._ground:
            cls._ground[cls.server.port] = (cls.server.create_database(), Proxy(("127.0.0.1", cls.server.port)))
        return cls._ground[cls.server.port]

    def ask(self, statement: str) -> list[Any]:
        return query(self.ground()[0], statement)

    def sink(self):
        url = _NO_SERVER
        if self.server is not None:
            direct, proxy = self.ground()
            url = self.server.url(database_of(direct), proxy.port)
        return MysqlSink(url, f"{self.database}.refund", way=self.way)

    def rows(self, schema):
        try:
            found = self.ask(f"SELECT * FROM {self.database}.refund")
        except pymysql.MySQLError as error:
            if error.args[0] != _NO_TABLE:
                raise
            return []
        return [{f.name: _value(cell, f.type) for f, cell in zip(schema, row, strict=True)} for row in found]

    def litter(self):
        return [",".join(parts) for parts in self.branches()]

    def branches(self) -> list[tuple[str, str]]:
        """Those of this place, by the mark of its database."""
        mark = hashlib.sha256(self.database.encode()).hexdigest()[:12]
        return [(gtrid, bqual) for gtrid, bqual in branches(self.ground()[0]) if mark in bqual]

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        cut, (_, proxy) = Cut(), self.ground()
        before = proxy.cuts
        proxy.cut_at(self.commit_words, is_delivered=is_done)
        yield cut
        cut.is_struck = proxy.cuts > before

    def close(self):
        for gtrid, bqual in self.branches():
            self.ask(f"XA ROLLBACK '{gtrid}', '{bqual}'")
        self.ask(f"DROP DATABASE {self.database}")


class SpooledMysqlHarness(Spooling, MysqlHarness):
    name = "mysql-spooled"
    way = "spooled"
    commit_words = b"\x03COMMIT"  # the whole statement: sessions are READ COMMITTED


def _value(raw: Any, kind: pa.DataType) -> Any:
    if pt.is_timestamp(kind) and raw is not None:
        # A date and time without a zone, in UTC if it is an instant.
        return raw.replace(tzinfo=dt.UTC) if kind.tz else raw
    if isinstance(raw, dt.timedelta):
        return (dt.datetime.min + raw).time()
    if isinstance(raw, dt.date):
        return raw
    return value_of(raw, kind)
