"""Rows into batches as brokers keep them, on the executors: the driver is left with heads, checksums and sending.

The number of partitions is that of the moment. A topic that gets more of them takes these batches all the same; one that is made anew with
fewer does not, and the commit says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.sinks._kafka_batch import PACKED, Press
from pakka.sinks._kafka_record import RecordEncoder
from pakka.sinks._kafka_target import named
from pakka.sinks._spool import CRC32C, SpoolWriter, as_it_is, staging_of

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

_BLOCK_BYTES, _BLOCK_ROWS = 6 << 20, 100_000
"""So much is packed at a time: enough for large batches."""


class Packer:
    """Encodes rows and packs them, some of Spark's batches at a time. One for each attempt at a slot."""

    def __init__(self, encode: RecordEncoder, press: Press) -> None:
        self.encode = encode
        self.press = press
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What is full with these rows, as rows of `PACKED`. The others wait for more, or for `rest`."""
        records = self.encode(batch)
        for start in range(0, records.num_rows, _BLOCK_ROWS):
            part = records.slice(start, _BLOCK_ROWS)
            self._waiting.append(part)
            self._bytes += part.nbytes
            self._rows += part.num_rows
            if self._bytes >= _BLOCK_BYTES or self._rows >= _BLOCK_ROWS:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What waits."""
        waiting, self._waiting, self._bytes, self._rows = self._waiting, [], 0, 0
        if waiting:
            (block,) = pa.Table.from_batches(waiting).unify_dictionaries().combine_chunks().to_batches()
            now_ms = time.time_ns() // 1_000_000
            yield self.press.pack(block, self.encode.recipe.topic, self.encode.gauge.limits, now_ms)


def open_spool(sink: KafkaSink, binding: Binding, slot: Slot) -> SpoolWriter:
    """For batches. Whoever wants them smaller has the compression of Kafka, which spares the brokers too. The digest is the one that brokers
    trust for each of them.
    """
    staging = staging_of(binding, slot.fence)
    return SpoolWriter(staging, slot, PACKED, as_it_is, sink.spool_bytes_max, codec=None, digest=CRC32C)


class PackWriter:
    """One attempt at one slot by `way: spooled`."""

    def __init__(self, sink: KafkaSink, binding: Binding, slot: Slot, schema: pa.Schema) -> None:
        self.sink = sink
        # First of all: it refuses what cannot be stored before anything is staged.
        self.packer = sink.open_packer(binding, schema)
        self.spool = open_spool(sink, binding, slot)

    def write(self, batch: pa.RecordBatch) -> None:
        for packed in self.packer.take(batch):
            self.spool.write(packed)

    def prepare(self, checksum: str) -> Prepared:
        for packed in self.packer.rest():
            self.spool.write(packed)
        return named(self.spool.prepare(checksum), self.sink)

    def discard(self) -> None:
        self.spool.discard()
