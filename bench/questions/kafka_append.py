"""Is a pipeline into Kafka, exactly-once, as fast as Spark's own Kafka sink, and how does it stand to a plain loop without Spark?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from tools.kafka.broker import Kafka

from bench import append, engine, kafka, scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.append import Append
from bench.engine import Run
from bench.measure import in_turns
from pakka.sinks.kafka import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RECORDS = {
    "tiny": {100: 2_000},
    "small": {100: 500_000, 1000: 100_000},
    "full": {100: 10_000_000, 1000: 1_000_000},
}
FILES = {"tiny": 8, "small": 12, "full": 16}
ROUNDS = {"tiny": 1, "small": 3, "full": 5}
WARM_UPS = {"tiny": 0, "small": 2, "full": 1}
OURS, PREPARED = "pakka", "pakka (prepared)"
SPARK, UNTUNED, LOOP = "Spark's Kafka sink", "Spark's Kafka sink untuned", "a plain loop"
GOALS = {SPARK: Goal(1.0, is_floor=True), UNTUNED: Goal(1.0, is_floor=True), LOOP: None}
_TASKS = 2
"""So many send at once in Spark's sink; as many slots spool in ours."""
_BUFFER_BYTES = 256 << 20
_TUNED = {
    "kafka.acks": "all",
    "kafka.linger.ms": str(kafka.LINGER_MS),
    "kafka.batch.size": str(BATCH_BYTES),
    "kafka.buffer.memory": str(_BUFFER_BYTES),
}


def answer(size: str) -> Answer:
    with kafka.server() as broker, scratch.directory("kafka-append") as place:
        if broker is None:
            return Answer("kafka-append", size, (), (kafka.NO_KAFKA,), 0)
        spark = engine.open_spark(kafka.sink(broker, "any"))
        if not kafka.has_connector(spark):
            return Answer("kafka-append", size, (), (kafka.NO_CONNECTOR,), 0)
        figures: list[Figure] = []
        for value_bytes, count in RECORDS[size].items():
            figures += _ask(size, broker, spark, place, count, value_bytes)
    return Answer("kafka-append", size, tuple(figures), _notes(size), ROUNDS[size])


def _notes(size: str) -> tuple[str, ...]:
    counts = " and ".join(f"{count:,} records of {size_:,} bytes" for size_, count in RECORDS[size].items())
    return (
        f"{counts}, with keys of 8 bytes, from {FILES[size]} Parquet files, {engine.FILES_PER_EPOCH} an epoch, availableNow, one session; wall time "
        "from the start of the query to its end. One broker on the same machine; a new topic of "
        f"{kafka.PARTITIONS} partitions for each run, of which Spark then reads what is committed: all sides leave the same records, in the same partitions.",
        "pakka is the whole pipeline, with `way: spooled`, which is the default: rows through the spool, decided, sent in one transaction an epoch with the ledger's record. What it does once, at its start, is in the "
        "time: a state store, a ledger topic, a transactional id. `the first epoch left out` is what remains in a run that is long. `prepared` is the other way, in which tasks send.",
        f"Spark's Kafka sink is `writeStream.format('kafka')` in {_TASKS} tasks, with the same `acks=all`, `linger.ms={kafka.LINGER_MS}` and "
        f"`batch.size={BATCH_BYTES}`, and {_BUFFER_BYTES >> 20} MB for its buffer. Untuned, it has the settings that it comes with. It is at-least-once.",
        "A plain loop is pyarrow and confluent-kafka's `produce()` in one process without Spark, with the same settings and a transaction for as many files as an epoch has. "
        "It remembers nothing of where it was: started again, it sends everything again.",
    )


def _ask(size: str, broker: Kafka, spark: SparkSession, place: Path, count: int, value_bytes: int) -> list[Figure]:
    parquet = kafka.parquet_files(count, value_bytes, FILES[size])
    frame = engine.read_files(spark, parquet)
    work = Append(frame, place, partial(kafka.fresh_topic, broker), partial(kafka.total, spark, broker))
    sides = {
        OURS: work.pakka(partial(kafka.sink, broker)),
        PREPARED: work.pakka(partial(kafka.sink, broker, way="prepared")),
        SPARK: work.stream(partial(_spark_sink, broker, frame, _TUNED)),
        UNTUNED: work.stream(partial(_spark_sink, broker, frame, {})),
        LOOP: work.alone(partial(_loop, broker, parquet)),
    }
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    made = append.figures(runs, count, [OURS, PREPARED], GOALS)
    later = Spread.ratio([_later_rate(r) for r in runs[OURS]], [_later_rate(r) for r in runs[SPARK]])
    made.insert(1, Figure(f"rows/s, {OURS} against {SPARK}, the first epoch left out", later, "x"))
    return [replace(figure, what=f"{value_bytes:,} bytes: {figure.what}") for figure in made]


def _spark_sink(broker: Kafka, frame: DataFrame, tuned: Mapping[str, str], topic: str) -> DataStreamWriter:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **tuned}
    return frame.coalesce(_TASKS).writeStream.format("kafka").options(**options)


def _loop(broker: Kafka, parquet: Path, topic: str) -> None:
    producer = kafka.transactional(broker.bootstrap, topic, **kafka.LOOP)
    files = sorted(parquet.glob("*.parquet"))
    for start in range(0, len(files), engine.FILES_PER_EPOCH):
        producer.begin_transaction()
        for file in files[start : start + engine.FILES_PER_EPOCH]:
            kafka.send_each(producer, topic, _rows(file))
        producer.flush()
        producer.commit_transaction()


def _rows(file: Path) -> Iterator[tuple[bytes, bytes]]:
    for batch in pq.ParquetFile(file).iter_batches():
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


def _later_rate(run: Run) -> float:
    """Of all epochs but the first, by Spark's own time of each."""
    rows = sum(int(e["numInputRows"]) for e in run.epochs[1:])
    return rows / sum(int(e["durationMs"]["triggerExecution"]) for e in run.epochs[1:]) * 1e3
