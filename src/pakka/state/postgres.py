"""The shared state store: tables in a PostgreSQL database, for drivers on several machines."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pakka.contract.audit import Probe
from pakka.durability import postgres_switch, postgres_synchronous_commit, postgres_unlogged
from pakka.errors import ConfigError, PakkaError, RefusedError, UnavailableError
from pakka.state._store import SqlStore

ANSWER_S = 60.0
"""How long a whole transaction may take before its connection is cut from this side.

The server's own limits end what waits or idles there. A frozen server, or a line that swallows every packet, ends nothing.
"""

# What the URL says itself goes before these.
_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "pakka",
}
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
        try:
            self._params: dict[str, Any] = {**_CONNECT, **conninfo_to_dict(url)}
        except (psycopg.ProgrammingError, UnicodeDecodeError):
            # The text of the error may quote the password, so it is neither shown nor chained.
            raise ConfigError(
                "state store: the PostgreSQL URL cannot be read",
                hint="it should look like `postgresql://USER:PASSWORD@HOST:5432/DATABASE`, with `%40` for an `@` in a password",
            ) from None
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None
        self._line: socket.socket | None = None
        self._is_late = False
        super().__init__(must_exist=must_exist)

    def describe(self) -> str:
        user, host, port = (str(self._params.get(k) or "") for k in ("user", "host", "port"))
        place = f"{user}@{host}" if user else host
        return f"postgresql://{place}{':' if port else ''}{port}/{self._params.get('dbname') or ''}"

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
        # No server-side prepared statements: poolers that hand out another server connection lose them.
        self._db = psycopg.connect(make_conninfo(**self._params), autocommit=True, prepare_threshold=None)
        self._line = socket.socket(fileno=os.dup(self._db.fileno()))

    def _is_connected(self) -> bool:
        return self._db is not None and not self._db.closed

    def _drop(self) -> None:
        db, line, self._db, self._line = self._db, self._line, None, None
        if line is not None:
            line.close()
        if db is not None:
            db.close()

    def _execute(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if self._is_late or self._db is None:
            raise psycopg.OperationalError("the connection was given up")
        cursor = self._db.execute(statement.replace("?", "%s"), params or None)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        self._is_late = False
        timer = threading.Timer(ANSWER_S, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # or it could still strike, at the next transaction

    def _cut(self) -> None:
        """Wakes the thread that waits for an answer: it finds its connection closed."""
        self._is_late = True
        line = self._line
        if line is not None:
            with suppress(OSError):  # closed in this very moment, which is what was wanted
                line.shutdown(socket.SHUT_RDWR)

    def _reason_of(self, error: Exception) -> str:
        if self._is_late:
            return f"no answer within {ANSWER_S:g} s"
        text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        secret = str(self._params.get("password") or "")
        for form in {secret, quote(secret, safe="")} - {""}:
            text = text.replace(form, "***")
        return text

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
            user = self._params.get("user") or "the user"
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
