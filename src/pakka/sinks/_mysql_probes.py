"""Settings of a MySQL or MariaDB server, and of the table that rows go to, that weaken what the sink promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pakka.contract.audit import Finding, Probe
from pakka.probing import BREAKS, FINE, WARNS, Round, age
from pakka.sinks._mysql_facts import Facts, Version, read_facts
from pakka.sinks._mysql_index import UniqueIndex, other_keys
from pakka.sinks._mysql_line import Line
from pakka.sinks._probing import OLD_S, Terms, cannot_prepare, likely_slots, may_be_null, no_table, own_keys, unique_key

OLDEST_MYSQL = (5, 7, 7)
OLDEST_MARIADB = (10, 5, 1)
"""Older servers roll a prepared branch back when its connection ends, as if it had never been promised."""
SAFE_BINLOG_MYSQL = (8, 0, 30)

_STRICT = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}

Judge = Callable[[Facts], Finding]


@dataclass(frozen=True)
class Subject(Terms):
    """What is asked about."""

    open_line: Callable[[], Line]
    """A connection as the sink opens its own."""
    database: str
    table: str


def mysql_probes(subject: Subject) -> Sequence[Probe]:
    """Every setting that matters for this sink. Making the list does no I/O."""
    look_round = Round(lambda: read_facts(subject.open_line, subject.database, subject.table))

    def probe(name: str, judge: Judge) -> Probe:
        return Probe(name, lambda: judge(look_round.facts(name)))

    return (
        probe("server version", partial(_server_version, subject)),
        probe("read only", _read_only),
        probe("storage engine", partial(_storage_engine, subject)),
        probe("innodb_flush_log_at_trx_commit", _flush_log),
        probe("sync_binlog", _sync_binlog),
        probe("innodb_doublewrite", _doublewrite),
        probe("innodb_force_recovery", _force_recovery),
        probe("innodb_rollback_on_timeout", _rollback_on_timeout),
        probe("sql_mode", _sql_mode),
        probe("local_infile", _local_infile),
        probe("max_connections", partial(_max_connections, subject)),
        probe("right to XA RECOVER", partial(_xa_right, subject)),
        probe("wsrep_on", partial(_wsrep_on, subject)),
        probe("unique key", partial(_unique_key, subject)),
        probe("other unique keys", partial(_other_keys, subject)),
        probe("keys of pakka's tables", _own_keys),
        probe("triggers", _triggers),
        probe("old prepared branches", _old_branches),
    )


def _server_version(subject: Subject, facts: Facts) -> Finding:
    name, version = "server version", facts.version
    spooled = "the sink prepares in the spool, and needs no XA of the server"
    if not survives_disconnect(version):
        product, oldest = ("MariaDB", "10.5") if version.is_mariadb else ("MySQL", "5.7.7")
        why = (
            f"before {product} {oldest} a prepared branch is rolled back when its connection ends, whatever was decided"
        )
        finding = Finding(name, BREAKS, version.text, why, f"use {product} {oldest} or newer")
        return cannot_prepare(subject, finding, spooled)
    # Without a binary log a sink that was told to prepare may; one that chooses does not look whether there is one.
    is_logged = facts.settings.get("log_bin") == "ON" or not subject.is_prepared
    if not version.is_mariadb and version.number < SAFE_BINLOG_MYSQL and is_logged:
        why = "before MySQL 8.0.30 a crash can leave the binary log with another end of a branch than the tables: replicas may differ"
        finding = Finding(name, WARNS, version.text, why, "use MySQL 8.0.30 or newer")
        return cannot_prepare(subject, finding, spooled)
    good = "a prepared branch outlives its connection and the server's next start"
    return Finding(name, FINE, version.text, good if subject.is_prepared else spooled)


def survives_disconnect(version: Version) -> bool:
    """Whether what is prepared is still there when the connection that prepared it is gone."""
    return version.number >= (OLDEST_MARIADB if version.is_mariadb else OLDEST_MYSQL)


def _read_only(facts: Facts) -> Finding:
    name = "read only"
    for setting in ("super_read_only", "read_only", "innodb_read_only"):
        if facts.settings.get(setting, "OFF") not in ("OFF", "0"):
            why = "this server takes no rows, as a replica does not; what it shows may be behind the ledger of its primary"
            fix = f"name the primary in `url`; if this is it, SET GLOBAL {setting} = OFF"
            return Finding(name, BREAKS, setting, why, fix)
    return Finding(name, FINE, "no", "the server takes rows")


def _storage_engine(subject: Subject, facts: Facts) -> Finding:
    """The first thing to know of a server that has more than one: only some of them mean it."""
    name = "storage engine"
    if facts.target is not None and facts.target.kind == "VIEW":
        why = "rows would land in the tables beneath the view, whose engines and keys are not known"
        return Finding(name, BREAKS, "view", why, "name the table beneath the view in `table`")
    if facts.target is None and not subject.create:
        return no_table(name)
    tables = [*([facts.target] if facts.target else []), *facts.own]
    for table in tables:
        engine = facts.engines.get(table.engine)
        fix = f"ALTER TABLE {_quoted(table.name)} ENGINE = InnoDB"
        value = f"{table.engine or 'unknown'} of {table.name}"
        if engine is None or not engine.has_transactions:
            why = (
                f"{table.engine or 'it'} has no transactions: XA PREPARE and XA ROLLBACK report success and the rows stay, so an epoch "
                "that was aborted is there for every reader, and there twice after it has run again"
            )
            return Finding(name, BREAKS, value, why, fix)
        if subject.is_prepared and not engine.has_xa:
            why = f"{table.engine} takes no part in XA: what is prepared in it is not kept until the decision"
            return Finding(name, BREAKS, value, why, fix)
    value = facts.target.engine if facts.target else "no table yet"
    why = "rows and ledger are in one transaction" if facts.target else "pakka makes it with InnoDB"
    return Finding(name, FINE, value, why)


def _flush_log(facts: Facts) -> Finding:
    name = "innodb_flush_log_at_trx_commit"
    value = facts.settings.get(name, "unknown")
    if value in ("1", "3"):
        return Finding(name, FINE, value, "PREPARE and COMMIT are answered when they are on the disk")
    why = "PREPARE and COMMIT are answered before they are on the disk: a power cut loses what was prepared and what was committed"
    return Finding(name, BREAKS, value, why, f"SET GLOBAL {name} = 1")


def _sync_binlog(facts: Facts) -> Finding:
    name = "sync_binlog"
    value = facts.settings.get(name, "unknown")
    if facts.settings.get("log_bin", "OFF") == "OFF":
        return Finding(name, FINE, "no binary log", "commits do not depend on one")
    if value == "1":
        return Finding(name, FINE, value, "the binary log, which decides what a restart commits, is on the disk first")
    why = "after a power cut the server rolls back what its binary log has lost, also what it had answered as committed"
    return Finding(name, BREAKS, value, why, "SET GLOBAL sync_binlog = 1")


def _doublewrite(facts: Facts) -> Finding:
    name = "innodb_doublewrite"
    value = facts.settings.get(name, "unknown")
    if value.upper() in ("OFF", "0", "DETECT_ONLY"):
        why = "a power cut in the middle of a write leaves a page that is half old and half new, and nothing to mend it from"
        fix = "start the server with `innodb_doublewrite = ON`"
        return Finding(name, BREAKS, value, why, fix)
    return Finding(name, FINE, value, "a page that was written in part is mended at the next start")


def _force_recovery(facts: Facts) -> Finding:
    name = "innodb_force_recovery"
    value = facts.settings.get(name, "0")
    if value == "0":
        return Finding(name, FINE, value, "the server starts only with tables that are whole")
    why = "the server was told to start with damaged tables, and passes over what it should undo or write"
    return Finding(name, BREAKS, value, why, f"dump and load the tables, then start the server without `{name}`")


def _rollback_on_timeout(facts: Facts) -> Finding:
    """Told, because people look for it: other writers go on after a lock time-out, with a part of their transaction."""
    value = facts.settings.get("innodb_rollback_on_timeout", "OFF")
    why = (
        "a lock time-out may undo one statement only; pakka ends the whole slot after any error, so it is all the same"
    )
    return Finding("innodb_rollback_on_timeout", FINE, value, why)


def _sql_mode(facts: Facts) -> Finding:
    name, fix = "sql_mode", "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')"
    if not _STRICT & set(facts.session_sql_mode.split(",")):
        why = "a value that does not fit is cut or made zero without an error"
        return Finding(name, BREAKS, facts.session_sql_mode or "empty", why, fix)
    if not _STRICT & set(facts.settings.get(name, "").split(",")):
        why = "a value that does not fit is cut or made zero without an error; pakka's own sessions are strict, and others are not"
        return Finding(name, WARNS, facts.settings.get(name, "") or "empty", why, fix)
    return Finding(name, FINE, "strict", "a value that does not fit is refused")


def _local_infile(facts: Facts) -> Finding:
    value = facts.settings.get("local_infile", "OFF")
    if value in ("ON", "1"):
        return Finding("local_infile", FINE, value, "rows are streamed to the server by LOAD DATA")
    if facts.version.is_mariadb:
        return Finding("local_infile", FINE, value, "MariaDB takes rows as parameters, and needs no LOAD DATA for it")
    why = "the server takes no LOAD DATA LOCAL, so rows go by INSERT: the same guarantee, and slower"
    return Finding("local_infile", WARNS, value, why, "SET GLOBAL local_infile = ON")


def _max_connections(subject: Subject, facts: Facts) -> Finding:
    name, limit = "max_connections", int(facts.settings.get("max_connections", "0"))
    # One a slot, the committer's own, and one to look with.
    free, needed = limit - facts.connected, likely_slots(subject.slots_needed) + 2
    value = f"{limit}, {facts.connected} in use"
    if free >= needed:
        return Finding(name, FINE, value, "there is a connection for every slot")
    why = f"{needed} connections are needed at once and {max(free, 0)} are free: slots fail, and their epoch is tried again"
    return Finding(name, WARNS, value, why, f"SET GLOBAL max_connections = {limit + 2 * needed}; or set fewer `slots`")


def _xa_right(subject: Subject, facts: Facts) -> Finding:
    name = "right to XA RECOVER"
    if facts.branches is not None:
        return Finding(name, FINE, "yes", "what is prepared can be found again after a crash")
    why = "this user may not list prepared branches, so what a crash has left cannot be found, and its locks stay for ever"
    fix = f"GRANT XA_RECOVER_ADMIN ON *.* TO {_account(facts.user)}"
    spooled = "the sink prepares in the spool, and has no branch to find"
    return cannot_prepare(subject, Finding(name, BREAKS, "no", why, fix), spooled)


def _wsrep_on(subject: Subject, facts: Facts) -> Finding:
    name, value = "wsrep_on", facts.settings.get("wsrep_on", "OFF")
    if value == "OFF":
        return Finding(name, FINE, value, "the server commits on its own")
    spooled = "Galera replicates the one transaction of an epoch as it is"
    why = "a Galera cluster does not replicate XA: another node knows nothing of what is prepared here"
    return cannot_prepare(subject, Finding(name, BREAKS, value, why, "use a server on its own"), spooled)


def _unique_key(subject: Subject, facts: Facts) -> Finding:
    target = facts.target
    found = _indexes_of(facts, target.name) if target else []
    flaws = {index.name: _flaw_of(index) for index in found if index.is_on(subject.key)}
    return unique_key([_quoted(column) for column in subject.key], _quoted(target.name) if target else None, flaws)


def _flaw_of(index: UniqueIndex) -> str:
    """Why a unique index does not do for ON DUPLICATE KEY; empty if it does."""
    if index.has_expressions:
        return "the index is on an expression"
    if index.prefixes:
        return f"the index takes the beginning of {_quoted(index.prefixes[0])} for the whole"
    if index.nullable:
        return may_be_null(_quoted(index.nullable[0]))
    return ""


def _other_keys(subject: Subject, facts: Facts) -> Finding:
    """Which columns the rows have is not known here: they are taken to have all that the server does not number itself."""
    name, target = "other unique keys", facts.target
    if not subject.key or target is None:
        return Finding(name, FINE, "not needed", "no row is looked for by key")
    others = other_keys(_indexes_of(facts, target.name), subject.key, facts.numbered)
    if not others:
        return Finding(name, FINE, "none", "a row is found by its key and by nothing else")
    why = "ON DUPLICATE KEY UPDATE goes by every unique key, so a row can overwrite another one that has the same value there"
    fix = "; ".join(f"ALTER TABLE {_quoted(target.name)} DROP INDEX {_quoted(index)}" for index in others)
    return Finding(name, BREAKS, ", ".join(others), why, fix)


def _own_keys(facts: Facts) -> Finding:
    keyed = {index.table for index in facts.indexes if index.name == "PRIMARY"}
    return own_keys([table.name for table in facts.own], keyed)


def _triggers(facts: Facts) -> Finding:
    if not facts.triggers:
        return Finding("triggers", FINE, "none", "a row does nothing but land in its table")
    why = (
        "a trigger runs for every attempt at a slot, also one that is aborted: what it writes to a table without transactions is not "
        "taken back and can happen twice, and rows that it changes are not what `pakka verify` has counted"
    )
    fix = "see that they only change InnoDB tables"
    return Finding("triggers", WARNS, ", ".join(facts.triggers), why, fix)


def _old_branches(facts: Facts) -> Finding:
    name, branches = "old prepared branches", facts.branches
    if branches is None or not branches.ids:
        return Finding(name, FINE, "none", "nothing prepared is forgotten")
    count = len(branches.ids)
    if branches.oldest_s is None or branches.oldest_s < OLD_S:
        told = "unknown age" if branches.oldest_s is None else f"at most {age(branches.oldest_s)}"
        return Finding(name, FINE, f"{count} of {told}", "a pipeline that runs has some for a moment")
    why = "their row locks stay, also over a restart, and the server keeps every older version of every row for them"
    is_ours = any(ident.startswith(b"pakka.") for ident in branches.ids)
    how = "XA RECOVER FORMAT='SQL'" if facts.version.is_mariadb else "XA RECOVER CONVERT XID"
    fix = (
        "pakka indoubt list"
        if is_ours
        else f"{how} lists them; their owner knows whether to XA COMMIT or to XA ROLLBACK"
    )
    return Finding(name, WARNS, f"{count}, the oldest for {age(branches.oldest_s)}", why, fix)


def _indexes_of(facts: Facts, table: str) -> list[UniqueIndex]:
    return [index for index in facts.indexes if index.table == table]


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"{_quoted(name)}@{_quoted(host)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
