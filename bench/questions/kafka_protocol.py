"""What does exactly-once cost on Kafka, against the same producer without spool, transaction, ledger and offsets?

Twice: in Spark, as a pipeline runs, by Spark's own time of an epoch; and without Spark, where nothing else hides it.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from tools.kafka.broker import Kafka

from bench import engine, kafka, scratch
from bench.answer import Answer, Figure, Goal
from bench.append import Append
from bench.kafka import PlainProduce
from bench.measure import Taken, clocked, in_turns
from bench.questions.protocol import SLOTS, exactly_once
from bench.questions.sql_protocol import GOAL, epoch_s, figures_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH_ROWS = {
    "tiny": (200,),
    "small": (100, 1_000, 10_000, 50_000, 100_000),
    "full": (100, 1_000, 10_000, 50_000, 100_000),
}
EPOCHS = {"tiny": 2, "small": 6, "full": 20}
"""In one run of a query. Its figure is their median, without the first."""
ROUNDS = {"tiny": 1, "small": 3, "full": 9}
WARM_UPS = {"tiny": 0, "small": 1, "full": 2}
VALUE_BYTES = 100
_GOAL_AT = (50_000, 200)
_OFTEN = 5
"""So many times as often without Spark, where an epoch is short."""
_BATCH_ROWS = 10_000


def answer(size: str) -> Answer:
    with kafka.server() as broker, scratch.directory("kafka-protocol") as place:
        if broker is None:
            return Answer("kafka-protocol", size, (), (kafka.NO_KAFKA,), 0)
        spark = engine.open_spark(kafka.sink(broker, "any"))
        if not kafka.has_connector(spark):
            return Answer("kafka-protocol", size, (), (kafka.NO_CONNECTOR,), 0)
        figures: list[Figure] = []
        for count in EPOCH_ROWS[size]:
            figures += _in_spark(spark, broker, place, count, size)
            figures += _without_spark(broker, place, count, size)
    notes = (
        f"Records of {VALUE_BYTES} bytes with keys of 8, topic of {kafka.PARTITIONS} partitions, one broker on the same machine. The plain side has the same encoder, queue and settings, "
        "is idempotent, and ends when all is acknowledged. In Spark it is a task of foreachBatch and mapInArrow that knows nothing of pakka: no hashes of rows, no spool, no decision, no "
        "state store; two tasks send at once.",
        f"In Spark: Spark's time of an epoch, the median of those of a run. Without: {SLOTS} slots, spooled one after the other; the offsets of a source of {kafka.PARTITIONS} partitions "
        "are in the transaction.",
    )
    return Answer("kafka-protocol", size, tuple(figures), notes, ROUNDS[size])


def in_spark(count: int) -> str:
    """What the figures of such epochs in Spark are called; with `, pakka` behind it, the time of one."""
    return f"{count:,} rows an epoch in Spark"


def _in_spark(spark: SparkSession, broker: Kafka, place: Path, count: int, size: str) -> list[Figure]:
    epochs = EPOCHS[size]
    parquet = kafka.parquet_files(count * epochs, VALUE_BYTES, engine.FILES_PER_EPOCH * epochs)
    frame = engine.read_files(spark, parquet)
    work = Append(frame, place, partial(kafka.fresh_topic, broker), partial(kafka.total, spark, broker))
    sides = {"pakka": work.pakka(partial(kafka.sink, broker)), "plain": work.each(partial(_plain_epoch, broker))}
    runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    times = {name: [epoch_s(run) for run in side] for name, side in runs.items()}
    cpu = {name: [run.cpu_s / epochs for run in side] for name, side in runs.items()}
    return figures_of(in_spark(count), times, cpu, _goal(count))


def _plain_epoch(broker: Kafka, topic: str) -> engine.OnBatch:
    task = PlainProduce(kafka.sink(broker, topic))

    def on_batch(batch: DataFrame, _: int) -> None:
        batch.coalesce(SLOTS).mapInArrow(task, "answer string").collect()

    return on_batch


def _without_spark(broker: Kafka, place: Path, count: int, size: str) -> list[Figure]:
    topic = kafka.topic(broker, f"protocol-{count}")
    sink = kafka.sink(broker, topic)
    batches = kafka.records(count, VALUE_BYTES, min(_BATCH_ROWS, -(-count // SLOTS)))

    def plain() -> Taken:
        os.sync()
        return clocked(lambda: PlainProduce(sink).write(batches))

    with exactly_once(place / f"{count}", sink, batches, _position(broker, topic)) as deliver:
        taken = in_turns({"pakka": deliver, "plain": plain}, ROUNDS[size] * _OFTEN, WARM_UPS[size])
    wall = {name: [t.wall_s for t in side] for name, side in taken.items()}
    cpu = {name: [t.cpu_s for t in side] for name, side in taken.items()}
    return figures_of(f"{count:,} rows an epoch without Spark", wall, cpu, _goal(count))


def _position(broker: Kafka, topic: str) -> str:
    """As a Kafka source of the same cluster would tell it."""
    cluster = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).cluster_id
    offsets = {topic: {str(number): 1 for number in range(kafka.PARTITIONS)}}
    return json.dumps({"kafka": {"cluster": cluster, "group": "bench", "offsets": offsets}})


def _goal(count: int) -> Goal | None:
    return GOAL if count in _GOAL_AT else None
