"""The scratch area for audits of a PostgreSQL database: a table of its own, beside the target.

A second table notes whether fence and ledger were there before, so that whoever removes the scratch area, be it a later
audit, puts everything back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pakka.contract.audit import AUDIT_ID, audit_pipeline
from pakka.postgres_line import Line
from pakka.sinks._postgres_column import Target
from pakka.sinks._postgres_error import told
from pakka.sinks._scratch import SCRATCH

if TYPE_CHECKING:
    from pakka.sinks.postgres import PostgresSink

_PREFIX = "pakka_audit_"
_NOTE = "_before"
_TABLES = """
    SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname = coalesce(%s, current_schema()) AND starts_with(c.relname::text, 'pakka_')
"""


@dataclass(frozen=True)
class PostgresScratch:
    """A table of a PostgreSQL database, and a connection of its own for every look at it."""

    audited: PostgresSink
    token: str
    sink: PostgresSink

    @classmethod
    def of(cls, sink: PostgresSink, token: str) -> PostgresScratch:
        name = f"{sink.where.schema}.{_PREFIX}{token}" if sink.where.schema else f"{_PREFIX}{token}"
        key = (AUDIT_ID,) if sink.key else ()
        mode: Literal["append", "upsert"] = "upsert" if sink.key else "append"
        return cls(sink, token, replace(sink, table=name, create=True, key=key, mode=mode, version="", evolve=""))

    @staticmethod
    def tokens(sink: PostgresSink) -> Sequence[str]:
        with told(SCRATCH, sink.address), closing(sink.connect()) as line, line.within():
            names = _tables(line, sink.where)
        return sorted(n.removeprefix(_PREFIX).removesuffix(_NOTE) for n in names if _is_note(n))

    def make(self) -> None:
        with self._transaction() as line:
            had = set(self._own) <= set(_tables(line, self.sink.where))
            line.ask(f"CREATE TABLE {self._note.sql} (had_tables boolean NOT NULL)")
            line.ask(f"INSERT INTO {self._note.sql} VALUES ({had})")

    def read(self) -> list[str]:
        with closing(self.sink.connect()) as line, line.within():
            if self.sink.where.table not in _tables(line, self.sink.where):
                return []
            return [value for (value,) in line.ask(f"SELECT {AUDIT_ID} FROM {self.sink.where.sql}")]

    def stored(self) -> frozenset[str]:
        """Every table of the scratch area with the number of its rows, and every prepared transaction of the audit."""
        with closing(self.sink.connect()) as line, line.within():
            mine = [n for n in _tables(line, self.sink.where) if n.startswith(f"{_PREFIX}{self.token}")]
            tables = {f"{n}, {line.ask(f'SELECT count(*) FROM {self._beside(n).sql}')[0][0]} rows" for n in mine}
            return frozenset(tables | set(self._prepared(line)))

    def remove(self) -> None:
        with told(SCRATCH, self.sink.address, "it is left behind"), closing(self.sink.connect()) as line, line.within():
            for gid in self._prepared(line):
                line.ask(f"ROLLBACK PREPARED '{gid}'")
        with self._transaction() as line:
            tables = _tables(line, self.sink.where)
            if self._note.table not in tables:
                return
            ((had,),) = line.ask(f"SELECT had_tables FROM {self._note.sql}")
            line.ask(f"DROP TABLE IF EXISTS {self.sink.where.sql}")
            for name in (n for n in self._own if n in tables):
                own = self._beside(name).sql
                line.ask(f"DELETE FROM {own} WHERE pipeline = '{audit_pipeline(self.token)}'")
                if not had and not line.ask(f"SELECT 1 FROM {own} LIMIT 1"):
                    line.ask(f"DROP TABLE {own}")
            line.ask(f"DROP TABLE {self._note.sql}")

    @property
    def _own(self) -> tuple[str, str]:
        return "pakka_fence", "pakka_ledger"

    @property
    def _note(self) -> Target:
        return self._beside(f"{self.sink.where.table}{_NOTE}")

    def _beside(self, name: str) -> Target:
        return replace(self.sink.where, table=name)

    def _prepared(self, line: Line) -> Iterator[str]:
        mine = f"pakka.{audit_pipeline(self.token)}."
        found = line.ask(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)", (mine,)
        )
        return iter([gid for (gid,) in found])

    @contextmanager
    def _transaction(self) -> Iterator[Line]:
        with (
            told(SCRATCH, self.sink.address, "it is left as it was"),
            closing(self.sink.connect()) as line,
            line.within(),
        ):
            line.ask("BEGIN; SET LOCAL lock_timeout = '10s'")
            yield line
            line.ask("COMMIT")


def _tables(line: Line, target: Target) -> list[str]:
    return [name for (name,) in line.ask(_TABLES, (target.schema,))]


def _is_note(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_NOTE)
