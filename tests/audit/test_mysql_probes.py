"""Settings of a live server that weaken the sink are named, with what mends them; a right one is left in peace."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pakka.contract.audit import Finding, Severity
from pakka.model.guarantee import Way
from pakka.sinks import _mysql_facts, _mysql_probes
from pakka.sinks._mysql_facts import Version
from pakka.sinks._mysql_line import Address, Line
from pakka.sinks._mysql_probes import Subject, mysql_probes
from tests.fixtures import mysql
from tests.fixtures.mysql import MysqlServer, need_expressions

pytestmark = pytest.mark.mysql

FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS
TABLE = "CREATE TABLE refunds (refund_id varchar(40) PRIMARY KEY, amount bigint) ENGINE = InnoDB"
NO_KEY = "CREATE TABLE refunds (refund_id varchar(40) NOT NULL, amount bigint) ENGINE = InnoDB"
OWN = {
    "pakka_fence": "CREATE TABLE pakka_fence (pipeline varchar(60), sink varchar(60), PRIMARY KEY (pipeline, sink))",
    "pakka_ledger": "CREATE TABLE pakka_ledger (pipeline varchar(60), sink varchar(60), epoch bigint, slot int, fence bigint, "
    "attempt bigint, PRIMARY KEY (pipeline, sink, epoch, slot, fence, attempt))",
}
PREPARED, SPOOLED = {"way": Way.PREPARED}, {"way": Way.SPOOLED}
CHOSEN = {**SPOOLED, "is_chosen": True}
UPSERT = {"mode": "upsert", "key": ("refund_id",), **SPOOLED}


@pytest.fixture(scope="module")
def lax_server() -> Iterator[MysqlServer]:
    with mysql.running_server(mysql.need_binaries()) as server:
        yield server


@pytest.fixture
def url(lax_server) -> Iterator[str]:
    url = lax_server.create_database()
    yield url
    lax_server.drop_database(url)


def do(url: str, *statements: str) -> None:
    with mysql.connect(url) as db, db.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def changed(server: MysqlServer, **settings: object) -> Iterator[None]:
    """Settings that a running server takes."""
    with server.admin() as db, db.cursor() as cursor:
        before = {}
        for name in settings:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            ((before[name],),) = cursor.fetchall()
        try:
            for name, value in settings.items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))
            yield
        finally:
            for name, value in before.items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))


@contextmanager
def restarted(server: MysqlServer, **settings: str) -> Iterator[None]:
    """Settings that a server only takes when it starts."""
    before = dict(server.settings)
    server.settings |= {name.replace("_", "-"): value for name, value in settings.items()}
    server.stop()
    server.restart()
    try:
        yield
    finally:
        server.settings = before
        server.stop()
        server.restart()


def subject_of(url: str, **options) -> Subject:
    address = Address.parse(url)
    return Subject(lambda: Line(address), address.database, **{"table": "refunds", "slots_needed": 2, **options})


def found(url: str, **options) -> dict[str, Finding]:
    findings = {probe.name: probe.look() for probe in mysql_probes(subject_of(url, **options))}
    assert [f.name for f in findings.values()] == list(findings)
    assert all(bool(f.fix) == (f.severity is not FINE) and f.why for f in findings.values())
    return findings


def weak(url: str, **options) -> dict[str, tuple[str, Severity]]:
    return {f.name: (f.value, f.severity) for f in found(url, **options).values() if f.severity is not FINE}


@pytest.mark.parametrize("options", [PREPARED, SPOOLED, CHOSEN, UPSERT, {**UPSERT, "mode": "mirror"}])
@pytest.mark.parametrize("tables", [(), (TABLE, *OWN.values())], ids=["no table yet", "table"])
def test_a_right_server_has_nothing_to_mend(url, options, tables):
    do(url, *tables)
    assert weak(url, **options) == {}


def test_making_the_list_asks_nothing():
    def refuse() -> Line:
        raise AssertionError("asked")

    assert len(mysql_probes(Subject(refuse, "shop", "refunds"))) > 10


def test_a_round_of_probes_takes_one_connection_and_the_next_round_another(url):
    opened = []
    subject = subject_of(url)

    def open_line() -> Line:
        opened.append(subject.open_line())
        return opened[-1]

    probes = mysql_probes(replace(subject, open_line=open_line))
    for rounds in (1, 2):
        assert {probe.look().severity for probe in probes} == {FINE}
        assert len(opened) == rounds
    assert not any(line.is_open for line in opened)


@pytest.mark.parametrize(
    ("name", "setting", "value", "told", "severity"),
    [
        ("innodb_flush_log_at_trx_commit", None, 0, "0", BREAKS),
        ("innodb_flush_log_at_trx_commit", None, 2, "2", BREAKS),
        ("sync_binlog", None, 0, "0", BREAKS),
        ("sync_binlog", None, 100, "100", BREAKS),
        ("sql_mode", None, "NO_ENGINE_SUBSTITUTION", "NO_ENGINE_SUBSTITUTION", WARNS),
        ("sql_mode", None, "", "empty", WARNS),
        ("read only", "read_only", 1, "read_only", BREAKS),
    ],
)
def test_a_setting_that_weakens_is_found_while_the_server_runs(lax_server, url, name, setting, value, told, severity):
    with changed(lax_server, **{setting or name: value}):
        assert weak(url) == {name: (told, severity)}
        fix = found(url)[name].fix
        if fix.startswith("SET GLOBAL"):
            do(url, fix)
            assert weak(url) == {}
    assert weak(url) == {}


def test_load_data_switched_off_slows_down_mysql_and_not_mariadb(lax_server, url, monkeypatch):
    with changed(lax_server, local_infile=0):
        monkeypatch.setattr(Version, "parse", lambda text: Version(True, (10, 11, 6), text))
        assert "local_infile" not in weak(url)
        monkeypatch.setattr(Version, "parse", lambda text: Version(False, (8, 0, 36), text))
        assert weak(url)["local_infile"] == ("OFF", WARNS)
        do(url, found(url)["local_infile"].fix)
        assert "local_infile" not in weak(url)


def test_flushing_more_than_is_needed_is_fine(lax_server, url):
    if not lax_server.is_mariadb:
        pytest.skip("MySQL takes 3 for 2")
    with changed(lax_server, innodb_flush_log_at_trx_commit=3):
        assert weak(url) == {}


def test_a_session_that_is_not_strict_is_found(url):
    def open_line() -> Line:
        line = Line(Address.parse(url))
        line.ask("SET SESSION sql_mode = ''")
        return line

    findings = {p.name: p.look() for p in mysql_probes(replace(subject_of(url), open_line=open_line))}
    assert (findings["sql_mode"].value, findings["sql_mode"].severity) == ("empty", BREAKS)


def test_settings_that_a_server_takes_only_when_it_starts_are_found(lax_server, url):
    settings = {"innodb_doublewrite": "0", "innodb_force_recovery": "1", "innodb_rollback_on_timeout": "1"}
    with restarted(lax_server, **settings, sync_binlog="0", skip_log_bin="1"):
        findings = found(url)
        assert weak(url) == {"innodb_doublewrite": ("OFF", BREAKS), "innodb_force_recovery": ("1", BREAKS)}
    assert (findings["innodb_rollback_on_timeout"].value, findings["sync_binlog"].value) == ("ON", "no binary log")
    assert weak(url) == {}


def test_too_few_connections_for_the_slots_are_found(lax_server, url):
    with changed(lax_server, max_connections=20):
        assert weak(url) == {}
        value, severity = weak(url, slots_needed=18)["max_connections"]
    assert (value, severity) == ("20, 2 in use", WARNS)


def need_engine(server: MysqlServer, engine: str) -> None:
    if engine == "Aria" and not server.is_mariadb:
        pytest.skip("Aria is MariaDB's own")


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY", "CSV"])
@pytest.mark.parametrize("options", [PREPARED, SPOOLED, UPSERT])
def test_an_engine_without_transactions_is_refused_with_its_story(lax_server, url, engine, options):
    need_engine(lax_server, engine)
    do(url, f"CREATE TABLE refunds (refund_id varchar(40) NOT NULL, amount bigint NOT NULL) ENGINE = {engine}")
    finding = found(url, **options)["storage engine"]
    assert (finding.value, finding.severity) == (f"{engine} of refunds", BREAKS)
    assert f"{engine} has no transactions: XA PREPARE and XA ROLLBACK report success and the rows stay" in finding.why
    do(url, finding.fix)
    assert found(url, **options)["storage engine"].severity is FINE


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_the_story_is_true(lax_server, url, engine):
    need_engine(lax_server, engine)
    do(url, f"CREATE TABLE refunds (refund_id varchar(40)) ENGINE = {engine}")
    with mysql.connect(url) as db, db.cursor() as cursor:
        for statement in (
            "XA START 's'",
            "INSERT INTO refunds VALUES ('r-1')",
            "XA END 's'",
            "XA PREPARE 's'",
            "XA ROLLBACK 's'",
        ):
            cursor.execute(statement)
    assert mysql.query(url, "SELECT refund_id FROM refunds") == [("r-1",)]


@pytest.mark.parametrize("table", OWN)
def test_pakkas_own_tables_are_looked_at_too(url, table):
    do(url, TABLE, *OWN.values(), f"ALTER TABLE {table} ENGINE = MyISAM")
    assert weak(url) == {"storage engine": (f"MyISAM of {table}", BREAKS)}
    do(url, f"ALTER TABLE {table} ENGINE = InnoDB, DROP PRIMARY KEY")
    assert weak(url) == {"keys of pakka's tables": (table, BREAKS)}
    do(url, found(url)["keys of pakka's tables"].fix)
    assert weak(url) == {}


@pytest.mark.parametrize("options", [PREPARED, SPOOLED])
def test_a_view_and_a_missing_table_are_found(url, options):
    assert weak(url, **options, create=False) == {"storage engine": ("no table", BREAKS)}
    do(url, "CREATE VIEW refunds AS SELECT 1 AS id")
    assert weak(url, **options) == {"storage engine": ("view", BREAKS)}


def test_triggers_are_named(url):
    do(url, TABLE, "CREATE TRIGGER tell BEFORE INSERT ON refunds FOR EACH ROW SET NEW.amount = 1")
    assert weak(url) == {"triggers": ("tell", WARNS)}


@pytest.mark.parametrize(
    ("index", "value", "reason"),
    [
        ("ADD INDEX i (refund_id)", "none", "nothing keeps"),
        ("ADD UNIQUE INDEX i (refund_id, amount)", "none", "nothing keeps"),
        ("ADD UNIQUE INDEX i (refund_id(4))", "i", "the beginning of `refund_id`"),
        ("ADD UNIQUE INDEX i ((lower(refund_id)))", "none", "nothing keeps"),
        ("MODIFY refund_id varchar(40) NULL, ADD UNIQUE INDEX i (refund_id)", "i", "two NULLs"),
    ],
)
@pytest.mark.parametrize("mode", ["upsert", "mirror"])
def test_a_key_that_is_not_unique_is_found(lax_server, url, index, value, reason, mode):
    need_expressions(lax_server, index)
    do(url, NO_KEY, f"ALTER TABLE refunds {index}")
    finding = found(url, mode=mode, key=("refund_id",))["unique key"]
    assert (finding.value, finding.severity) == (value, BREAKS)
    assert reason in finding.why
    do(url, finding.fix)
    assert found(url, mode=mode, key=("refund_id",))["unique key"].severity is FINE
    assert weak(url) == {}, "rows that are only added need no key"


@pytest.mark.parametrize(
    ("index", "severity"),
    [
        ("ADD UNIQUE INDEX i (amount)", BREAKS),
        ("ADD COLUMN email varchar(200), ADD UNIQUE INDEX i (email(3))", BREAKS),
        ("ADD COLUMN email varchar(200), ADD UNIQUE INDEX i (email(3), refund_id)", FINE),
        ("ADD UNIQUE INDEX i (refund_id(4), amount)", BREAKS),
        ("ADD UNIQUE INDEX i (amount, refund_id)", FINE),
        ("ADD UNIQUE INDEX i ((amount + 1))", BREAKS),
        ("ADD UNIQUE INDEX i ((amount + 1), refund_id)", FINE),
        ("ADD COLUMN id bigint AUTO_INCREMENT, ADD UNIQUE INDEX i (id)", FINE),
        ("ADD INDEX i (amount)", FINE),
    ],
)
def test_a_row_that_would_be_found_by_another_key_is_found(lax_server, url, index, severity):
    need_expressions(lax_server, index)
    do(url, TABLE, f"ALTER TABLE refunds {index}")
    finding = found(url, **UPSERT)["other unique keys"]
    assert (finding.value, finding.severity) == ("none" if severity is FINE else "i", severity)
    if finding.fix:
        do(url, finding.fix)
    assert weak(url, mode="upsert", key=("REFUND_ID",)) == {}


def test_a_branch_that_was_forgotten_is_found_also_after_a_restart(lax_server, url, monkeypatch):
    do(
        url,
        TABLE,
        "XA START 'theirs'",
        "INSERT INTO refunds VALUES ('r-1', 1)",
        "XA END 'theirs'",
        "XA PREPARE 'theirs'",
    )
    assert weak(url) == {}
    monkeypatch.setattr(_mysql_probes, "OLD_S", 0.0)
    for _ in range(2):
        finding = found(url)["old prepared branches"]
        assert finding.severity is WARNS
        assert finding.value.startswith("1, the oldest for ")
        assert finding.fix.startswith("XA RECOVER FORMAT='SQL'" if lax_server.is_mariadb else "XA RECOVER CONVERT XID")
        lax_server.kill()
        lax_server.restart()
    do(url, "XA ROLLBACK 'theirs'")
    do(url, "XA START 'pakka.1'", "INSERT INTO refunds VALUES ('r-1', 1)", "XA END 'pakka.1'", "XA PREPARE 'pakka.1'")
    assert found(url)["old prepared branches"].fix == "pakka indoubt list"


def test_a_user_who_may_not_see_ages_still_sees_branches(lax_server, url):
    poor = as_poor(lax_server, url)
    do(url, TABLE, "XA START 'x'", "INSERT INTO refunds VALUES ('r-1', 1)", "XA END 'x'", "XA PREPARE 'x'")
    finding = found(poor)["old prepared branches"]
    assert (finding.value, finding.severity) == ("1 of unknown age", FINE)
    assert weak(poor) == {}


def as_poor(server: MysqlServer, url: str) -> str:
    """The same database for a user with no right but to its rows, and to see what is prepared."""
    database = mysql.database_of(url)
    with server.admin() as db, db.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS poor@'%'")
        cursor.execute("CREATE USER poor@'%' IDENTIFIED BY 'x'")
        cursor.execute(f"GRANT SELECT, INSERT, CREATE ON {database}.* TO poor@'%'")
        if not server.is_mariadb:
            cursor.execute("GRANT XA_RECOVER_ADMIN ON *.* TO poor@'%'")
    return url.replace(f"{mysql.USER}:{mysql.PASSWORD}", "poor:x")


# What follows cannot be had from the server that is here: rights of MySQL 8, old versions, a Galera cluster.


@pytest.mark.parametrize(
    ("options", "severity", "fix"),
    [
        (CHOSEN, WARNS, ""),
        (SPOOLED, FINE, ""),
        (PREPARED, BREAKS, "; or set `way: spooled`"),
        ({**PREPARED, "is_chosen": True}, BREAKS, "; or run again, which takes the spool"),
    ],
)
@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("right to XA RECOVER", {"branches": None}),
        ("wsrep_on", {"settings": {"wsrep_on": "ON"}}),
        ("server version", {"version": Version.parse("10.4.34-MariaDB")}),
        ("server version", {"version": Version.parse("5.7.6")}),
    ],
)
def test_a_server_whose_xa_does_not_hold_is_found(url, monkeypatch, options, severity, fix, name, facts):
    right = _mysql_facts.read_facts(subject_of(url).open_line, mysql.database_of(url), "refunds")
    settings = {**right.settings, **facts.get("settings", {})}
    wrong = replace(right, **{**facts, "settings": settings})
    monkeypatch.setattr(_mysql_probes, "read_facts", lambda *_: wrong)
    finding = found(url, **options)[name]
    assert finding.severity is severity
    assert finding.fix.endswith(fix)


@pytest.mark.parametrize(
    ("text", "log_bin", "severity"),
    [("8.0.29", "ON", WARNS), ("8.0.29", "OFF", FINE), ("8.0.30", "ON", FINE), ("10.5.1-MariaDB", "ON", FINE)],
)
def test_a_binary_log_that_a_crash_can_part_from_the_tables_is_found(url, monkeypatch, text, log_bin, severity):
    right = _mysql_facts.read_facts(subject_of(url).open_line, mysql.database_of(url), "refunds")
    wrong = replace(right, version=Version.parse(text), settings={**right.settings, "log_bin": log_bin})
    monkeypatch.setattr(_mysql_probes, "read_facts", lambda *_: wrong)
    finding = found(url)["server version"]
    assert finding.severity is severity
    assert finding.fix.endswith("set `way: spooled`" if severity is WARNS else "")
    assert found(url, **SPOOLED)["server version"].severity is FINE
    spooled = found(url, **CHOSEN)["server version"]
    assert ("rows wait in the spool" in spooled.why) == (text == "8.0.29"), (
        "a sink that may choose takes the spool there"
    )
    assert "way" not in spooled.fix


@pytest.mark.parametrize(
    ("text", "is_mariadb", "number", "survives"),
    [
        ("10.11.19-MariaDB-0+deb12u1-log", True, (10, 11, 19), True),
        ("5.5.5-10.6.12-MariaDB", True, (10, 6, 12), True),
        ("10.4.34-MariaDB", True, (10, 4, 34), False),
        ("8.0.36", False, (8, 0, 36), True),
        ("8.4.3-commercial", False, (8, 4, 3), True),
        ("5.7.6-m16", False, (5, 7, 6), False),
        ("5.6.51-log", False, (5, 6, 51), False),
    ],
)
def test_versions_are_told_apart(text, is_mariadb, number, survives):
    version = Version.parse(text)
    assert (version.is_mariadb, version.number) == (is_mariadb, number)
    assert _mysql_probes.survives_disconnect(version) is survives
