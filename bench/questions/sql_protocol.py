"""What does exactly-once cost on PostgreSQL, against the same COPY without prepare, fence and ledger?

Twice: in Spark, as a pipeline runs, by Spark's own time of an epoch; and without Spark, where nothing else hides it.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench import engine, rows, scratch, sql
from bench.answer import Answer, Figure, Goal, Spread
from bench.append import Append
from bench.engine import Run
from bench.measure import Taken, clocked, in_turns
from bench.plain import PlainCopy
from bench.questions.protocol import SLOTS, Deliver, exactly_once
from pakka.sinks.postgres import PostgresSink
from pakka.spark.decimals import unscaled
from tests.fixtures.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EPOCH_ROWS = {"tiny": (200,), "small": (1_000, 10_000, 50_000, 500_000), "full": (1_000, 10_000, 50_000, 500_000)}
EPOCHS = {"tiny": 2, "small": 6, "full": 20}
"""In one run of a query; half of them where an epoch is large. Its figure is their median, without the first."""
ROUNDS = {"tiny": 1, "small": 3, "full": 9}
WARM_UPS = {"tiny": 0, "small": 1, "full": 2}
GOAL = Goal(1.05, words="at most 1.05x the time")
_GOAL_FROM = 50_000
_LARGE = 100_000


def answer(size: str) -> Answer:
    with sql.postgres_server() as server, scratch.directory("sql-protocol") as place:
        if server is None:
            return Answer("sql-protocol", size, (), (sql.NO_POSTGRES,), 0)
        spark = engine.open_spark(PostgresSink(server.url("postgres"), sql.TABLE))
        figures: list[Figure] = []
        for count in EPOCH_ROWS[size]:
            epochs = max(2, EPOCHS[size] // (2 if count >= _LARGE else 1))
            figures += _in_spark(spark, server, place, count, epochs, size)
            figures += _without_spark(server, place, count, size)
    notes = (
        "The plain side has the same encoder, connections and statements up to COPY, and then COMMIT: no prepare, no fence, no ledger, no "
        "decision, no state store. In Spark it is a task of foreachBatch and mapInArrow, once with rows that cross to Python as pakka's do, with the hashes that make the "
        "checksum, and once, `bare`, without either: a task that knows nothing of pakka.",
        f"In Spark: Spark's time of an epoch, the median of those of a run. Without: {SLOTS} slots, written one after the other.",
    )
    return Answer("sql-protocol", size, tuple(figures), notes, ROUNDS[size])


def _in_spark(
    spark: SparkSession, server: PostgresServer, place: Path, count: int, epochs: int, size: str
) -> list[Figure]:
    files = engine.FILES_PER_EPOCH * epochs
    frame = engine.read_files(spark, rows.parquet_files(spark, count * epochs, files))
    work = Append(frame, place, partial(sql.postgres_database, server), sql.postgres_sum)
    sides = {
        "pakka": work.pakka(lambda url: PostgresSink(url, sql.TABLE, way="prepared")),
        "plain": work.each(partial(_plain_epoch, crossing=_Crossing.of(frame))),
        "bare": work.each(_plain_epoch),
    }
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    times = {name: [epoch_s(run) for run in side] for name, side in runs.items()}
    cpu = {name: [run.cpu_s / epochs for run in side] for name, side in runs.items()}
    what = f"{count:,} rows an epoch in Spark"
    against_bare = Figure(f"{what}, against bare", Spread.ratio(times["pakka"], times["bare"]), "x", _goal(count))
    return [*figures_of(what, times, cpu, _goal(count)), against_bare]


@dataclass(frozen=True)
class _Crossing:
    """Rows as they cross to Python in pakka, with their hashes: made once for all epochs, as there."""

    columns: list[Column]
    wire: pa.Schema

    @classmethod
    def of(cls, frame: DataFrame) -> _Crossing:
        from pyspark.sql.functions import col, xxhash64
        from pyspark.sql.pandas.types import to_arrow_schema

        columns = [*map(col, frame.columns), xxhash64(*frame.columns).alias("hash")]
        kinds = frame.select(*columns).schema
        crossing = zip(unscaled(columns, kinds, frame.sparkSession), kinds.names, strict=True)
        return cls([column.alias(name) for column, name in crossing], to_arrow_schema(kinds, timezone="UTC"))


def _plain_epoch(url: str, crossing: _Crossing | None = None) -> engine.OnBatch:
    task = PlainCopy(url, crossing.wire if crossing is not None else None)

    def on_batch(batch: DataFrame, _: int) -> None:
        rows = batch.select(*crossing.columns) if crossing is not None else batch
        rows.coalesce(sql.PARTITIONS).mapInArrow(task, "answer string").collect()

    return on_batch


def epoch_s(run: Run) -> float:
    """The first epoch opens connections and compiles, on either side."""
    return statistics.median(float(e["durationMs"]["triggerExecution"]) for e in run.epochs[1:]) / 1e3


def _without_spark(server: PostgresServer, place: Path, count: int, size: str) -> list[Figure]:
    batches = rows.arrow_batches(count, min(10_000, -(-count // SLOTS)))
    with (
        sql.postgres_database(server) as ours,
        sql.postgres_database(server) as plain,
        exactly_once(place / f"{count}", PostgresSink(ours, sql.TABLE, way="prepared"), batches) as deliver,
    ):
        sides = {"pakka": deliver, "plain": _plain(plain, batches)}
        taken = in_turns(sides, ROUNDS[size] * (3 if count < _LARGE else 1), WARM_UPS[size])
    wall = {name: [t.wall_s for t in side] for name, side in taken.items()}
    cpu = {name: [t.cpu_s for t in side] for name, side in taken.items()}
    return figures_of(f"{count:,} rows an epoch without Spark", wall, cpu, _goal(count))


def _plain(url: str, batches: list[pa.RecordBatch]) -> Deliver:
    copy, share = PlainCopy(url), -(-len(batches) // SLOTS)

    def write() -> None:
        for number in range(SLOTS):
            copy.write(batches[number * share : (number + 1) * share])

    def deliver() -> Taken:
        os.sync()
        return clocked(write)

    return deliver


def figures_of(what: str, wall: dict[str, list[float]], cpu: dict[str, list[float]], goal: Goal | None) -> list[Figure]:
    """How the time of `pakka` stands to that of `plain`, and both."""
    return [
        Figure(what, Spread.ratio(wall["pakka"], wall["plain"]), "x", goal),
        Figure(f"{what}, processor time", Spread.ratio(cpu["pakka"], cpu["plain"]), "x"),
        *(Figure(f"{what}, {name}", Spread.of(times).scaled(1e3), "ms") for name, times in wall.items()),
    ]


def _goal(count: int) -> Goal | None:
    return GOAL if count >= _GOAL_FROM or count < 1_000 else None
