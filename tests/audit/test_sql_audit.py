"""The auditor on real SQL servers: all four guarantees are seen, whichever way rows are kept, and nothing is left behind."""

import psycopg
import pytest

from pakka.audit.report import Verdict
from pakka.audit.run import audit
from pakka.contract.audit import Severity
from pakka.sinks.mysql import MysqlSink
from tests.audit.command import told
from tests.fixtures import mysql, postgres


def seen(report: dict) -> dict[str, str]:
    return {answer["guarantee"]: answer["verdict"] for answer in report["guarantees"]}


ALL_PASS = {
    "isolation": str(Verdict.PASS),
    "prepare/commit separation": str(Verdict.PASS),
    "idempotent commit and abort": str(Verdict.PASS),
    "duplicate-id rejection": str(Verdict.PASS),
}


@pytest.mark.postgres
@pytest.mark.parametrize(("room", "way"), [("16", "prepared"), ("0", "spooled")])
def test_a_postgres_sink_keeps_all_four_the_way_that_its_server_allows(room, way):
    with postgres.running_server(postgres.need_binaries(), max_prepared_transactions=room) as server:
        url = server.create_database()
        report = told(url)
        assert seen(report) == ALL_PASS
        assert report["promise"]["way"] == way
        weak = {f["name"]: (f["value"], f["severity"]) for f in report["settings"] if f["severity"] != "fine"}
        assert weak == ({} if way == "prepared" else {"max_prepared_transactions": ("0", "warns")})
        with psycopg.connect(url) as db:
            assert db.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []
            assert db.execute("SELECT relname FROM pg_class WHERE relname LIKE 'pakka%'").fetchall() == []


PIPELINE = """\
pipeline: refunds
source: {rate: {rows_per_epoch: 10}}
sinks: {refunds: {postgres: {url: "${env:SHOP}", table: refunds}}}
slots: 65
"""


@pytest.mark.postgres
def test_a_sink_of_a_pipeline_is_audited_the_way_that_its_runs_go(postgres_url, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP", postgres_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refunds.yaml").write_text(PIPELINE)
    report = told("refunds.yaml#refunds")
    assert report["promise"]["way"] == "spooled"
    assert seen(report) == ALL_PASS


@pytest.mark.mysql
@pytest.mark.parametrize("way", ["prepared", "spooled"])
def test_a_mysql_sink_keeps_all_four_either_way(mysql_url, way):
    report = audit(MysqlSink(mysql_url, "refunds", way=way), "mysql")
    assert seen(report.to_json()) == ALL_PASS
    assert [f for f in report.findings if f.severity is not Severity.FINE] == []
    assert mysql.query(mysql_url, "SHOW TABLES") == []


@pytest.mark.mysql
def test_the_command_sees_the_same_of_a_mysql_server(mysql_url):
    assert seen(told(mysql_url)) == ALL_PASS
    assert mysql.query(mysql_url, "SHOW TABLES") == []
