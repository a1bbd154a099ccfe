"""What a PostgreSQL server says of itself, of a sink's target and of pakka's own tables. Reading it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from psycopg.errors import ProtocolViolation

from pakka.postgres_line import Line
from pakka.sinks._probing import OWN_KEYS

OLDEST = 120000
"""The oldest server that is read and written: its catalogue knows partitions and generated columns as the sink asks for them."""
SETTINGS = (
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "max_prepared_transactions",
    "statement_timeout",
    "synchronous_commit",
    "transaction_read_only",
    "transaction_timeout",
)

_SERVER = """
    SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(), quote_ident(current_user)
"""
_SETTINGS = "SELECT name, setting, reset_val, source FROM pg_settings WHERE name = ANY(%s)"
# A table without a schema is the one that the connection finds first.
_PLACE = "CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = %(schema)s END"
_TARGET = f"""
    SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, row_security_active(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = %(table)s AND c.relkind IN ('r', 'p', 'f', 'v', 'm') AND {_PLACE}
"""
_OWN = f"""
    SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, row_security_active(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%(own)s) AND c.relkind IN ('r', 'p', 'f', 'v', 'm') AND {_PLACE} ORDER BY c.relname
"""
# Row security of a partition holds for whoever names it, and not for rows that come and go by way of its table.
_LEAVES = """
    SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, false
    FROM pg_partition_tree(%(oid)s) p JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf ORDER BY 2
"""
# By hash every row has a partition, and a default one cannot be made.
_TAKES_ALL = "SELECT partdefid <> 0 OR partstrat = 'h' FROM pg_partitioned_table WHERE partrelid = %(oid)s"
# Row triggers of a partitioned table are cloned to its partitions; those of a partition alone are found there.
_TRIGGERS = """
    SELECT DISTINCT tgname::text FROM pg_trigger WHERE tgrelid = ANY(%(oids)s) AND NOT tgisinternal AND tgenabled <> 'D' ORDER BY 1
"""
_RULES = """
    SELECT rulename::text, ev_type::text FROM pg_rewrite
    WHERE ev_class = %(oid)s AND ev_type <> '1' AND ev_enabled <> 'D' ORDER BY 1
"""
# `indnullsnotdistinct` is not in every server's catalogue, so the row is asked for it as a document.
_INDEXES = """
    SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, i.indisprimary, i.indisvalid AND i.indisready, i.indimmediate,
        i.indpred IS NOT NULL, i.indexprs IS NOT NULL, coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false),
        ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts ORDER BY k.place),
        ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
            WHERE k.place <= i.indnkeyatts AND NOT a.attnotnull ORDER BY k.place)
    FROM pg_index i WHERE i.indrelid = ANY(%(oids)s) AND i.indisunique ORDER BY 2
"""
_PREPARED = """
    SELECT gid, database::text, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
    FROM pg_prepared_xacts ORDER BY prepared
"""


class Setting(NamedTuple):
    """A setting as it is in the sink's transactions, as it is outside of them, and who has set it."""

    value: str
    outside: str
    source: str


class Relation(NamedTuple):
    """A table, or what stands where one is looked for."""

    oid: int
    name: str
    """Quoted and with its schema, where a statement needs that."""
    kind: str
    persistence: str
    hides_rows: bool
    """Row security applies to this user."""


class UniqueIndex(NamedTuple):
    """What the server keeps unique."""

    table: str
    name: str
    is_primary: bool
    is_valid: bool
    is_immediate: bool
    is_partial: bool
    has_expressions: bool
    are_nulls_equal: bool
    columns: Sequence[str]
    nullable: Sequence[str]


class PreparedTransaction(NamedTuple):
    """One prepared transaction of the server, of whomever it is."""

    gid: str
    database: str
    age_s: float
    age_transactions: int


