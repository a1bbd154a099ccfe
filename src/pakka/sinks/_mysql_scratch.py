"""The scratch area for audits of a MySQL database: a table of its own, beside the target.

A second table notes whether fence and ledger were there before, so that whoever removes the scratch area, be it a later
audit, puts everything back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pakka.contract.audit import AUDIT_ID, audit_pipeline
from pakka.errors import SinkError
from pakka.sinks._columns import Place
from pakka.sinks._mysql_clerk import UNKNOWN_XID, listed, xid
from pakka.sinks._mysql_column import Target, check_engine, quoted, read_table
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_line import DriverError, Line, code_of
from pakka.sinks._scratch import SCRATCH

if TYPE_CHECKING:
    from pakka.sinks.mysql import MysqlSink

_PREFIX = "pakka_audit_"
_NOTE = "_before"
_OWN = ("pakka_fence", "pakka_ledger")


@dataclass(frozen=True)
class MysqlScratch:
    """A table of a MySQL database, and a connection of its own for every look at it."""

    audited: MysqlSink
    token: str
    sink: MysqlSink

    @classmethod
    def of(cls, sink: MysqlSink, token: str) -> MysqlScratch:
        key = (AUDIT_ID,) if sink.key else ()
        mode: Literal["append", "upsert"] = "upsert" if sink.key else "append"
        table = f"{sink.where.schema}.{_PREFIX}{token}"
        return cls(sink, token, replace(sink, table=table, create=True, key=key, mode=mode, version="", evolve=""))

    @staticmethod
    def tokens(sink: MysqlSink) -> Sequence[str]:
        with told(SCRATCH, sink.address), closing(sink.connect()) as line:
            names = _tables(line, sink.where)
        return sorted(n.removeprefix(_PREFIX).removesuffix(_NOTE) for n in names if _is_note(n))

    def make(self) -> None:
        with told(SCRATCH, self.sink.address, "it is left as it was"), closing(self.sink.connect()) as line:
            self._check_engine(line)
            had = set(_OWN) <= set(_tables(line, self.sink.where))
            line.do(
                f"CREATE TABLE {self._note.sql} (had_tables boolean NOT NULL) ENGINE=InnoDB AS SELECT %s AS had_tables",
                (had,),
            )

    def read(self) -> list[str]:
        with closing(self.sink.connect()) as line:
            if self.sink.where.table not in _tables(line, self.sink.where):
                return []
            return [value for (value,) in line.ask(f"SELECT {quoted(AUDIT_ID)} FROM {self.sink.where.sql}")]

    def stored(self) -> frozenset[str]:
        """Every table of the scratch area with the number of its rows, and every prepared branch of the audit."""
        with closing(self.sink.connect()) as line:
            mine = [n for n in _tables(line, self.sink.where) if n.startswith(f"{_PREFIX}{self.token}")]
            counts = {n: line.ask(f"SELECT count(*) FROM {self.sink.where.beside(n).sql}")[0][0] for n in mine}
            return frozenset({f"{name}, {rows} rows" for name, rows in counts.items()} | set(self._prepared(line)))

    def remove(self) -> None:
        with told(SCRATCH, self.sink.address, "it is left behind"), closing(self.sink.connect()) as line:
            for ident in self._prepared(line):
                _roll_back(line, ident)
            tables = _tables(line, self.sink.where)
            if self._note.table not in tables:
                return
            ((had,),) = line.ask(f"SELECT had_tables FROM {self._note.sql}")
            line.do(f"DROP TABLE IF EXISTS {self.sink.where.sql}")
            for name in (n for n in _OWN if n in tables):
                own = self.sink.where.beside(name).sql
                line.do(f"DELETE FROM {own} WHERE pipeline = %s", (audit_pipeline(self.token),))
                if not had and not line.ask(f"SELECT 1 FROM {own} LIMIT 1"):
                    line.do(f"DROP TABLE {own}")
            line.do(f"DROP TABLE {self._note.sql}")

    @property
    def _note(self) -> Target:
        return self.sink.where.beside(f"{self.sink.where.table}{_NOTE}")

    def _prepared(self, line: Line) -> list[str]:
        """Branches carry their names behind the numbers, and those of an audit are short enough to be whole."""
        mine = f".{audit_pipeline(self.token)}."
        return [ident for ident in listed(line) if ident.startswith("pakka.") and mine in ident]

    def _check_engine(self, line: Line) -> None:
        """An audit of a table that keeps no transactions would pass on a scratch table that does."""
        table = read_table(line, self.audited.where)
        if table is not None:
            check_engine(Place(SCRATCH, str(self.sink.address), str(self.audited.where)), table, self.audited.where)


def _tables(line: Line, target: Target) -> list[str]:
    found = line.ask(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_name LIKE 'pakka\\_%%'",
        (target.schema,),
    )
    return [name for (name,) in found]


def _is_note(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_NOTE)


def _roll_back(line: Line, ident: str) -> None:
    try:
        line.do(f"XA ROLLBACK {xid(ident)}")
    except DriverError as error:
        if code_of(error) != UNKNOWN_XID:
            raise
        if ident in listed(line):
            raise SinkError(f"{SCRATCH}: `{ident}` is still held by its writer; it is left behind") from error
