"""Records out of the spool into a producer's queue, on the driver, as fast as one process can.

Equal keys land in the partition in which a Java producer would put them: librdkafka's own way of choosing is another, and
two producers of one topic that differ in it tear the records of a key apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

SETTINGS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    # Large batches: an epoch is sent as a whole, and nobody waits for its first record.
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    # The bound on what waits in memory. A full queue is waited for.
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
}
"""What a producer should be made with, beside where and who; a user's settings go before all but the first two."""

_SLICE_ROWS = 10_000
"""So many rows are Python's at a time."""
_WAIT_S = 0.1
_ANY_PARTITION = -1
_NOW = 0


class Outbox:
    """The records of one transaction on their way. The first that is not delivered is an error, and the last word."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self.producer = producer
        self.topic = topic
        """None: each record says its own."""
        self._lost: KafkaError | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue every record. Waits while the queue is full, and raises as soon as one is known not to be delivered."""
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            self._queue(batch.slice(start, _SLICE_ROWS))
            self.producer.poll(0)
            self._check()

    def settle(self) -> None:
        """Wait until all are delivered. How long that may take is `message.timeout.ms` of the producer."""
        while self.producer.flush(_WAIT_S):
            self._check()
        self._check()

    def _queue(self, part: pa.RecordBatch) -> None:
        produce, heed = self.producer.produce, self._heed
        for topic, value, key, partition, timestamp, headers in self._records(part):
            while True:
                try:
                    produce(topic, value, key, partition, heed, None, timestamp, headers)
                    break
                except BufferError:
                    self.producer.poll(_WAIT_S)
                    self._check()

    def _records(self, part: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        names = part.schema.names
        topics: Iterable[Any] = repeat(self.topic) if self.topic is not None else part.column("topic").to_pylist()
        partitions: Iterable[Any] = repeat(_ANY_PARTITION)
        timestamps: Iterable[Any] = repeat(_NOW)
        headers: Iterable[Any] = repeat(None)
        if "partition" in names:
            partitions = part.column("partition").fill_null(_ANY_PARTITION).to_pylist()
        if "timestamp" in names:
            timestamps = part.column("timestamp").fill_null(_NOW).to_pylist()
        if "headers" in names:
            lists = part.column("headers").to_pylist()
            headers = ([(h["key"], h["value"]) for h in each] if each else None for each in lists)
        keys, values = part.column("key").to_pylist(), part.column("value").to_pylist()
        return zip(topics, values, keys, partitions, timestamps, headers, strict=False)

    def _heed(self, error: KafkaError | None, record: Message) -> None:
        if error is not None and self._lost is None:
            where = f"topic `{record.topic()}`, partition {record.partition()}"
            self._lost = KafkaError(
                error.code(),
                f"{where}: {error.str()}",
                error.fatal(),
                error.retriable(),
                error.txn_requires_abort(),
            )

    def _check(self) -> None:
        if self._lost is not None:
            raise KafkaException(self._lost)
