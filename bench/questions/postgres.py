"""Is the PostgreSQL sink, with two-phase commit, faster than Spark's own JDBC writer, and how far from what the server takes?"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import append, engine, rows, scratch, sql
from bench.answer import Answer, Goal
from bench.append import Append
from bench.measure import in_turns
from pakka.sinks.postgres import PostgresSink
from tests.fixtures.postgres import PostgresServer

ROWS = {"tiny": 2_000, "small": 1_000_000, "full": 10_000_000}
FILES = {"tiny": 4, "small": 8, "full": 16}
ROUNDS = {"tiny": 1, "small": 5, "full": 3}
WARM_UPS = {"tiny": 0, "small": 2, "full": 1}
OURS = ("pakka", "pakka (spooled)")
GOALS = {"Spark JDBC": Goal(2.5, is_floor=True), "psql": Goal(0.5, is_floor=True)}


def answer(size: str) -> Answer:
    with sql.postgres_server() as server, scratch.directory("postgres") as place:
        if server is None:
            return Answer("postgres", size, (), (sql.NO_POSTGRES,), 0)
        return _ask(size, server, place)


def _ask(size: str, server: PostgresServer, place: Path) -> Answer:
    spark = engine.open_spark(PostgresSink(server.url("postgres"), sql.TABLE))
    parquet = rows.parquet_files(spark, ROWS[size], FILES[size])
    work = Append(engine.read_files(spark, parquet), place, partial(sql.postgres_database, server), sql.postgres_sum)
    sides = {
        OURS[0]: work.pakka(lambda url: PostgresSink(url, sql.TABLE, way="prepared")),
        OURS[1]: work.pakka(lambda url: PostgresSink(url, sql.TABLE, way="spooled")),
    }
    notes = [
        f"{ROWS[size]:,} rows of 8 columns from {FILES[size]} Parquet files, {engine.FILES_PER_EPOCH} an epoch, availableNow, one session; "
        "wall time from the start of the query to its end.",
        "The server is on the same machine, syncs every commit and has 1 GB of shared buffers; every side begins after a "
        "checkpoint, with a new table that has no index, and uses two connections.",
    ]
    if sql.POSTGRES_JDBC.is_ready(spark):
        sides["Spark JDBC"] = work.jdbc(sql.POSTGRES_JDBC)
        notes.append(
            "Spark JDBC is foreachBatch with `batchsize` 10,000 and `reWriteBatchedInserts`. It is at-least-once."
        )
    else:
        notes.append(sql.POSTGRES_JDBC.missing)
    psql = sql.find_psql(server)
    if psql is not None:
        sides["psql"] = work.alone(partial(sql.psql_copy, psql, files=sql.copy_files(parquet, place)))
        notes.append(
            "psql is `\\copy` of the same rows from two binary files, without Spark: the most that the server takes here."
        )
    else:
        notes.append("No psql on this machine, so it was not asked.")
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    return Answer("postgres", size, tuple(append.figures(runs, ROWS[size], OURS, GOALS)), tuple(notes), ROUNDS[size])
