"""What a MySQL or MariaDB server says of itself, of a sink's target and of pakka's own tables. Reading it changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from pakka.sinks._mysql_index import UniqueIndex, read_indexes
from pakka.sinks._mysql_line import DriverError, Line, code_of
from pakka.sinks._probing import OWN_KEYS

SETTINGS = (
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_force_recovery",
    "innodb_read_only",
    "innodb_rollback_on_timeout",
    "local_infile",
    "log_bin",
    "max_connections",
    "read_only",
    "sql_mode",
    "super_read_only",
    "sync_binlog",
    "wsrep_on",
)
_NO_RIGHT = frozenset({1044, 1142, 1227, 1401})
"""The server's numbers for what a user may not do; 1401 is how MySQL refuses XA RECOVER."""

_SETTINGS = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(['%s'] * len(SETTINGS))})"
_TABLES = "SELECT TABLE_NAME, TABLE_TYPE, coalesce(ENGINE, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN (%s, %s, %s)"
_ENGINES = "SELECT ENGINE, TRANSACTIONS, XA FROM information_schema.ENGINES"
# Not joined: a server looks into the form of all its tables to join what it tells of itself.
_NUMBERED = """
    SELECT COLUMN_NAME FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND EXTRA LIKE '%%auto_increment%%'
"""
_TRIGGERS = """
    SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
    WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s ORDER BY TRIGGER_NAME
"""
# Branches that no session holds; a server tells the age of a transaction, but not which branch it is.
_OLDEST_BRANCH = """
    SELECT max(timestampdiff(SECOND, trx_started, now())) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = 0
"""


class Version(NamedTuple):
    """A server's version. MariaDB counts on its own."""

    is_mariadb: bool
    number: tuple[int, int, int]
    text: str

    @classmethod
    def parse(cls, text: str) -> Version:
        """Replicas of MariaDB are shown `5.5.5-10.11.6-MariaDB`, so that old ones believe them."""
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", text.removeprefix("5.5.5-"))
        number = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
        return cls("mariadb" in text.lower(), number, text)


class Relation(NamedTuple):
    """A table, or what stands where one is looked for."""

    name: str
    kind: str
    engine: str


class Engine(NamedTuple):
    """A storage engine, as the server tells of it."""

    has_transactions: bool
    has_xa: bool


class Branches(NamedTuple):
    """The prepared branches of the server, of whomever they are."""

    ids: Sequence[bytes]
    oldest_s: float | None
    """None: this user may not know."""


@dataclass(frozen=True)
class Facts:
    """One look at a server."""

    version: Version
    settings: Mapping[str, str]
    session_sql_mode: str
    user: str
    """`name@host`, as the server has it."""
    connected: int
    target: Relation | None
    own: Sequence[Relation]
    engines: Mapping[str, Engine]
    indexes: Sequence[UniqueIndex]
    numbered: Sequence[str]
    """Columns of the target that the server numbers itself."""
    triggers: Sequence[str]
    branches: Branches | None
    """None: this user may not list them."""


def read_facts(open_line: Callable[[], Line], database: str, table: str) -> Facts:
    """Read everything with one connection."""
    with closing(open_line()) as line:
        tables = {t.name: t for t in (Relation(*row) for row in line.ask(_TABLES, (database, table, *OWN_KEYS)))}
        # Some servers take no account of upper and lower case in the names of tables.
        is_target = {name for name in tables if name not in OWN_KEYS}
        ((version, sql_mode, user),) = line.ask("SELECT VERSION(), @@SESSION.sql_mode, CURRENT_USER()")
        return Facts(
            version=Version.parse(version),
            settings={name.lower(): str(value) for name, value in line.ask(_SETTINGS, SETTINGS)},
            session_sql_mode=sql_mode,
            user=user,
            connected=int(line.ask("SHOW GLOBAL STATUS LIKE 'Threads_connected'")[0][1]),
            target=tables[min(is_target)] if is_target else None,
            own=[tables[name] for name in OWN_KEYS if name in tables],
            engines={name: Engine(t == "YES", xa == "YES") for name, t, xa in line.ask(_ENGINES)},
            indexes=read_indexes(line, database, [table, *OWN_KEYS]),
            numbered=[name for (name,) in line.ask(_NUMBERED, (database, table))],
            triggers=[name for (name,) in line.ask(_TRIGGERS, (database, table))],
            branches=_branches(line),
        )


def _branches(line: Line) -> Branches | None:
    try:
        listed = line.ask("XA RECOVER")
    except DriverError as error:
        if code_of(error) not in _NO_RIGHT:
            raise
        return None
    ids = [data if isinstance(data, bytes) else str(data).encode() for *_, data in listed]
    try:
        ((oldest,),) = line.ask(_OLDEST_BRANCH)
    except DriverError as error:
        if code_of(error) not in _NO_RIGHT:
            raise
        return Branches(ids, None)
    return Branches(ids, float(oldest or 0))