@dataclass(frozen=True)
class Facts:
    """One look at a server."""

    is_standby: bool
    user: str
    """Quoted, where a statement needs that."""
    settings: Mapping[str, Setting]
    target: Relation | None
    leaves: Sequence[Relation]
    takes_all: bool
    """Every row has a partition to go to."""
    own: Sequence[Relation]
    triggers: Sequence[str]
    rules: Sequence[tuple[str, str]]
    """Name and event, as the catalogue has it: 2 update, 3 insert, 4 delete."""
    indexes: Sequence[UniqueIndex]
    prepared: Sequence[PreparedTransaction]


def read_facts(open_line: Callable[[], Line], begin: str, schema: str | None, table: str) -> Facts | None:
    """Read everything with one connection. None: the server is older than what can be read.

    `begin` is how the sink begins its own transactions, so that what it sets for itself is seen.
    """
    with closing(open_line()) as line, line.within():
        ((number, _, is_standby, user),) = line.ask(_SERVER)
        if number < OLDEST:
            return None
        # A standby refuses a transaction that wants to write, and shall be told for what it is.
        line.ask("BEGIN" if is_standby else begin)
        place: dict[str, object] = {"schema": schema, "table": table, "own": list(OWN_KEYS)}
        target = next((Relation(*row) for row in line.ask(_TARGET, place)), None)
        of: dict[str, object] = {"oid": target.oid if target else 0}
        is_partitioned = target is not None and target.kind == "p"
        leaves = [Relation(*row) for row in line.ask(_LEAVES, of)] if is_partitioned else []
        own = [Relation(*row) for row in line.ask(_OWN, place)]
        shown = [of["oid"], *(leaf.oid for leaf in leaves)]
        return Facts(
            is_standby=is_standby,
            user=user,
            settings={name: Setting(*rest) for name, *rest in line.ask(_SETTINGS, (list(SETTINGS),))},
            target=target,
            leaves=leaves,
            takes_all=all(takes for (takes,) in line.ask(_TAKES_ALL, of)),
            own=own,
            triggers=[name for (name,) in line.ask(_TRIGGERS, {"oids": shown})],
            rules=[(name, event) for name, event in line.ask(_RULES, of)],
            indexes=[
                UniqueIndex(*row) for row in line.ask(_INDEXES, {"oids": [of["oid"], *(table.oid for table in own)]})
            ],
            prepared=[PreparedTransaction(*row) for row in line.ask(_PREPARED)],
        )


class Pooler(Enum):
    """What stands between us and the server."""

    NONE = "none"
    SESSION = "session mode"
    TRANSACTION = "transaction mode"
    STATEMENT = "statement mode"


def read_pooler(open_line: Callable[[], Line]) -> Pooler:
    """A pooler speaks for the server: the number of the server process that it tells at the start is made up.

    Two of our connections that are served by one process, or one that is served by two, do not have their sessions to themselves.
    """
    with closing(open_line()) as one, one.within():
        if _pid(one) == one.db.info.backend_pid:
            return Pooler.NONE
        with closing(open_line()) as other, other.within():
            # Of idle sessions the pooler hands out the last used, and then the other gets ours, or the first, and then we get two.
            seen = [({_pid(one), _pid(one)}, _pid(other)) for _ in range(3)]
        if not _has_transactions(one):
            return Pooler.STATEMENT
    ours, others = set().union(*(mine for mine, _ in seen)), {theirs for _, theirs in seen}
    is_our_own = len(ours) == len(others) == 1 and ours != others
    return Pooler.SESSION if is_our_own else Pooler.TRANSACTION


def _pid(line: Line) -> int:
    return int(line.ask("SELECT pg_backend_pid()")[0][0])


def _has_transactions(line: Line) -> bool:
    try:
        line.ask("BEGIN")
        line.ask("ROLLBACK")
    except ProtocolViolation:
        return False
    return True


def read_version(open_line: Callable[[], Line]) -> tuple[int, str]:
    """The server's version as a number and as it says itself."""
    with closing(open_line()) as line, line.within():
        ((number, version, *_),) = line.ask(_SERVER)
        return number, version
