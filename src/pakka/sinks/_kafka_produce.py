"""Records out of the spool into a producer's queue, on the driver, as fast as one process can.

Equal keys land in the partition in which a Java producer would put them: librdkafka's own way of choosing is another, and
two producers of one topic that differ in it tear the records of a key apart.

That every record was delivered is asked in the end by `commit_transaction`, which refuses if one was not. `Outbox` notices
most failures before, and knows which topic and partition they are of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pakka.sinks._kafka_bulk import Bulk, records_of
from pakka.sinks._numpy import numbers_of

SETTINGS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    # Large batches: an epoch is sent as a whole, and nobody waits for its first record.
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    # No bound: of many records the library would take the ones that fit and leave out others between them. `Outbox` keeps one.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": (1 << 31) - 1,
}
"""What a producer must be made with, beside where and who; linger and the sizes of batches may be a user's."""

_SLICE_ROWS = 10_000
"""So many rows go into the queue at a time."""
_QUEUE_ROWS, _QUEUE_BYTES = 500_000, 256 << 20
"""What may wait in the queue, in memory."""
_WAIT_S = 0.1
_ANY_PARTITION = -1
_NOW = 0


class Outbox:
    """The records of one transaction on their way. The first that is known not to be delivered is an error, and the last word."""

    def __init__(
        self, producer: Producer, topic: str | None, touched: set[str] | None = None, *, is_heeded: bool = False
    ) -> None:
        self.producer = producer
        self.topic = topic
        """None: each record says its own."""
        self.touched: set[str] = set() if touched is None else touched
        """Every topic that a record was queued for, which whoever gave it knows also if sending fails."""
        # Of many records sent at once some failures show only at `commit_transaction`. Who never calls it heeds each one.
        self._bulk = None if is_heeded else Bulk.of(producer)
        self._seen: set[str] = set()
        self._waiting: deque[tuple[int, int]] = deque()
        self._lost: KafkaError | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue every record. Waits while the queue is full, and raises as soon as one is known not to be delivered."""
        is_plain = {"key", "value"} >= set(batch.schema.names) - {"topic"}
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            part = batch.slice(start, _SLICE_ROWS)
            self._make_room(part)
            self.touched.update([self.topic] if self.topic is not None else pc.unique(part.column("topic")).to_pylist())
            if is_plain and self._bulk is not None:
                self._queue_many(self._bulk, part)
            else:
                self._queue_each(part)
            self.producer.poll(0)
            self._check()

    def send_one(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        """Queue one record of the sink's own."""
        self.touched.add(topic)
        self.producer.produce(topic, value, key, partition, self._heed)

    def settle(self) -> None:
        """Wait until nothing waits any more. How long that may take is `message.timeout.ms` of the producer."""
        while self.producer.flush(_WAIT_S):
            self._check()
        self._check()
        if self._bulk is not None and self._seen:
            self._expect_none(self._bulk.trouble(next(iter(self._seen))))

    def _make_room(self, part: pa.RecordBatch) -> None:
        """The queue is emptied from its front, more or less, so what waits is what came last."""
        self._waiting.append((part.num_rows, part.nbytes))
        while True:
            rows = sum(rows for rows, _ in self._waiting)
            while len(self._waiting) > 1 and rows - self._waiting[0][0] >= len(self.producer) + part.num_rows:
                rows -= self._waiting.popleft()[0]
            is_full = rows > _QUEUE_ROWS or sum(size for _, size in self._waiting) > _QUEUE_BYTES
            if not is_full or len(self._waiting) == 1:
                return
            self.producer.poll(_WAIT_S)
            self._check()

    def _queue_many(self, bulk: Bulk, part: pa.RecordBatch) -> None:
        """All records of a topic at once, but the very first: its report tells of what befalls all of them, such as no rights."""
        if self.topic is None:
            topics = part.column("topic")
            names, numbers = topics.dictionary.to_pylist(), numbers_of(topics.indices)
        else:
            names, numbers = [self.topic], np.zeros(part.num_rows, np.int32)
        records = records_of(part.column("key"), part.column("value"))
        for number, topic in enumerate(names):
            (rows,) = np.nonzero(numbers == number)
            if len(rows) and topic not in self._seen:
                self._queue_each(part.slice(int(rows[0]), 1))
                self._seen.add(topic)
                rows = rows[1:]
            if len(rows):
                self._expect_none(bulk.queue(topic, records[rows]))

    def _queue_each(self, part: pa.RecordBatch) -> None:
        produce, heed = self.producer.produce, self._heed
        for topic, value, key, partition, timestamp, headers in self._each(part):
            produce(topic, value, key, partition, heed, None, timestamp, headers)

    def _each(self, part: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
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

    def _expect_none(self, code: int) -> None:
        if code == KafkaError._STATE:
            # The transaction has failed, and cannot be committed any more. Only the attempt says why; it sends nothing.
            self.producer.commit_transaction()
        if code:
            raise KafkaException(KafkaError(code))
