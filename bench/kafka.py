"""What the questions about Kafka share: a broker set up as for work, and records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from tools.kafka import broker

PARTITIONS = 8
NO_KAFKA = "No Kafka broker on this machine (`make setup-kafka`), so it was not asked."
_BATCH_ROWS = 10_000
"""As many as Spark hands over at a time."""


@contextmanager
def server() -> Iterator[broker.Kafka | None]:
    """A broker of its own; None if there is none to start."""
    if broker.find_jars() is None:
        yield None
        return
    with broker.running_kafka(heap_mb=1024, is_quick=False) as kafka:
        yield kafka


def topic(kafka: broker.Kafka, name: str) -> str:
    """A new topic that keeps no more than a disk has room for, however often it is written to."""
    config = {"retention.bytes": str(64 << 20), "segment.bytes": str(32 << 20)}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)]).values():
        made.result(timeout=30)
    return name


def records(count: int, value_bytes: int) -> list[pa.RecordBatch]:
    """Records as the spool has them: keys of 8 bytes, values that no compression makes smaller."""
    rows = min(count, _BATCH_ROWS)
    values = [os.urandom(value_bytes) for _ in range(rows)]
    batch = pa.record_batch(
        {
            "key": pa.array([b"%08d" % number for number in range(rows)], pa.large_binary()),
            "value": pa.array(values, pa.large_binary()),
        }
    )
    return [batch] * (count // rows)
