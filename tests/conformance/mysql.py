"""The MySQL sink on trial."""

import datetime as dt
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pymysql
from pymysql.constants import ER

from pakka.sinks.mysql import MysqlSink
from tests.conformance.decode import value_of
from tests.conformance.harnesses import Spooling
from tests.conformance.on_server import OnServer
from tests.fixtures.mysql import branches, connect, end_branch, mark_of


class MysqlHarness(OnServer):
    name = "mysql"
    commit_words = b"XA COMMIT"

    def run(self, statements):
        with connect(self.ground()[0]) as db, db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def sink(self):
        return MysqlSink(self.url(), f"{self.schema}.refund", way=self.way)

    def rows(self, schema):
        try:
            found = self.ask(f"SELECT * FROM {self.schema}.refund")
        except pymysql.MySQLError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise
            return []
        return [{f.name: _value(cell, f.type) for f, cell in zip(schema, row, strict=True)} for row in found]

    def litter(self):
        return [",".join(parts) for parts in self.branches()]

    def branches(self) -> list[tuple[str, str]]:
        """Those of this place, by its mark."""
        return [(gtrid, bqual) for gtrid, bqual in branches(self.ground()[0]) if self.mark() in bqual]

    def mark(self) -> str:
        """What stands in the ids of this place for its database."""
        return mark_of(self.schema)

    def close(self):
        with connect(self.ground()[0]) as db:
            for gtrid, bqual in self.branches():
                end_branch(db, "ROLLBACK", f"'{gtrid}','{bqual}',1")
        self.ask(f"DROP DATABASE {self.schema}")

    def definition(self, table):
        ((_, made),) = self.ask(f"SHOW CREATE TABLE {self.schema}.{table}")
        return made.replace("CREATE TABLE ", f"CREATE TABLE {self.schema}.", 1)

    def with_own_ids(self, script):
        return re.sub(r"(','\d+\.\d+\.)[0-9a-f]{12}", rf"\g<1>{self.mark()}", script)

    @staticmethod
    def transaction(ident, inserts):
        xid = "'{}','{}'".format(*ident.split(","))
        fence = "SELECT fence FROM {place}.pakka_fence LOCK IN SHARE MODE"
        return [f"XA START {xid}", fence, *inserts, f"XA END {xid}", f"XA PREPARE {xid}"]


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
