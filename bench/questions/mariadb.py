"""Is the MySQL sink, with XA transactions, faster than Spark's own JDBC writer on MariaDB?"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import append, engine, rows, scratch, sql
from bench.answer import Answer, Goal
from bench.append import Append
from bench.measure import in_turns
from pakka.sinks.mysql import MysqlSink
from tests.fixtures.mysql import MysqlServer

ROWS = {"tiny": 2_000, "small": 1_000_000, "full": 10_000_000}
FILES = {"tiny": 4, "small": 4, "full": 16}
ROUNDS = {"tiny": 1, "small": 3, "full": 3}
WARM_UPS = {"tiny": 0, "small": 2, "full": 1}
OURS = ("pakka", "pakka (spooled)")
PEER = "Spark JDBC"


def answer(size: str) -> Answer:
    with sql.mariadb_server() as server, scratch.directory("mariadb") as place:
        if server is None:
            return Answer("mariadb", size, (), (sql.NO_MARIADB,), 0)
        return _ask(size, server, place)


def _ask(size: str, server: MysqlServer, place: Path) -> Answer:
    spark = engine.open_spark()
    frame = engine.read_files(spark, rows.parquet_files(spark, ROWS[size], FILES[size]))
    work = Append(frame, place, partial(sql.mariadb_database, server), sql.mariadb_sum)
    sides = {
        OURS[0]: work.pakka(lambda url: MysqlSink(url, sql.TABLE, way="prepared")),
        OURS[1]: work.pakka(lambda url: MysqlSink(url, sql.TABLE, way="spooled")),
    }
    notes = [
        f"{ROWS[size]:,} rows of 8 columns from {FILES[size]} Parquet files, {engine.FILES_PER_EPOCH} an epoch, availableNow, one session; "
        "wall time from the start of the query to its end.",
        "The server is on the same machine, syncs its log and its binary log with every commit and has a buffer pool of 1 GB; every "
        "side begins with a new table that has no index of ours, and uses two connections.",
    ]
    if sql.MARIADB_JDBC.is_ready(spark):
        sides[PEER] = work.jdbc(sql.MARIADB_JDBC)
        notes.append(
            "Spark JDBC is foreachBatch with `batchsize` 10,000 and `rewriteBatchedStatements`. It is at-least-once."
        )
    else:
        notes.append(sql.MARIADB_JDBC.missing)
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    figures = append.figures(runs, ROWS[size], OURS, {PEER: Goal(1.5, is_floor=True)})
    return Answer("mariadb", size, tuple(figures), tuple(notes), ROUNDS[size])
