"""A server, and a database of it for one test, with the means to be in pakka's way: locks, limits, an administrator."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import psycopg

from tests.faults.child import Child, wait_until
from tests.faults.sql.system import System

FOREIGN = (
    "nightly-batch-42",
    "pakka.other.refunds.1.1.0.1/1.1",
    "pakka.refunds.refunds.1.1.0.1",
    "pakka.refunds.refunds.1.1.0.1/1.1",
    "pakka.refunds.refunds2.1.1.0.1/1.1",
)
"""The last ones have the form of an id of ours, but for the place, or the sink."""
_OURS = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE application_name = 'pakka' AND datname = current_database()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
_END = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


class Ground:
    """A server, and a database of it for one test."""

    def __init__(self, system: System, server: Any) -> None:
        self.system = system
        self.server = server
        self.url = server.create_database()

    def ask(self, statement: str) -> list[Any]:
        return self.system.ask(self.url, statement)

    def through(self, port: int) -> str:
        """The URL by way of a proxy."""
        url: str = self.server.url(self.url.rpartition("/")[2], port)
        return url

    def prepare_foreign(self, names: tuple[str, ...] = FOREIGN) -> tuple[str, ...]:
        """Transactions of others in this database: their ids, as the server lists them."""
        self.ask("CREATE TABLE theirs (id bigint)")
        for number, name in enumerate(names):
            with closing(self.system.connect(self.url)) as db:
                self.system.prepare(db, name, f"INSERT INTO theirs VALUES ({number})")
        with closing(self.system.connect(self.url)) as db:
            return tuple(self.system.prepared(db))

    def end_prepared(self, verb: str, idents: Any) -> None:
        """As an administrator does it, by hand."""
        with closing(self.system.connect(self.url)) as db:
            for ident in idents:
                self.system.end_prepared(db, ident, verb)

    def end_sessions(self) -> None:
        """All of this database but the reader's, if they can be told apart; one that ends by itself meanwhile is ended too."""
        numbers = {number for (number,) in self.ask(_OURS[self.system.name])}
        for number in numbers:
            with suppress(self.system.trouble):
                self.ask(_END[self.system.name].format(number))
        wait_until(lambda: not self._left_of(numbers), "a session does not end")

    def _left_of(self, numbers: set[int]) -> set[int]:
        """In PostgreSQL also one that has come since; in MariaDB that may be the reader's."""
        if self.system.name == "postgres":
            return {number for (number,) in self.ask(_OURS["postgres"])}
        return numbers & {number for (number,) in self.ask("SELECT id FROM information_schema.processlist")}

    def take_every_connection(self, until: ExitStack) -> None:
        """Until the server has none left. One that can be told so by an administrator has fewer from the start."""
        if self.system.name == "mariadb":
            before = self.ask("SELECT @@global.max_connections")[0][0]
            until.callback(self.admin, f"SET GLOBAL max_connections = {before}")
            self.admin("SET GLOBAL max_connections = 10")
        while True:
            try:
                until.enter_context(closing(self.system.connect(self.url)))
            except self.system.trouble:
                return

    def admin(self, statement: str) -> None:
        """As an administrator, for whom MariaDB keeps one connection more; in PostgreSQL the user of the tests is one."""
        if self.system.name == "postgres":
            self.ask(statement)
            return
        with self.server.admin() as db:
            self.system.query(db, statement)

    def lock_table(self, db: Any, table: str) -> None:
        """Until this connection is closed."""
        if self.system.name == "postgres":
            self.system.query(db, "BEGIN")
            self.system.query(db, f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        else:
            self.system.query(db, "SET lock_wait_timeout = 10")
            self.system.query(db, f"LOCK TABLES {table} WRITE")

    def begin_as_survivor(self, db: Any) -> None:
        """Of two that wait for each other PostgreSQL ends whoever finds out first, and MariaDB whoever has written less."""
        if self.system.name == "postgres":
            self.system.query(db, "SET deadlock_timeout = '1min'")
        else:
            self.system.query(db, "CREATE TABLE theirs (id bigint)")
        self.system.query(db, "BEGIN")
        if self.system.name == "mariadb":
            rows = ", ".join(f"({n})" for n in range(5000))
            self.system.query(db, f"INSERT INTO theirs VALUES {rows}")

    @contextmanager
    def waiting_for_a_standby(self) -> Iterator[None]:
        """Every commit of the server waits for somebody who is not there."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("SET synchronous_commit = local")
            try:
                db.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                self._reload(db, "nobody")
                yield
            finally:
                db.execute("ALTER SYSTEM RESET synchronous_standby_names")
                self._reload(db, "")

    @contextmanager
    def waiting_for_a_backup(self) -> Iterator[None]:
        """MariaDB while a backup takes its last step: rows may be written, and every commit waits."""
        with self.server.admin() as db:
            for stage in ("START", "BLOCK_COMMIT"):
                self.system.query(db, f"BACKUP STAGE {stage}")
            try:
                yield
            finally:
                self.system.query(db, "BACKUP STAGE END")

    def _reload(self, db: Any, value: str) -> None:
        db.execute("SELECT pg_reload_conf()")
        wait_until(lambda: db.execute("SHOW synchronous_standby_names").fetchone() == (value,), "no reload")

    def wait_until_blocked(self, child: Child) -> None:
        """Until a session of pakka waits for a lock."""
        blocked = {
            "postgres": "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pakka' AND wait_event_type = 'Lock'",
            "mariadb": "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
        }[self.system.name]
        wait_until(lambda: child.is_over() or bool(self.ask(blocked)), "nobody waits for a lock")
        assert not child.is_over(), child.said

    def close(self) -> None:
        """Up again, whatever a test has done to it; and nothing prepared, which would keep the database."""
        if self.server._process is None:
            self.server.restart()
        with closing(self.system.connect(self.url)) as db:
            for ident in self.system.prepared(db):
                self.system.end_prepared(db, ident, "ROLLBACK")
        self.server.drop_database(self.url)
