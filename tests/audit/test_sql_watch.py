"""A SQL server that is weakened while a pipeline runs stops it before the next decision; mended, the next run goes on."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from pakka.contract.sink import Sink
from pakka.errors import RefusedError
from pakka.sinks.mysql import MysqlSink
from pakka.sinks.postgres import PostgresSink
from tests.fixtures import mysql, postgres
from tests.unit.coordinator.stage import Stage


@dataclass(frozen=True)
class Database:
    """A database of one kind of server, and how to talk to it as any program would."""

    make: Callable[..., Sink]
    run: Callable[[str], list]
    prepared: str
    """Lists what is prepared."""

    def ids(self) -> list[int]:
        return sorted(row[0] for row in self.run("SELECT id FROM refunds"))


@pytest.fixture
def postgres_database(monkeypatch) -> Iterator[Database]:
    # A setting on the command line could not be changed.
    monkeypatch.setattr(postgres, "SETTINGS", {"listen_addresses": "127.0.0.1", "max_prepared_transactions": "16"})
    with postgres.running_server(postgres.need_binaries()) as server:
        url = server.create_database()

        def run(statement: str) -> list:
            with psycopg.connect(url, autocommit=True) as db:
                cursor = db.execute(statement)
                return cursor.fetchall() if cursor.description else []

        yield Database(lambda **o: PostgresSink(url, "refunds", **o), run, "SELECT gid FROM pg_prepared_xacts")


@pytest.fixture
def mysql_database() -> Iterator[Database]:
    with mysql.running_server(mysql.need_binaries()) as server:
        url = server.create_database()
        yield Database(lambda **o: MysqlSink(url, "refunds", **o), lambda s: mysql.query(url, s), "XA RECOVER")


def stops(database: Database, sink: Sink, name: str, value: str, weaken: list[str], mend: list[str]) -> None:
    stage = Stage({"refunds": sink})
    driver = stage.driver(probe_every=1)
    driver.start(stage.checkpoint())
    driver.deliver(stage.origin(0), stage.prepare)
    stage.planned = stage.acknowledged = 0
    change(database, sink, name, value, weaken)
    stage.planned = 1
    with pytest.raises(
        RefusedError, match=f"sink `refunds` was weakened while it runs: {name} is `{value}`, which was"
    ):
        driver.deliver(stage.origin(1), stage.prepare)
    assert database.ids() == stage.ids(0)
    assert database.run(database.prepared) == []
    assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
    driver.stop()
    for statement in mend:
        database.run(statement)
    stage.run(2)
    assert database.ids() == stage.ids(2)


def change(database: Database, sink: Sink, name: str, value: str, statements: list[str]) -> None:
    for statement in statements:
        database.run(statement)
    (probe,) = [p for p in sink.probes() if p.name == name]
    give_up = time.monotonic() + 30
    while probe.look().value != value:  # a server takes some settings into use a moment after it was told
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["prepared", "spooled"])
@pytest.mark.parametrize(
    ("name", "value", "weaken", "mend"),
    [
        (
            "fsync",
            "off",
            ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"],
            ["ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()"],
        ),
        (
            "unlogged tables",
            "refunds",
            ["ALTER TABLE refunds SET UNLOGGED"],
            ["ALTER TABLE refunds SET LOGGED"],
        ),
    ],
)
def test_a_postgres_server_that_is_weakened_stops_the_pipeline(
    postgres_database, tmp_path, monkeypatch, way, name, value, weaken, mend
):
    monkeypatch.chdir(tmp_path)
    stops(postgres_database, postgres_database.make(way=way), name, value, weaken, mend)


@pytest.mark.mysql
@pytest.mark.parametrize("way", ["prepared", "spooled"])
@pytest.mark.parametrize(
    ("name", "value", "weaken", "mend"),
    [
        (
            "innodb_flush_log_at_trx_commit",
            "2",
            ["SET GLOBAL innodb_flush_log_at_trx_commit = 2"],
            ["SET GLOBAL innodb_flush_log_at_trx_commit = 1"],
        ),
        ("sync_binlog", "0", ["SET GLOBAL sync_binlog = 0"], ["SET GLOBAL sync_binlog = 1"]),
    ],
)
def test_a_mysql_server_that_is_weakened_stops_the_pipeline(
    mysql_database, tmp_path, monkeypatch, way, name, value, weaken, mend
):
    monkeypatch.chdir(tmp_path)
    stops(mysql_database, mysql_database.make(way=way), name, value, weaken, mend)
