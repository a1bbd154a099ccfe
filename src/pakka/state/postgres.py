"""The shared state store: tables in a PostgreSQL database, for drivers on several machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg

from pakka import postgres_line
from pakka.contract.audit import Probe
from pakka.durability import postgres_switch, postgres_synchronous_commit, postgres_unlogged
from pakka.errors import PakkaError, RefusedError, UnavailableError
from pakka.postgres_line import Address, Deadline, Line
from pakka.state._store import SqlStore

# Set for each transaction and not for the session, so that a pooler such as PgBouncer may stand in between. A driver that is
# frozen inside a transaction would keep the next one waiting for its row: the idle limit ends that. A database that acknowledges
# before it has written is told to wait for the disk here; any stronger setting is left as it is.
_LIMITS = """;
    SET LOCAL statement_timeout = '30s';
    SET LOCAL idle_in_transaction_session_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
"""
_UNLOGGED = """
    SELECT relname FROM pg_class WHERE relname IN ('pakka_meta', 'pakka_pipeline', 'pakka_epoch')
    AND relpersistence = 'u' AND pg_table_is_visible(oid) ORDER BY relname
"""
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)


class PostgresStore(SqlStore):
    """A state store in a PostgreSQL database, in tables called `pakka_...` in the schema that the connection finds first."""

    begin_write: ClassVar[str] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE" + _LIMITS
    begin_read: ClassVar[str] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" + _LIMITS
    lock_row: ClassVar[str] = " FOR UPDATE"
    # Not to_regclass: it answers from a cache that does not hear of a table made while this session waited for `lock_schema`.
    has_meta: ClassVar[str] = "SELECT 1 FROM pg_class WHERE relname = 'pakka_meta' AND pg_table_is_visible(oid)"
    lock_schema: ClassVar[str] = "SELECT pg_advisory_xact_lock(7098461)"  # any number that nobody else locks
    driver_error: ClassVar[type[Exception]] = psycopg.Error

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        self._address = Address.parse(url, "state store")
        self._line: Line | None = None
        self._late = Deadline()
        super().__init__(must_exist=must_exist)

    def describe(self) -> str:
        return str(self._address)

    def is_shared(self) -> bool:
        return True

    def probes(self) -> Sequence[Probe]:
        def unlogged() -> list[str]:
            return [name for (name,) in self._read(lambda: self._execute(_UNLOGGED))]

        def switch(name: str) -> Probe:
            return Probe(name, lambda: postgres_switch(name, self._setting(name)[0]))

        return (
            switch("fsync"),
            switch("full_page_writes"),
            Probe("synchronous_commit", lambda: postgres_synchronous_commit(*self._setting("synchronous_commit"))),
            Probe("unlogged tables", lambda: postgres_unlogged(unlogged(), "all fences and decisions")),
        )

    def _setting(self, name: str) -> tuple[str, str]:
        """A setting as it is in our transactions, and as it is outside of them."""
        statement = "SELECT setting, reset_val FROM pg_settings WHERE name = ?"
        ((ours, theirs),) = self._read(lambda: self._execute(statement, (name,)))
        return ours, theirs

    def _connect(self) -> None:
        self._line = Line(self._address)

    def _is_connected(self) -> bool:
        return self._line is not None and self._line.is_open

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _execute(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if self._late.is_over or self._line is None:
            raise psycopg.OperationalError("the connection was given up")
        return self._line.ask(statement.replace("?", "%s"), params)

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        # It begins before there may be a line, and outlives one that is dropped on the way.
        self._late = Deadline(lambda: self._line.cut() if self._line else None)
        with self._late:
            yield

    def _reason_of(self, error: Exception) -> str:
        if self._late.is_over:
            return f"no answer within {postgres_line.ANSWER_S:g} s"
        return self._address.scrub(str(error))

    def _error_of(self, error: Exception) -> PakkaError:
        message = f"state store {self.describe()}: {self._reason_of(error)}; nothing was written"
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return UnavailableError(
                message, hint="this server only reads, as a standby does; name the primary with `state:`"
            )
        if isinstance(error, _PASSING):
            hint = "see that the server runs, and that host, user, password and database of `state:` are right"
            return UnavailableError(message, hint=hint)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            user = self._address.params.get("user") or "the user"
            return RefusedError(
                message, hint=f"let {user} create and write tables: `GRANT CREATE, USAGE ON SCHEMA ...`"
            )
        return RefusedError(message, hint="the message is the server's own")


class PostgresSettings(PostgresStore):
    """Reads the settings of a server, and changes nothing: it neither makes nor looks for tables."""

    def __init__(self, url: str) -> None:
        super().__init__(url, must_exist=True)

    def _connect_and_check(self) -> None:
        with self._or_drop():
            self._connect()
