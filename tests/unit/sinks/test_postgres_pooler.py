"""The PostgreSQL sink behind a real PgBouncer in transaction mode: every transaction may be in another session of the server."""

import psycopg
import pytest

from pakka.model.guarantee import Way
from pakka.sinks._postgres_writer import _lines
from pakka.sinks.postgres import PostgresSink
from tests.fixtures.pgbouncer import pooled
from tests.unit.coordinator.stage import Crash, Stage, crash_at

pytestmark = pytest.mark.postgres

UPSERT = {"mode": "upsert", "key": ("id",)}


@pytest.fixture(autouse=True)
def lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    yield
    for kept in _lines.values():
        kept.close()
    _lines.clear()


@pytest.fixture
def through(postgres_url):
    """Two sessions for all, and the one that was not used last comes next."""
    with pooled(postgres_url, "transaction", server_round_robin="1", default_pool_size="2") as url:
        with psycopg.connect(url) as one, psycopg.connect(url) as other:
            # The pooler begins no second session before there are two transactions at once.
            assert len({db.execute("SELECT pg_backend_pid()").fetchone() for db in (one, other)}) == 2
        yield url


def test_auto_takes_the_spooled_way_and_says_why(through):
    guarantee = PostgresSink(through, "refunds").choose().guarantee()
    assert guarantee.way is Way.SPOOLED
    assert guarantee.because.endswith(
        "; chosen because a pooler in transaction mode stands before the server, and a slot that is prepared "
        "keeps a session of its own"
    )


def test_a_pooler_in_session_mode_is_as_good_as_none(postgres_url):
    with pooled(postgres_url, "session") as url:
        guarantee = PostgresSink(url, "refunds").choose().guarantee()
    assert guarantee.way is Way.PREPARED
    assert "max_prepared_transactions is 64" in guarantee.because


@pytest.mark.parametrize("options", [{}, UPSERT, {"way": "prepared"}], ids=["append", "upsert", "prepared"])
def test_epochs_are_delivered_once(through, postgres_url, options):
    stage = Stage({"book": PostgresSink(through, "refunds", **options).choose()})
    stage.run(3)
    assert stage.waits == []  # nothing had to be asked again
    with crash_at("commit.applied"), pytest.raises(Crash):
        stage.run(4)  # visible, and the driver does not know it
    stage.run(5)
    with psycopg.connect(postgres_url) as db:
        assert [i for (i,) in db.execute("SELECT id FROM refunds ORDER BY id")] == stage.ids(5)
        assert db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall() == []
