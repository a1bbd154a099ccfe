"""What the questions about Kafka share: a broker set up as for work, topics, records, and producers that know nothing of pakka."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.producer import InitProducerIdRequest
from tools.kafka import broker

from bench import engine
from bench.scratch import ROOT, SCRATCH
from pakka.kafka_line import Address
from pakka.model.id import Binding
from pakka.sinks._kafka_batch import Handle
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_produce import Seat
from pakka.sinks.kafka import BATCH_BYTES, KafkaSink
from pakka.sources.kafka import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 8
NO_KAFKA = "No Kafka broker on this machine (`make setup-kafka`), so it was not asked."
NO_CONNECTOR = "No Kafka connector for Spark on this machine (`make setup-kafka`), so it was not asked."
_CONNECTOR = ROOT / ".venv" / "share" / "spark-kafka"
_BATCH_ROWS = 10_000
"""As many as Spark hands over at a time."""
_PARQUET_ROWS = 100_000
_KEY_BYTES = 8
_ANSWER_S = 30


@contextmanager
def server() -> Iterator[broker.Kafka | None]:
    """A broker of its own; None if there is none to start."""
    if broker.find_jars() is None:
        yield None
        return
    with broker.running_kafka(heap_mb=1024, is_quick=False) as kafka:
        yield kafka


def has_connector(spark: SparkSession) -> bool:
    """Let Spark load the connector that the Kafka source names."""
    import pyspark

    (name,) = KafkaSource("none:1", "none", format="raw").jars_for(pyspark.__version__).packages.values()
    return engine.has_class(spark, name, sorted(_CONNECTOR.glob("*.jar")))


def topic(kafka: broker.Kafka, name: str) -> str:
    """A new topic that keeps no more than a disk has room for, however often it is written to."""
    return _made(kafka, name, {"retention.bytes": str(64 << 20), "segment.bytes": str(32 << 20)})


@contextmanager
def fresh_topic(kafka: broker.Kafka) -> Iterator[str]:
    """A new topic that keeps all it is given, and is gone afterwards."""
    name = _made(kafka, f"bench-{uuid.uuid4().hex[:12]}", {"retention.ms": "-1", "file.delete.delay.ms": "0"})
    try:
        yield name
    finally:
        admin = _admin(kafka)
        for gone in admin.delete_topics([name]).values():
            gone.result(timeout=_ANSWER_S)


def _made(kafka: broker.Kafka, name: str, config: dict[str, str]) -> str:
    admin = _admin(kafka)  # named, because what it was asked is dropped with it
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)]).values():
        made.result(timeout=_ANSWER_S)
    return name


def _admin(kafka: broker.Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})


def total(spark: SparkSession, kafka: broker.Kafka, name: str) -> tuple[int, str]:
    """How many records Spark reads of what is committed, and a sum over them and their partitions, in whatever order."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": name, "kafka.isolation.level": "read_committed"}
    records = spark.read.format("kafka").options(**options).load()
    # Of each hash the lower half: their sum stays within 64 bits.
    counted = records.selectExpr("count(1)", f"sum(pmod(xxhash64(partition, key, value), {1 << 32}))").collect()
    count, checksum = counted[0]
    return int(count), str(checksum)


