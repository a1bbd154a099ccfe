"""`pakka audit mysql://...` on a live server: it passes, it leaves nothing behind, and a table that forgets is refused."""

import pytest

from pakka.audit.run import audit
from pakka.errors import SchemaError
from pakka.model.id import Binding
from pakka.sinks.mysql import MysqlSink
from tests.fixtures.mysql import query

pytestmark = [pytest.mark.mysql, pytest.mark.slow]


@pytest.fixture(autouse=True)
def spool(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def everything(url: str) -> tuple:
    names = [name for (name,) in query(url, "SHOW TABLES")]
    return names, [query(url, f"SELECT * FROM {name}") for name in names], query(url, "XA RECOVER")


@pytest.mark.parametrize(
    "options", [{}, {"way": "spooled"}, {"mode": "upsert", "key": ("id",)}], ids=["prepared", "spooled", "upsert"]
)
def test_an_audit_passes_and_leaves_the_database_as_it_was(mysql_url, options):
    query(mysql_url, "CREATE TABLE refund (id varchar(20) PRIMARY KEY) ENGINE=InnoDB")
    query(mysql_url, "INSERT INTO refund VALUES ('mine')")
    before = everything(mysql_url)
    report = audit(MysqlSink(mysql_url, "refund", **options), "mysql")
    assert report.is_exactly_once, report.failed
    assert everything(mysql_url) == before


def test_an_audit_leaves_the_fence_and_the_ledger_of_a_pipeline_that_is_there(mysql_url):
    sink = MysqlSink.from_url(mysql_url)
    query(
        mysql_url,
        "CREATE TABLE pakka_fence (pipeline varchar(63), sink varchar(63), fence bigint, PRIMARY KEY (pipeline, sink)) ENGINE=InnoDB",
    )
    query(mysql_url, "INSERT INTO pakka_fence VALUES ('refunds', 'out', 7)")
    scratch = sink.scratch("abc")
    scratch.make()
    assert list(sink.scratch_tokens()) == ["abc"]
    committer = scratch.sink.open_committer(Binding("audit-abc", "audit", ""), 1)
    assert committer.raise_fence()
    committer.close()
    scratch.remove()
    scratch.remove()
    assert query(mysql_url, "SELECT * FROM pakka_fence") == [("refunds", "out", 7)]
    assert list(sink.scratch_tokens()) == []


def test_the_audit_of_a_table_without_transactions_tells_why_it_cannot_pass(mysql_url):
    query(mysql_url, "CREATE TABLE refund (id varchar(20)) ENGINE=MyISAM")
    with pytest.raises(SchemaError, match="MyISAM, which has no transactions") as refused:
        audit(MysqlSink(mysql_url, "refund"), "mysql")
    assert "stay after an abort, while the server reports success for both" in refused.value.message
    assert [name for (name,) in query(mysql_url, "SHOW TABLES")] == ["refund"]
