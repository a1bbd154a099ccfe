"""What the PostgreSQL sink has answered outlives the server, also where it lets the server write it later."""

from collections.abc import Iterator

import psycopg
import pytest

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
