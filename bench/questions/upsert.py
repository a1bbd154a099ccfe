"""How long does an upsert into a large table take, against foreachBatch by hand: JDBC into a staging table, then INSERT ... ON CONFLICT?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench import append, engine, rows, scratch, sql
from bench.answer import Answer, Goal
from bench.append import Append
from bench.measure import in_turns
from pakka.sinks.postgres import PostgresSink
from tests.fixtures.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELD = {"tiny": 1_000, "small": 1_000_000, "full": 10_000_000}
ROWS = {"tiny": 100, "small": 100_000, "full": 1_000_000}
FILES = engine.FILES_PER_EPOCH
"""So that it is one epoch."""
STEP = 15
"""Keys of the upsert lie so far apart: two in three are in the table, all over it, and one in three is new."""
ROUNDS = {"tiny": 1, "small": 5, "full": 5}
WARM_UPS = {"tiny": 0, "small": 2, "full": 1}
BY_HAND = "by hand"
_STAGING = "staging"
_UPSERT = (
    f"INSERT INTO {sql.TABLE} SELECT * FROM {_STAGING} ON CONFLICT (id) DO UPDATE SET "
    f"({', '.join(sql.COLUMNS[1:])}) = ({', '.join(f'excluded.{c}' for c in sql.COLUMNS[1:])})"
)


def answer(size: str) -> Answer:
    with sql.postgres_server() as server, scratch.directory("upsert") as place:
        if server is None:
            return Answer("upsert", size, (), (sql.NO_POSTGRES,), 0)
        with sql.postgres_database(server, "id") as template:
            sql.fill_postgres(template, HELD[size])
            _make_staging(template)
            return _ask(size, server, template, place)


def _ask(size: str, server: PostgresServer, template: str, place: Path) -> Answer:
    spark = engine.open_spark(PostgresSink(server.url("postgres"), sql.TABLE))
    frame = engine.read_files(spark, rows.parquet_files(spark, ROWS[size], FILES))
    frame = frame.withColumn("id", frame["id"] * STEP)
    work = Append(frame, place, partial(sql.postgres_twin, server, template), sql.postgres_sum)
    sides = {"pakka": work.pakka(lambda url: PostgresSink(url, sql.TABLE, mode="upsert", key=("id",)))}
    notes = [
        f"{ROWS[size]:,} rows of 8 columns in one epoch into a table of {HELD[size]:,} with a primary key; two in three are there already. "
        "Every run has a new copy of the table, after a checkpoint.",
    ]
    if sql.POSTGRES_JDBC.is_ready(spark):
        sides[BY_HAND] = work.each(_by_hand)
        notes.append(
            "By hand: Spark JDBC with `batchsize` 10,000 and `reWriteBatchedInserts` into an unlogged table, emptied before, and one "
            "INSERT ... ON CONFLICT in the driver. It is at-least-once."
        )
    else:
        notes.append(sql.POSTGRES_JDBC.missing)
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    goals = {BY_HAND: Goal(1.0, is_floor=True, words="not slower")}
    return Answer("upsert", size, tuple(append.figures(runs, ROWS[size], ["pakka"], goals)), tuple(notes), ROUNDS[size])


def _make_staging(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE UNLOGGED TABLE {_STAGING} (LIKE {sql.TABLE})")


def _by_hand(url: str) -> engine.OnBatch:
    def on_batch(batch: DataFrame, _: int) -> None:
        sql.POSTGRES_JDBC.append(batch, url, _STAGING, "overwrite")
        with psycopg.connect(url) as db:
            db.execute(_UPSERT)

    return on_batch
