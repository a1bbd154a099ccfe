"""Whole pipelines on Spark into PostgreSQL and MariaDB, both ways, read back by the servers' own libraries."""

import datetime as dt
import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import pakka
from pakka.cli import main
from pakka.errors import SinkError
from pakka.model.rule import Rule
from tests.docs.pages import ROOT, blocks
from tests.faults.sql.ground import Ground
from tests.integration.conftest import write_lines
from tests.integration.test_sinks_spark import COLUMNS, SCHEMA, files, settlements

pytestmark = pytest.mark.spark

UPSERT = {"mode": "upsert", "key": ("id",)}


def table(base: Ground, name: str, **options):
    """pakka's sink for a table of the test's database."""
    return base.system.sink(base.url, name, **options)


def ids(base: Ground, name: str) -> list[int]:
    return [number for (number,) in base.ask(f"SELECT id FROM {name} ORDER BY id")]


def check_nothing_is_prepared(base: Ground) -> None:
    assert base.ask({"postgres": "SELECT gid FROM pg_prepared_xacts", "mariadb": "XA RECOVER"}[base.system.name]) == []


VALUES = {**COLUMNS, "thin": "CAST('NaN' AS FLOAT)", "noon": "TIMESTAMP'2026-03-29 02:30:00 Europe/Berlin'"}
REFUSED = {"postgres": (), "mariadb": ("nan", "thin", "endless")}
"""What a server has no value for; the sink refuses it, which is tested without Spark."""
JSON = {"postgres": (), "mariadb": ("list", "map", "deep")}
"""What a server's own library shows as text."""
SHOWN = {
    "postgres": {"map": {"b": 1, "a": None}},
    "mariadb": {
        "truth": 1,
        "at": dt.datetime(2026, 11, 15, 1, 2, 3, 456789),
        "early": dt.datetime(1001, 1, 1),
        "noon": dt.datetime(2026, 3, 29, 1, 30),
        "map": [["b", 1], ["a", None]],
        "deep": {"x": 1, "y": [{"k": "k", "v": "1.50"}], "z": None},
    },
}
"""What a server's own library shows otherwise than Spark; instants in UTC."""


def test_sparks_values_arrive_unchanged_both_ways(spark, here, base):
    """One row of hard values, and one of nulls."""
    names = [name for name in VALUES if name not in REFUSED[base.system.name]]
    chosen = ", ".join(f"IF(id = 0, {VALUES[name]}, NULL) AS {name}" for name in names)
    process = f"SELECT id, {chosen} FROM source"
    write_lines(here / "data/0.json", settlements(0, 2))
    sinks = {"added": table(base, "added", way="prepared"), "newest": table(base, "newest", **UPSERT)}
    pakka.run(pakka.Pipeline("refunds", files(), sinks, process))
    alone = spark.sql(process.replace("FROM source", "FROM (SELECT 0L AS id)")).toArrow()
    wanted = {name: alone[name][0].as_py() for name in names} | SHOWN[base.system.name]
    for sink in sinks:
        hard, nothing = base.ask(f"SELECT * FROM {sink} ORDER BY id")
        assert (hard[0], nothing) == (0, (1, *[None] * len(names)))
        for name, found in zip(names, hard[1:], strict=True):
            found = json.loads(found) if name in JSON[base.system.name] else found
            assert (type(found), _comparable(found)) == (type(wanted[name]), _comparable(wanted[name])), (sink, name)


def _comparable(value):
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_the_last_row_of_a_key_stays_over_slots_and_epochs(spark, here, base):
    """Two files are two slots, whose rows of one key would wait for each other if they were prepared."""
    sink = table(base, "newest", mode="upsert", key=("merchant",), version="id")
    pipeline = pakka.Pipeline("refunds", files(), {"newest": sink})
    for first in (0, 20):
        write_lines(here / f"data/{first}.json", settlements(first, 10))
        write_lines(here / f"data/{first + 10}.json", settlements(first + 10, 10))
        pakka.run(pipeline)
    assert base.ask("SELECT merchant, id, amount FROM newest ORDER BY merchant") == [
        ("m0", 39, 390),
        ("m1", 37, 370),
        ("m2", 38, 380),
    ]
    assert base.ask("SELECT epoch, slot, rows FROM pakka_ledger ORDER BY epoch".replace("rows", _rows(base))) == [
        (0, -1, 20),
        (1, -1, 20),
    ]


def _rows(base: Ground) -> str:
    return {"postgres": "rows", "mariadb": "`rows`"}[base.system.name]