def records(count: int, value_bytes: int, batch_rows: int = _BATCH_ROWS) -> list[pa.RecordBatch]:
    """Records as the spool has them: keys of 8 bytes, values that no compression makes smaller."""
    rows = min(count, batch_rows)
    values = [os.urandom(value_bytes) for _ in range(rows)]
    batch = pa.record_batch(
        {
            "key": pa.array([b"%08d" % number for number in range(rows)], pa.large_binary()),
            "value": pa.array(values, pa.large_binary()),
        }
    )
    return [batch] * (count // rows)


def parquet_files(count: int, value_bytes: int, files: int) -> Path:
    """Such records as Parquet files, all different, made once and kept for the next run."""
    path = SCRATCH / f"records-{count}-{value_bytes}-{files}"
    if not (path / "_SUCCESS").exists():
        path.mkdir(parents=True, exist_ok=True)
        random, schema = np.random.default_rng(0), pa.schema([("key", pa.binary()), ("value", pa.binary())])
        for number in range(files):
            with pq.ParquetWriter(path / f"part-{number:05d}.parquet", schema, use_dictionary=False) as writer:
                for start in range(count * number // files, count * (number + 1) // files, _PARQUET_ROWS):
                    rows = range(start, min(start + _PARQUET_ROWS, count * (number + 1) // files))
                    values = _cut(random.bytes(len(rows) * value_bytes), value_bytes)
                    writer.write_batch(pa.record_batch([[b"%08d" % row for row in rows], values], schema=schema))
        (path / "_SUCCESS").touch()
    return path


def _cut(data: bytes, size: int) -> pa.Array:
    """Values of one size, one after the other."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(data) // size, [None, pa.py_buffer(data)]).cast(
        pa.binary()
    )


def sink(kafka: broker.Kafka, name: str, way: Literal["spooled", "prepared"] = "spooled") -> KafkaSink:
    """Of a pipeline that is new with its topic: with the ledger of another it would be refused."""
    return KafkaSink(kafka.bootstrap, name, format="raw", ledger=name, way=way)


@dataclass(frozen=True)
class PlainProduce:
    """What the sink does to rows without its protocol: no spool, no transaction, no ledger, no offsets. Spark calls it as a task."""

    sink: KafkaSink

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([str(self.write(batches))])], names=["answer"])

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Encoder, packing and sending are those of the sink; it ends when all is acknowledged."""
        return send(_plain_seat(self.sink.servers), self.sink, batches)


class _Plain(Post):
    """Sends without a transaction."""

    def begin_in(self, handle: Handle, places: Collection[tuple[str, int]]) -> None:
        """There is none."""


_seats: dict[tuple[int, str], Seat] = {}


def _plain_seat(servers: str) -> Seat:
    """One a process, as long as it lives: a client does not outlive a fork."""
    key = (os.getpid(), servers)
    if key not in _seats:
        _seats[key] = plain_seat(servers)
    return _seats[key]


def plain_seat(servers: str) -> Seat:
    """Of a producer that is idempotent, and has no transactions."""
    post = _Plain("bench", Address.parse("bench", servers))
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, max_version=4
    )
    answer = post._send(request, None)
    return Seat(post, Handle("", answer.producer_id, answer.producer_epoch), _ANSWER_S)


def seat(servers: str, name: str) -> Seat:
    """Of a producer with transactions, as the sink has one."""
    post = Post("bench", Address.parse("bench", servers))
    return Seat(post, post.take(f"bench-{name}"), _ANSWER_S)


def send(seat: Seat, sink: KafkaSink, batches: Iterable[pa.RecordBatch]) -> int:
    """Pack and send records until all are acknowledged; how many there were."""
    packer, rows, outbox = None, 0, seat.outbox(sink.topic, set())
    for batch in batches:
        packer = packer or sink.open_packer(Binding("bench", "plain", ""), batch.schema)
        rows += batch.num_rows
        for packed in packer.take(batch):
            outbox.send(packed)
    for packed in packer.rest() if packer is not None else ():
        outbox.send(packed)
    outbox.settle()
    return rows


LINGER_MS = 20
"""How long Spark's sink and the plain loop wait for a batch to fill."""


def transactional(servers: str, name: str, **more: object) -> Producer:
    """librdkafka's, with batches as large as the sink's, and keys where a Java producer puts them."""
    own = {
        "bootstrap.servers": servers,
        "transactional.id": f"bench-{name}",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "batch.num.messages": 100_000,
        # It would tell of its broker, which is gone before it is.
        "log_level": 2,
    }
    made = Producer({**own, **more})
    made.init_transactions(_ANSWER_S)
    return made


LOOP = {"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 256 << 10}
"""Bounds of the queue of a producer for `send_each`."""
_POLL_EVERY = 1000


def send_each(producer: Producer, name: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Records one by one, as people write it."""
    for number, (key, value) in enumerate(rows):
        while True:
            try:
                producer.produce(name, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
