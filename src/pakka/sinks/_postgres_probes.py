"""Settings of a PostgreSQL server, and of the table that rows go to, that weaken what the sink promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pakka.contract.audit import Finding, Probe
from pakka.durability import postgres_switch, postgres_synchronous_commit, postgres_unlogged
from pakka.postgres_line import Line
from pakka.probing import BREAKS, FINE, WARNS, Round, age
from pakka.sinks._postgres_facts import (
    OLDEST,
    Facts,
    Pooler,
    Relation,
    UniqueIndex,
    read_facts,
    read_pooler,
    read_version,
)
from pakka.sinks._probing import OLD_S, Terms, cannot_prepare, likely_slots, may_be_null, no_table, own_keys, unique_key

LONG_S = 600.0
"""A COPY of a large slot may take as long as this."""


Judge = Callable[[Facts], Finding]


@dataclass(frozen=True)
class Subject(Terms):
    """What is asked about."""

    open_line: Callable[[], Line]
    """A connection as the sink opens its own."""
    table: str
    schema: str | None = None
    """None: the schema that the connection finds first."""
    begin: str = "BEGIN"
    """How the sink begins a transaction, with what it sets for itself."""


def postgres_probes(subject: Subject) -> Sequence[Probe]:
    """Every setting that matters for this sink. Making the list does no I/O."""
    look_round = Round(lambda: read_facts(subject.open_line, subject.begin, subject.schema, subject.table))

    def probe(name: str, judge: Judge) -> Probe:
        def look() -> Finding:
            facts = look_round.facts(name)
            if facts is None:
                why = "this server is too old to be asked"
                return Finding(name, WARNS, "not known", why, f"use PostgreSQL {OLDEST // 10000} or newer")
            return judge(facts)

        return Probe(name, look)

    return (
        Probe("server version", lambda: _server_version(*read_version(subject.open_line)), is_cheap=False),
        # No pooler comes in between while a pipeline runs, and looking for one takes two connections.
        Probe("pooler", lambda: _pooler(subject), is_cheap=False),
        probe("read only", _read_only),
        probe("fsync", partial(_switch, "fsync")),
        probe("full_page_writes", partial(_switch, "full_page_writes")),
        probe("synchronous_commit", _synchronous_commit),
        probe("max_prepared_transactions", partial(_max_prepared_transactions, subject)),
        probe("time-outs", _time_outs),
        probe("kind of table", partial(_kind_of_table, subject)),
        probe("unlogged tables", _unlogged),
        probe("row security", _row_security),
        probe("unique key", partial(_unique_key, subject)),
        probe("keys of pakka's tables", _own_keys),
        probe("triggers", partial(_triggers, subject)),
        probe("rules", partial(_rules, subject)),
        probe("old prepared transactions", _old_prepared),
    )


def _server_version(number: int, version: str) -> Finding:
    name, oldest = "server version", OLDEST // 10000
    if number < OLDEST:
        why = f"it is older than PostgreSQL {oldest}, and the sink asks its catalogue for what it does not know"
        return Finding(name, BREAKS, version, why, f"use PostgreSQL {oldest} or newer")
    return Finding(name, FINE, version, f"PostgreSQL {oldest} and newer know all that the sink asks for")


def _pooler(subject: Subject) -> Finding:
    name, pooler = "pooler", read_pooler(subject.open_line)
    value, fix = pooler.value, "name the server itself in `url`, or set `pool_mode = session` for this database"
    if pooler is Pooler.NONE:
        return Finding(name, FINE, value, "each connection is one session of the server")
    if pooler is Pooler.SESSION:
        return Finding(name, FINE, value, "each connection has a session of the server to itself")
    if pooler is Pooler.STATEMENT:
        why = "the pooler lets no transaction through that has more than one statement, so rows and ledger cannot go together"
        return Finding(name, BREAKS, value, why, fix)
    spooled = "an epoch is one transaction, and nothing is kept in a session beyond it"
    why = "every slot that is prepared keeps a session of the pool from its first row on, and waits while others have them all"
    return cannot_prepare(subject, Finding(name, WARNS, value, why, fix), spooled)


def _read_only(facts: Facts) -> Finding:
    name = "read only"
    if facts.is_standby:
        why = "this server is a standby: nothing can be written, and what it shows may be behind the primary's ledger"
        return Finding(
            name, BREAKS, "standby", why, "name the primary in `url`, or add `?target_session_attrs=read-write`"
        )
    setting = "default_transaction_read_only"
    fix = f"ALTER ROLE {facts.user} SET {setting} = off"
    if facts.settings["transaction_read_only"].value == "on":
        return Finding(name, BREAKS, setting, "transactions of this user may not write", fix)
    if facts.settings[setting].value == "on":
        why = "transactions of this user may not write; pakka asks to write in its own, and cannot make a table outside of them"
        return Finding(name, WARNS, setting, why, fix)
    return Finding(name, FINE, "no", "the server takes rows")


def _switch(name: str, facts: Facts) -> Finding:
    return postgres_switch(name, facts.settings[name].value)


def _synchronous_commit(facts: Facts) -> Finding:
    setting = facts.settings["synchronous_commit"]
    return postgres_synchronous_commit(setting.value, setting.outside)


def _max_prepared_transactions(subject: Subject, facts: Facts) -> Finding:
    name, limit = "max_prepared_transactions", int(facts.settings["max_prepared_transactions"].value)
    used, needed = len(facts.prepared), likely_slots(subject.slots_needed)
    fix = f"ALTER SYSTEM SET max_prepared_transactions = {max(64, 4 * needed)}, and start the server again"
    value = f"{limit}, {used} in use" if used else str(limit)
    spooled = "the sink prepares in the spool and needs none"
    if limit == 0:
        return cannot_prepare(subject, Finding(name, BREAKS, value, "the server prepares no transaction", fix), spooled)
    if limit < (subject.slots_needed or 0):
        why = f"an epoch has {needed} slots, each prepares a transaction, and none is committed before all are prepared"
        fix = f"{fix}; or set `slots: {limit}`"
        return cannot_prepare(subject, Finding(name, BREAKS, value, why, fix), spooled)
    if not subject.is_prepared:
        return Finding(name, FINE, value, spooled)
    theirs = sum(not found.gid.startswith("pakka.") for found in facts.prepared)
    if limit - theirs < 2 * needed:
        why = (
            f"an epoch has {needed} slots, a slot that is tried again prepares a second time, and others hold {theirs}"
        )
        return Finding(name, WARNS, value, why, fix)
    return Finding(name, FINE, value, "there is room for every slot of an epoch, and for those that are tried again")


def _time_outs(facts: Facts) -> Finding:
    name, found = "time-outs", []
    for setting in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        told = facts.settings.get(setting)  # `transaction_timeout` is new in PostgreSQL 17
        # What the sink sets for itself is meant so.
        if told and told.source != "session" and 0 < float(told.value) / 1000 < LONG_S:
            found.append((setting, float(told.value) / 1000))
    if not found:
        return Finding(name, FINE, "none", "the server lets a long COPY come to its end")
    value = ", ".join(f"{setting} {seconds:g} s" for setting, seconds in found)
    why = "the server ends a COPY or a transaction that takes longer, so an epoch with a large slot never gets through"
    fix = "; ".join(f"ALTER ROLE {facts.user} SET {setting} = 0" for setting, _ in found)
    return Finding(name, WARNS, value, why, fix)


def _kind_of_table(subject: Subject, facts: Facts) -> Finding:
    name, target = "kind of table", facts.target
    if target is None:
        if subject.create:
            return Finding(name, FINE, "no table yet", "pakka makes it when the first rows come")
        return no_table(name)
    if target.kind in _NO_TABLE:
        value, why, fix = _NO_TABLE[target.kind]
        return Finding(name, BREAKS, value, why, fix)
    foreign = [leaf.name for leaf in facts.leaves if leaf.kind == "f"]
    if foreign:
        value = f"partitioned, with foreign partition {foreign[0]}"
        fix = f"ALTER TABLE {target.name} DETACH PARTITION {foreign[0]}"
        return Finding(name, BREAKS, value, _NO_TABLE["f"][1], fix)
    if not facts.takes_all:
        why = "a row that belongs to none of its partitions fails the whole epoch, until a partition is made for it"
        fix = f"CREATE TABLE ... PARTITION OF {target.name} DEFAULT"
        return Finding(name, WARNS, "partitioned, without a default partition", why, fix)
    value = "partitioned" if target.kind == "p" else "table"
    return Finding(name, FINE, value, "rows and ledger are in one transaction of one server")


_NO_TABLE = {
    "f": (
        "foreign table",
        "its rows are on another server, which commits them in a transaction of its own: the ledger can be there without the rows, "
        "and the rows without the ledger",
        "name a table of this server in `table`; or the other server in `url`",
    ),
    "v": (
        "view",
        "COPY does not write into a view, and what a rule or a trigger of it does with a row is not known to the ledger",
        "name the table beneath the view in `table`",
    ),
    "m": ("materialized view", "nothing but REFRESH writes into it", "name a table in `table`"),
}


def _unlogged(facts: Facts) -> Finding:
    tables: list[Relation] = [*([facts.target] if facts.target else []), *facts.leaves, *facts.own]
    temporary = [table.name for table in tables if table.persistence == "t"]
    if temporary:
        why = "a temporary table is gone when the session ends that made it, and no other session sees its rows"
        fix = "name a table that stays in `table`"
        return Finding("unlogged tables", BREAKS, f"{temporary[0]} is temporary", why, fix)
    unlogged = [table.name for table in tables if table.persistence == "u"]
    return postgres_unlogged(unlogged, "all committed rows, fences and ledger entries")


def _row_security(facts: Facts) -> Finding:
    name = "row security"
    hiding = [table.name for table in (facts.target, *facts.own) if table and table.hides_rows]
    if not hiding:
        return Finding(name, FINE, "none", "this user sees and writes every row")
    why = "COPY is refused under row security, and a ledger or a fence that a policy hides is one that is not there"
    fix = "; ".join(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY" for table in hiding)
    return Finding(name, BREAKS, ", ".join(hiding), why, f"{fix}; or ALTER ROLE {facts.user} BYPASSRLS")


def _unique_key(subject: Subject, facts: Facts) -> Finding:
    table = facts.target.name if facts.target else None
    fitting = [i for i in facts.indexes if i.table == table and set(i.columns) == set(subject.key)]
    flaws = {index.name: _flaw_of(index) for index in fitting}
    return unique_key([_quoted(column) for column in subject.key], table, flaws)


def _flaw_of(index: UniqueIndex) -> str:
    """Why a unique index does not do for ON CONFLICT; empty if it does."""
    if not index.is_valid:
        return "the index is invalid, as after a CREATE INDEX CONCURRENTLY that failed"
    if index.is_partial:
        return "the index is partial and leaves rows out"
    if index.has_expressions:
        return "the index is on an expression"
    if not index.is_immediate:
        return "the index is deferrable and looks at the end of a transaction only"
    if index.nullable and not index.are_nulls_equal:
        return may_be_null(_quoted(index.nullable[0]))
    return ""


def _own_keys(facts: Facts) -> Finding:
    keyed = {index.table for index in facts.indexes if index.is_primary and index.is_valid}
    return own_keys([table.name for table in facts.own], keyed)


def _triggers(subject: Subject, facts: Facts) -> Finding:
    if not facts.triggers:
        return Finding("triggers", FINE, "none", "a row does nothing but land in its table")
    why = (
        "a trigger runs for every attempt at a slot, also one that is aborted: what it does outside of the transaction is not taken "
        "back and can happen twice, and rows that it drops or changes are not what `pakka verify` has counted"
    )
    if subject.is_prepared:
        why += "; after a NOTIFY or the use of a temporary table in it the server refuses to prepare"
    fix = "see that they only change tables of this database"
    return Finding("triggers", WARNS, ", ".join(facts.triggers), why, fix)


def _rules(subject: Subject, facts: Facts) -> Finding:
    if not facts.rules:
        return Finding("rules", FINE, "none", "statements do what they say")
    value = ", ".join(rule for rule, _ in facts.rules)
    fix = "; ".join(f"DROP RULE {_quoted(rule)} ON {facts.target.name}" for rule, _ in facts.rules if facts.target)
    if subject.mode == "append":
        return Finding("rules", WARNS, value, "COPY does not run rules: rows land in the table and nowhere else", fix)
    why = "the server refuses ON CONFLICT on a table with rules for INSERT or UPDATE, and one for DELETE keeps rows from going"
    return Finding("rules", BREAKS, value, why, fix)


def _old_prepared(facts: Facts) -> Finding:
    name = "old prepared transactions"
    old = [found for found in facts.prepared if found.age_s >= OLD_S]
    if not old:
        return Finding(name, FINE, "none", "nothing prepared is forgotten")
    oldest = old[0]
    value = f"{len(old)}, the oldest `{oldest.gid}` in {oldest.database} for {age(oldest.age_s)}"
    why = f"its locks stay, and vacuum cannot remove what {oldest.age_transactions} newer transactions have left behind"
    if oldest.gid.startswith("pakka."):
        return Finding(name, WARNS, value, why, "pakka indoubt list")
    gid = oldest.gid.replace("'", "''")
    fix = f"its owner knows whether to COMMIT PREPARED '{gid}' or to ROLLBACK PREPARED '{gid}'"
    return Finding(name, WARNS, value, why, fix)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