def test_a_row_that_the_table_refuses_stops_the_epoch_until_a_rule_sends_it_to_a_table_of_dead_letters(
    spark, here, base
):
    base.ask("CREATE TABLE refunds (id bigint PRIMARY KEY, merchant varchar(9), amount bigint)")
    base.ask("ALTER TABLE refunds ADD CONSTRAINT owed CHECK (amount >= 0)")
    write_lines(here / "data/0.json", [*settlements(0, 5), {"id": 5, "merchant": "m5", "amount": -50}])
    write_lines(here / "data/1.json", settlements(6, 4))
    sinks = {"refunds": table(base, "refunds", way="prepared"), "copy": table(base, "copy", way="spooled")}
    pipeline = pakka.Pipeline("refunds", files(), sinks, dead_letters=table(base, "dead"))
    with pytest.raises(SinkError, match=r"(?s)(?=.*owed)(?=.*\b5\b.*-50).*nothing (of it is|was made) visible"):
        pakka.run(pipeline)
    assert ids(base, "refunds") == []
    check_nothing_is_prepared(base)
    pakka.run(replace(pipeline, quality=(Rule.range("amount", 0, 1000),)))
    assert ids(base, "refunds") == ids(base, "copy") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    ((name, epoch, _, rules, row),) = base.ask("SELECT * FROM dead")
    rules = json.loads(rules) if isinstance(rules, str) else rules
    assert (name, epoch, rules) == ("refunds", 0, ["range(amount, 0..1000)"])
    assert json.loads(row) == {"id": 5, "merchant": "m5", "amount": -50}
    check_nothing_is_prepared(base)


def mortal(sink, mark: Path):
    """The sink in a worker that is killed, once, right after a slot of it was prepared."""

    class Mortal(type(sink)):
        def open_prepared_writer(self, binding, slot, schema):
            writer = super().open_prepared_writer(binding, slot, schema)
            prepare = writer.prepare

            def prepare_and_die(checksum):
                prepared = prepare(checksum)
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return prepared
                os.kill(os.getpid(), signal.SIGKILL)

            writer.prepare = prepare_and_die
            return writer

    return Mortal(sink.url, sink.table, way=sink.way)


def test_a_worker_killed_after_it_has_prepared_leaves_nothing_twice_and_nothing_prepared(spark, here, base):
    """Its slot is tried again. With a unique key the second attempt has to get past the rows of the first."""
    base.ask("CREATE TABLE keyed (id bigint PRIMARY KEY, merchant varchar(9), amount bigint)")
    for number in range(2):
        write_lines(here / f"data/{number}.json", settlements(number * 10, 10))
    mark = here / "killed"
    sinks = {
        "plain": table(base, "plain", way="prepared"),
        "keyed": mortal(table(base, "keyed", way="prepared"), mark),
        "newest": table(base, "newest", **UPSERT),
    }
    pakka.run(pakka.Pipeline("refunds", files(), sinks))
    assert mark.exists()
    for name in sinks:
        assert ids(base, name) == list(range(20))
    ledger = base.ask("SELECT sink, slot, attempt FROM pakka_ledger WHERE slot >= 0 ORDER BY sink, slot")
    assert [row[:2] for row in ledger] == [("keyed", 0), ("keyed", 1), ("plain", 0), ("plain", 1)]
    # Two slots have three attempts, and the one that was killed is not among those that count.
    attempts = {attempt for *_, attempt in ledger}
    assert len(attempts) == 2
    assert max(attempts) - min(attempts) in (1, 2)
    check_nothing_is_prepared(base)


def test_a_stream_that_went_to_a_table_by_hand_goes_on_as_the_guide_says(spark, here, base):
    """docs/guides/from-jdbc.md, word for word, but for the trigger, without which it would never end."""
    page = ROOT / "docs/guides/from-jdbc.md"
    code, described = (
        next(b.text for b in blocks(page) if b.language == language and "state" in b.text)
        for language in ("python", "yaml")
    )
    if base.system.name == "mariadb":
        code = code.replace("sinks.postgres", "sinks.mysql").replace("PostgresSink", "MysqlSink")
        described = described.replace("postgres: {", "mysql: {")
    code = code.replace(".start()", ".trigger(availableNow=True).start()").replace("ckpt", str(here / "ckpt"))

    def write(batch, epoch):
        """The old way, in which JDBC's part is played by Python."""
        for row in batch.collect():
            base.ask(f"INSERT INTO refunds VALUES ({row.id}, '{row.merchant}', {row.amount})")

    base.ask("CREATE TABLE refunds (id bigint, merchant varchar(9), amount bigint)")
    write_lines(here / "data/0.json", settlements(0, 3))
    stream = spark.readStream.schema(SCHEMA).json(str(here / "data"))
    old = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(here / "ckpt"))
    old.trigger(availableNow=True).start().awaitTermination()
    write_lines(here / "data/1.json", settlements(3, 3))
    with pytest.raises(Exception, match="pakka reset refunds --checkpoint"):
        exec(code, {"stream": stream, "url": base.url})
    assert ids(base, "refunds") == [0, 1, 2]
    pipeline = yaml.safe_load(described)
    next(iter(pipeline["sinks"]["refunds"].values()))["url"] = base.url
    (here / "refunds.yaml").write_text(yaml.safe_dump({**pipeline, "checkpoint": "ckpt"}))
    words = ["reset", "refunds", "--checkpoint", "--file", "refunds.yaml", "--yes"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    for number in (2, 3):
        exec(code, {"stream": stream, "url": base.url})
        assert ids(base, "refunds") == list(range(number * 3))
        write_lines(here / f"data/{number}.json", settlements(number * 3, 3))
    check_nothing_is_prepared(base)
