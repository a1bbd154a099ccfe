"""Settings of a live PostgreSQL server that weaken the sink are named, with what mends them; a right one is left in peace."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Literal

from pakka.contract.audit import Finding, Severity
from pakka.model.guarantee import Way
from pakka.postgres_line import Address, Line
from pakka.sinks import _postgres_probes
from pakka.sinks._postgres_probes import Subject, postgres_probes
from pakka.sinks.postgres import PostgresSink
from tests.fixtures import postgres
from tests.fixtures.pgbouncer import pooled
from tests.fixtures.postgres import PostgresServer

pytestmark = pytest.mark.postgres

FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS
ROOM = 8
TABLE = "CREATE TABLE refunds (refund_id text PRIMARY KEY, amount bigint)"
LEDGER = "CREATE TABLE pakka_ledger (pipeline text, sink text, epoch bigint, slot int, fence bigint, attempt bigint)"
NO_KEY = "CREATE TABLE refunds (refund_id text NOT NULL, amount bigint)"
BEGIN = """
    BEGIN READ WRITE; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = '30s';
    SET LOCAL idle_in_transaction_session_timeout = '10s'
"""
PREPARED, SPOOLED = {"way": Way.PREPARED}, {"way": Way.SPOOLED}
UPSERT = {"mode": "upsert", "key": ("refund_id",), **SPOOLED}


@pytest.fixture(scope="module")
def lax_server() -> Iterator[PostgresServer]:
    """A server whose settings can be changed: they are not given on its command line, which would win."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "SETTINGS", {"listen_addresses": "127.0.0.1"})
        with postgres.running_server(postgres.need_binaries()) as server:
            change(server, max_prepared_transactions=ROOM)
            restart(server)
            yield server


@pytest.fixture(scope="module")
def database(lax_server) -> str:
    return lax_server.create_database()


@pytest.fixture
def url(lax_server, database) -> Iterator[str]:
    """An empty database. A fresh one for each test would take longer than the tests."""
    yield database
    do(lax_server.url("postgres"), f"ALTER DATABASE {database.rpartition('/')[2]} RESET ALL")
    with psycopg.connect(database, autocommit=True) as db:
        for (gid,) in db.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            db.execute(SQL("ROLLBACK PREPARED {}").format(Literal(gid)))
    do(database, "DROP SCHEMA IF EXISTS public, pay CASCADE", "CREATE SCHEMA public")
    do(database, "GRANT USAGE ON SCHEMA public TO PUBLIC")
    do(database, "DROP FOREIGN DATA WRAPPER IF EXISTS w CASCADE")


