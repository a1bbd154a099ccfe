"""What the PostgreSQL sink has answered outlives the server, and what the server works on for long is waited for."""

from collections.abc import Iterator

import psycopg
import pytest

from pakka import postgres_line
from pakka.coordinator.epoch import Harvest
from pakka.sinks.postgres import PostgresSink
from tests.fixtures import postgres
from tests.fixtures.postgres import PostgresServer
from tests.unit.coordinator.stage import Stage

pytestmark = pytest.mark.postgres


@pytest.fixture
def slow_server() -> Iterator[PostgresServer]:
    """What is committed without waiting for the disk stays in this server's memory for ten seconds."""
    with postgres.running_server(postgres.need_binaries(), wal_writer_delay="10s") as server:
        yield server


@pytest.mark.parametrize("empty", [True, False], ids=["an epoch without slots", "an epoch with slots"])
def test_an_epoch_that_was_delivered_is_in_the_ledger_after_a_power_cut(slow_server, empty):
    url = slow_server.create_database()
    stage = Stage({"refunds": PostgresSink(url, "refunds", way="prepared")})
    stage.run(0)
    driver = stage.driver()
    driver.start(stage.checkpoint())
    stage.planned = 1
    driver.deliver(stage.origin(1), (lambda *_: Harvest(0, [])) if empty else stage.prepare)
    stage.acknowledged = 1
    slow_server.kill()
    slow_server.restart()
    driver.stop()
    stage.run(2)
    delivered = [i for i in stage.ids(2) if not empty or i // 6 != 1]
    with psycopg.connect(url) as db:
        assert sorted(i for (i,) in db.execute("SELECT id FROM refunds")) == delivered
        assert db.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() == (0,)


SLOW = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(6); RETURN NULL; END'"
AT_THE_END = {
    "of a COPY": "CREATE TRIGGER t AFTER INSERT ON refunds FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    "of a transaction": "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON refunds DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
    "WHEN (NEW.id % 3 = 0) EXECUTE FUNCTION slow()",
}


@pytest.mark.parametrize("way", ["prepared", "spooled"])
@pytest.mark.parametrize("end", AT_THE_END)
def test_a_server_that_works_long_on_all_rows_at_the_end_is_waited_for(postgres_url, monkeypatch, tmp_path, way, end):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(postgres_line, "ANSWER_S", 5.0)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for statement in ("CREATE TABLE refunds (id bigint)", SLOW, AT_THE_END[end]):
            db.execute(statement)
        stage = Stage({"refunds": PostgresSink(postgres_url, "refunds", way=way)}, slots=1)
        stage.run(0)
        assert sorted(i for (i,) in db.execute("SELECT id FROM refunds")) == stage.ids(0)
