"""The database servers, as any client of theirs sees them: what a test, the judge and a reader ask without pakka."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar

import psycopg
import pymysql
from psycopg import errors
from pymysql.constants import ER

from pakka.contract.sink import Sink
from tests.faults.judge import Values
from tests.fixtures import mysql


class System(ABC):
    """One kind of server. A connection is opened and closed by whoever asks."""

    name: ClassVar[str]
    trouble: ClassVar[type[Exception]]
    """What its library raises."""
    own: ClassVar[tuple[str, ...]] = ("pakka_fence", "pakka_ledger")
    words: ClassVar[dict[str, bytes]]
    """What a client sends to `prepare` a transaction, to `finish` a prepared one, and to `commit` a usual one."""

    @abstractmethod
    def connect(self, url: str) -> Any:
        """A connection in autocommit."""

    @abstractmethod
    def query(self, db: Any, statement: str) -> list[Values]:
        """One statement, and its rows."""

    @abstractmethod
    def is_missing(self, error: Exception) -> bool:
        """There is no such table."""

    @abstractmethod
    def sink(self, url: str, table: str, **options: Any) -> Sink:
        """pakka's sink for it."""

    @abstractmethod
    def prepared(self, db: Any) -> list[str]:
        """Every prepared transaction of this database, whoever has prepared it."""

    @abstractmethod
    def prepare(self, db: Any, name: str, statement: str) -> None:
        """Prepare a transaction of this one statement."""

    @abstractmethod
    def end_prepared(self, db: Any, ident: str, verb: str) -> None:
        """As an administrator does it by hand: `COMMIT` or `ROLLBACK`."""

    def ask(self, url: str, statement: str) -> list[Values]:
        with closing(self.connect(url)) as db:
            return self.query(db, statement)

    def rows(self, db: Any, table: str, columns: Sequence[str]) -> list[Values]:
        """One statement, so that the server shows one instant; none if there is no such table yet."""
        try:
            return self.query(db, f"SELECT {', '.join(columns)} FROM {table}")
        except self.trouble as error:
            if self.is_missing(error):
                return []
            raise


class Postgres(System):
    name = "postgres"
    trouble = psycopg.Error
    words: ClassVar = {"prepare": b"PREPARE TRANSACTION", "finish": b"COMMIT PREPARED", "commit": b"COMMIT\0"}

    def connect(self, url: str) -> Any:
        return psycopg.connect(url, autocommit=True, connect_timeout=5, application_name="someone else")

    def query(self, db: Any, statement: str) -> list[Values]:
        cursor = db.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def is_missing(self, error: Exception) -> bool:
        return isinstance(error, errors.UndefinedTable)

    def sink(self, url: str, table: str, **options: Any) -> Sink:
        from pakka.sinks.postgres import PostgresSink

        return PostgresSink(url, table, **options)

    def prepared(self, db: Any) -> list[str]:
        found = self.query(db, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid")
        return [gid for (gid,) in found]

    def prepare(self, db: Any, name: str, statement: str) -> None:
        self.query(db, f"BEGIN; {statement}; PREPARE TRANSACTION '{name}'")

    def end_prepared(self, db: Any, ident: str, verb: str) -> None:
        self.query(db, f"{verb} PREPARED '{ident}'")


class MariaDb(System):
    name = "mariadb"
    trouble = pymysql.MySQLError
    words: ClassVar = {"prepare": b"XA PREPARE", "finish": b"XA COMMIT", "commit": b"\x03COMMIT"}

    def connect(self, url: str) -> Any:
        return mysql.connect(url).__enter__()

    def query(self, db: Any, statement: str) -> list[Values]:
        with db.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def is_missing(self, error: Exception) -> bool:
        return error.args[0] == 1146

    def sink(self, url: str, table: str, **options: Any) -> Sink:
        from pakka.sinks.mysql import MysqlSink

        return MysqlSink(url, table, **options)

    def prepared(self, db: Any) -> list[str]:
        """Of the whole server, which has one list for all databases, as the text that ends them."""
        return sorted(mysql.xids(db))

    def prepare(self, db: Any, name: str, statement: str) -> None:
        gtrid, _, bqual = name.partition("/")
        xid = f"'{gtrid}','{bqual}'"
        for step in (f"XA START {xid}", statement, f"XA END {xid}", f"XA PREPARE {xid}"):
            self.query(db, step)

    def end_prepared(self, db: Any, ident: str, verb: str) -> None:
        try:
            mysql.end_branch(db, verb, ident)
        except pymysql.MySQLError as error:
            # A branch that wrote nothing is rolled back when its writer leaves. It is listed until somebody ends it, who is told so.
            if verb != "ROLLBACK" or error.args[0] != ER.XA_RBROLLBACK:
                raise


SYSTEMS: dict[str, System] = {system.name: system for system in (Postgres(), MariaDb())}