def change(server: PostgresServer, **settings: object) -> None:
    """None puts a setting back."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as db:
        for name, value in settings.items():
            db.execute(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = '{value}'")
        db.execute("SELECT pg_reload_conf()")


def restart(server: PostgresServer) -> None:
    server.stop()
    server.restart()


@contextmanager
def standby_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """A copy of the server that follows it and only reads."""
    root = Path(tempfile.mkdtemp(prefix="pakka-pg-"))
    shutil.copystat(server.root, root)
    os.chown(root, server.root.stat().st_uid, server.root.stat().st_gid)
    # Only what starts a server need be on PATH; the rest is where these really are.
    standby = PostgresServer((server.binaries / "initdb").resolve().parent, root)
    try:
        program = standby.binaries / "pg_basebackup"
        command = [program, "-d", server.url("postgres"), "-D", standby.data, "-X", "stream", "-R", "-c", "fast"]
        assert standby._run(command).wait(timeout=60) == 0
        standby.start()
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(root, ignore_errors=True)


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


def begin_with(url: str, **settings: str) -> None:
    """Every session of this database begins with them."""
    do(url, *(f"ALTER DATABASE {url.rpartition('/')[2]} SET {name} = '{value}'" for name, value in settings.items()))


def subject_of(url: str, **options) -> Subject:
    address = Address.parse(url, "test")
    return Subject(lambda: Line(address), **{"table": "refunds", "begin": BEGIN, "slots_needed": 2, **options})


def found(url: str, **options) -> dict[str, Finding]:
    findings = {probe.name: probe.look() for probe in postgres_probes(subject_of(url, **options))}
    assert [f.name for f in findings.values()] == list(findings)
    assert all(bool(f.fix) == (f.severity is not FINE) and f.why for f in findings.values())
    return findings


def weak(url: str, **options) -> dict[str, tuple[str, Severity]]:
    return {f.name: (f.value, f.severity) for f in found(url, **options).values() if f.severity is not FINE}


def wait_for(url: str, name: str, value: str) -> Finding:
    """A server takes a new setting into use a moment after it was told."""
    (probe,) = [p for p in postgres_probes(subject_of(url)) if p.name == name]
    give_up = time.monotonic() + 30
    while (finding := probe.look()).value != value:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return finding


@pytest.mark.parametrize("options", [PREPARED, SPOOLED, UPSERT, {**UPSERT, "mode": "mirror"}])
@pytest.mark.parametrize("tables", [(), (TABLE,)], ids=["no table yet", "table"])
def test_a_right_server_has_nothing_to_mend(url, options, tables):
    do(url, *tables)
    assert weak(url, **options) == {}


def test_making_the_list_asks_nothing():
    def refuse() -> Line:
        raise AssertionError("asked")

    assert len(postgres_probes(Subject(refuse, "refunds"))) > 10


def test_a_round_of_cheap_probes_takes_one_connection_and_the_next_round_another(url):
    opened = []
    subject = subject_of(url)

    def open_line() -> Line:
        opened.append(subject.open_line())
        return opened[-1]

    probes = [p for p in postgres_probes(Subject(open_line, "refunds")) if p.is_cheap]
    for rounds in (1, 2):
        assert {probe.look().severity for probe in probes} == {FINE}
        assert len(opened) == rounds
    assert not any(line.is_open for line in opened)


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_server_that_does_not_write_safely_is_found(lax_server, url, name):
    change(lax_server, **{name: "off"})
    try:
        assert wait_for(url, name, "off").severity is BREAKS
    finally:
        change(lax_server, **{name: None})
    assert wait_for(url, name, "on").severity is FINE


def test_a_commit_that_does_not_wait_is_mended_by_the_sinks_own_transactions(url):
    begin_with(url, synchronous_commit="off")
    assert weak(url) == {"synchronous_commit": ("off", WARNS)}
    assert weak(url, begin="BEGIN") == {"synchronous_commit": ("off", BREAKS)}


def test_a_user_who_may_only_read_is_found(url):
    begin_with(url, default_transaction_read_only="on")
    assert weak(url) == {"read only": ("default_transaction_read_only", WARNS)}
    assert weak(url, begin="BEGIN") == {"read only": ("default_transaction_read_only", BREAKS)}


def test_time_outs_that_end_a_long_copy_are_found_but_not_the_sinks_own(url):
    begin_with(url, statement_timeout="90s", idle_in_transaction_session_timeout="1min")
    assert weak(url) == {}
    value = "statement_timeout 90 s, idle_in_transaction_session_timeout 60 s"
    assert weak(url, begin="BEGIN") == {"time-outs": (value, WARNS)}
    begin_with(url, statement_timeout="2h", idle_in_transaction_session_timeout="0")
    assert weak(url, begin="BEGIN") == {}


def test_a_server_that_prepares_no_transaction_is_found(lax_server, url):
    asked = PostgresSink(url, "refunds").choose()
    change(lax_server, max_prepared_transactions=0)
    restart(lax_server)
    try:
        told = {"prepared": prepares(PostgresSink(url, "refunds", way="prepared"))}
        told["spooled"] = prepares(PostgresSink(url, "refunds", way="spooled"))
        told["upsert"] = prepares(PostgresSink(url, "refunds", mode="upsert", key=("refund_id",)))
        told["auto, now"] = prepares(PostgresSink(url, "refunds"))
        told["auto, asked before"] = prepares(asked)
    finally:
        change(lax_server, max_prepared_transactions=ROOM)
        restart(lax_server)
    assert {sink: finding.severity for sink, finding in told.items()} == {
        "prepared": BREAKS,
        "spooled": FINE,
        "upsert": FINE,
        "auto, now": WARNS,
        "auto, asked before": BREAKS,
    }
    assert {finding.value for finding in told.values()} == {"0"}
    assert "rows wait in the spool" in told["auto, now"].why
    assert "set `way: spooled`" in told["prepared"].fix
    assert "run again, which takes the spool" in told["auto, asked before"].fix


def prepares(sink: PostgresSink, slots: int | None = None) -> Finding:
    """What a run with this sink is told of the transactions that its server prepares."""
    chosen = sink if sink.chosen else sink.choose(slots)
    return next(probe for probe in chosen.probes() if probe.name == "max_prepared_transactions").look()


@pytest.mark.parametrize(
    ("slots", "prepared", "auto"), [(3, FINE, FINE), (4, WARNS, WARNS), (8, WARNS, WARNS), (9, BREAKS, WARNS)]
)
def test_too_little_room_for_the_slots_of_an_epoch_is_found(url, slots, prepared, auto):
    prepare(url, "another program")
    severities = []
    for way in ("prepared", "auto", "spooled"):
        finding = prepares(PostgresSink(url, "refunds", way=way), slots)
        assert finding.value == "8, 1 in use"
        assert bool(finding.fix) == (finding.severity is not FINE)
        severities.append(finding.severity)
    assert severities == [prepared, auto, FINE]


def test_slots_that_nobody_counts_are_as_many_as_the_machine_has_cores(url, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    assert weak(url, slots_needed=2) == {}
    assert weak(url, slots_needed=None) == {"max_prepared_transactions": ("8", WARNS)}


def prepare(url: str, gid: str) -> None:
    do(url, "BEGIN", "CREATE TABLE IF NOT EXISTS prepared_here (id int)", f"PREPARE TRANSACTION '{gid}'")


@pytest.mark.parametrize(
    ("gid", "fix"),
    [
        ("pakka.refunds.out.1.1.0.0/1.2", "pakka indoubt list"),
        ("it''s theirs", "COMMIT PREPARED 'it''s theirs' or to ROLLBACK PREPARED 'it''s theirs'"),
    ],
)
def test_a_prepared_transaction_that_was_forgotten_is_found(url, monkeypatch, gid, fix):
    prepare(url, gid)
    assert weak(url) == {}
    monkeypatch.setattr(_postgres_probes, "OLD_S", 0.0)
    finding = found(url)["old prepared transactions"]
    assert finding.severity is WARNS
    assert finding.value.startswith(f"1, the oldest `{gid.replace(chr(39) * 2, chr(39))}` in test_")
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("statements", "name", "value", "severity"),
    [
        (["CREATE UNLOGGED TABLE refunds (id int)"], "unlogged tables", "refunds", BREAKS),
        (["CREATE VIEW refunds AS SELECT 1 AS id"], "kind of table", "view", BREAKS),
        (["CREATE MATERIALIZED VIEW refunds AS SELECT 1 AS id"], "kind of table", "materialized view", BREAKS),
        (
            [
                "CREATE FOREIGN DATA WRAPPER w",
                "CREATE SERVER s FOREIGN DATA WRAPPER w",
                "CREATE FOREIGN TABLE refunds (id int) SERVER s",
            ],
            "kind of table",
            "foreign table",
            BREAKS,
        ),
        (
            [
                "CREATE TABLE refunds (id int) PARTITION BY RANGE (id)",
                "CREATE TABLE low PARTITION OF refunds FOR VALUES FROM (0) TO (10)",
            ],
            "kind of table",
            "partitioned, without a default partition",
            WARNS,
        ),
        (
            [
                "CREATE TABLE refunds (id int) PARTITION BY RANGE (id)",
                "CREATE UNLOGGED TABLE low PARTITION OF refunds DEFAULT",
            ],
            "unlogged tables",
            "low",
            BREAKS,
        ),
        (
            [
                "CREATE TABLE refunds (id int) PARTITION BY RANGE (id)",
                "CREATE FOREIGN DATA WRAPPER w",
                "CREATE SERVER s FOREIGN DATA WRAPPER w",
                "CREATE FOREIGN TABLE far PARTITION OF refunds DEFAULT SERVER s",
            ],
            "kind of table",
            "partitioned, with foreign partition far",
            BREAKS,
        ),
        (
            [TABLE, "CREATE RULE twice AS ON INSERT TO refunds DO ALSO NOTHING"],
            "rules",
            "twice",
            WARNS,
        ),
        ([TABLE, "CREATE UNLOGGED TABLE pakka_fence (id int PRIMARY KEY)"], "unlogged tables", "pakka_fence", BREAKS),
        ([TABLE, "CREATE UNLOGGED TABLE pakka_ledger (id int PRIMARY KEY)"], "unlogged tables", "pakka_ledger", BREAKS),
        ([TABLE, LEDGER], "keys of pakka's tables", "pakka_ledger", BREAKS),
    ],
)
def test_a_table_that_does_not_keep_rows_as_the_ledger_says_is_found(url, statements, name, value, severity):
    do(url, *statements)
    assert weak(url) == {name: (value, severity)}
    if name in ("unlogged tables", "keys of pakka's tables", "rules"):
        do(url, found(url)[name].fix)
        assert weak(url) == {}


def test_a_partitioned_table_that_takes_every_row_is_fine(url):
    do(
        url,
        "CREATE TABLE refunds (refund_id text PRIMARY KEY) PARTITION BY HASH (refund_id)",
        "CREATE TABLE r0 PARTITION OF refunds FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE r1 PARTITION OF refunds FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    )
    assert weak(url, **UPSERT) == {}


def test_a_table_in_another_schema_is_the_one_that_is_looked_at(url):
    do(url, TABLE, "CREATE SCHEMA pay", 'CREATE UNLOGGED TABLE pay."Re.funds" (id int)')
    assert weak(url, schema="pay", table="Re.funds") == {"unlogged tables": ('pay."Re.funds"', BREAKS)}
    assert weak(url, schema="public") == {}
    assert found(url, schema="pay")["kind of table"].value == "no table yet"


def test_a_temporary_table_of_another_session_is_found(url):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TEMPORARY TABLE refunds (id int)")
        (schema,) = db.execute("SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()").fetchone()
        value, severity = weak(url, schema=schema)["unlogged tables"]
    assert (value, severity) == (f"{schema}.refunds is temporary", BREAKS)


def test_a_table_that_is_missing_and_may_not_be_made_is_found(url):
    assert weak(url, create=False) == {"kind of table": ("no table", BREAKS)}


def test_triggers_are_named_unless_they_are_off(url):
    do(
        url,
        TABLE,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER tell AFTER INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE TRIGGER sleep BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION f()",
        "ALTER TABLE refunds DISABLE TRIGGER sleep",
        "CREATE TABLE lines (refund_id text REFERENCES refunds)",
    )
    assert weak(url) == {"triggers": ("tell", WARNS)}


@pytest.mark.parametrize("mode", ["upsert", "mirror"])
def test_a_rule_breaks_what_finds_rows_by_key(url, mode):
    do(url, TABLE, "CREATE RULE keep AS ON DELETE TO refunds DO INSTEAD NOTHING")
    assert weak(url, mode=mode, key=("refund_id",)) == {"rules": ("keep", BREAKS)}


def test_row_security_is_found_where_it_hides_rows_of_this_user(lax_server, url):
    do(url, TABLE, "CREATE TABLE pakka_ledger (id int PRIMARY KEY)", "ALTER TABLE refunds ENABLE ROW LEVEL SECURITY")
    do(url, "ALTER TABLE pakka_ledger ENABLE ROW LEVEL SECURITY", "CREATE ROLE \"Night Clerk\" LOGIN PASSWORD 'clerk'")
    try:
        assert weak(url) == {}, "an owner is not bound by it"
        theirs = url.replace(f"{postgres.USER}:{postgres.PASSWORD}", "Night%20Clerk:clerk")
        assert weak(theirs) == {"row security": ("refunds, pakka_ledger", BREAKS)}
        do(url, found(theirs)["row security"].fix.partition("; or ")[2])
        assert weak(theirs) == {}
    finally:
        do(url, 'DROP ROLE "Night Clerk"')


def test_row_security_of_a_partition_binds_nobody_who_names_its_table(url):
    do(
        url,
        "CREATE TABLE refunds (refund_id text PRIMARY KEY, amount bigint) PARTITION BY HASH (refund_id)",
        "CREATE TABLE part PARTITION OF refunds FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "ALTER TABLE part ENABLE ROW LEVEL SECURITY",
        "CREATE ROLE \"Night Clerk\" LOGIN PASSWORD 'clerk'",
        'GRANT SELECT, INSERT ON refunds, part TO "Night Clerk"',
    )
    theirs = url.replace(f"{postgres.USER}:{postgres.PASSWORD}", "Night%20Clerk:clerk")
    try:
        assert weak(theirs) == {}
        with psycopg.connect(theirs, autocommit=True) as db:
            with db.cursor().copy("COPY refunds FROM STDIN") as copy:
                copy.write("RFD-1\t100\n")
            assert db.execute("SELECT amount FROM refunds").fetchall() == [(100,)]
            assert db.execute("SELECT amount FROM part").fetchall() == []
    finally:
        do(url, 'DROP OWNED BY "Night Clerk"', 'DROP ROLE "Night Clerk"')


@pytest.mark.parametrize(
    ("statements", "value", "reason"),
    [
        ([], "none", "nothing keeps"),
        (["CREATE INDEX i ON refunds (refund_id)"], "none", "nothing keeps"),
        (["CREATE UNIQUE INDEX i ON refunds (refund_id, amount)"], "none", "nothing keeps"),
        (["CREATE UNIQUE INDEX i ON refunds (refund_id) WHERE amount > 0"], "i", "partial"),
        (["CREATE UNIQUE INDEX i ON refunds (lower(refund_id))"], "none", "nothing keeps"),
        (["CREATE UNIQUE INDEX i ON refunds (refund_id, abs(amount))"], "i", "expression"),
        (["ALTER TABLE refunds ADD CONSTRAINT i UNIQUE (refund_id) DEFERRABLE"], "i", "deferrable"),
        (
            ["ALTER TABLE refunds ALTER refund_id DROP NOT NULL", "CREATE UNIQUE INDEX i ON refunds (refund_id)"],
            "i",
            "two NULLs",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["upsert", "mirror"])
def test_a_key_that_is_not_unique_is_found(url, statements, value, reason, mode):
    do(url, NO_KEY, *statements)
    finding = found(url, mode=mode, key=("refund_id",))["unique key"]
    assert (finding.value, finding.severity) == (value, BREAKS)
    assert reason in finding.why
    do(url, finding.fix)
    assert weak(url, mode=mode, key=("refund_id",)) == {}
    assert weak(url) == {}, "rows that are only added need no key"


def test_an_index_that_could_not_be_made_is_found(url):
    do(url, NO_KEY, "INSERT INTO refunds VALUES ('r-1', 1), ('r-1', 2)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        do(url, "CREATE UNIQUE INDEX CONCURRENTLY i ON refunds (refund_id)")
    finding = found(url, **UPSERT)["unique key"]
    assert (finding.value, finding.severity) == ("i", BREAKS)
    assert "invalid" in finding.why


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX i ON refunds (day, refund_id)",
        "CREATE UNIQUE INDEX i ON refunds (refund_id, day) INCLUDE (amount)",
        "CREATE UNIQUE INDEX i ON refunds (refund_id, day) NULLS NOT DISTINCT",
    ],
)
def test_a_unique_index_does_as_well_as_a_primary_key(url, index):
    nullable = "" if "NULLS" in index else "NOT NULL"
    do(url, f"CREATE TABLE refunds (refund_id text {nullable}, day date {nullable}, amount bigint)", index)
    assert weak(url, mode="upsert", key=("refund_id", "day")) == {}


def test_a_standby_is_found(lax_server, url, tmp_path):
    with standby_of(lax_server) as standby:
        there = standby.url(url.rpartition("/")[2])
        assert weak(there) == {"read only": ("standby", BREAKS)}


@pytest.mark.parametrize(
    ("mode", "value", "severity"), [("session", "session mode", FINE), ("transaction", "transaction mode", WARNS)]
)
@pytest.mark.parametrize("round_robin", ["0", "1"])
@pytest.mark.parametrize("sessions", [1, 2])
def test_a_pooler_is_found(url, mode, value, severity, round_robin, sessions):
    """Also one that has sessions to spare, and would hand out two of them in turns."""
    with pooled(url, mode, server_round_robin=round_robin) as through:
        busy(through, sessions)
        finding = found(through)["pooler"]
    assert (finding.value, finding.severity) == (value, severity)


def busy(through: str, sessions: int) -> None:
    """So many transactions at once, and as many sessions that the pooler keeps after them."""
    with ExitStack() as stack:
        for _ in range(sessions):
            stack.enter_context(psycopg.connect(through)).execute("SELECT 1")


@pytest.mark.parametrize(
    ("options", "severity", "words"),
    [
        ({**SPOOLED, "is_chosen": True}, WARNS, "rows wait in the spool"),
        (PREPARED, WARNS, "keeps a session of the pool"),
        (SPOOLED, FINE, "an epoch is one transaction"),
        (UPSERT, FINE, "an epoch is one transaction"),
    ],
)
def test_a_pooler_in_transaction_mode_is_in_the_way_of_prepared_slots_only(url, options, severity, words):
    with pooled(url, "transaction") as through:
        finding = found(through, **options)["pooler"]
    assert finding.severity is severity
    assert words in finding.why


def test_a_pooler_with_one_connection_is_found(url):
    with pooled(url, "transaction", default_pool_size="1") as through:
        assert found(through)["pooler"].severity is WARNS


def test_a_pooler_that_lets_no_transaction_through_is_found(url):
    with pooled(url, "statement") as through:
        (probe,) = [p for p in postgres_probes(subject_of(through)) if p.name == "pooler"]
        assert (probe.look().value, probe.look().severity) == ("statement mode", BREAKS)


@pytest.mark.parametrize(("number", "severity"), [(110022, BREAKS), (120000, FINE), (180004, FINE)])
def test_a_server_that_is_too_old_is_found(number, severity):
    assert _postgres_probes._server_version(number, "x").severity is severity


def test_of_a_server_that_is_too_old_nothing_else_is_claimed(url, monkeypatch):
    monkeypatch.setattr("pakka.sinks._postgres_facts.OLDEST", 990000)
    findings = [p.look() for p in postgres_probes(subject_of(url)) if p.is_cheap]
    assert {(f.value, f.severity) for f in findings} == {("not known", WARNS)}
