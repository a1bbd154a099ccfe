"""Records out of Arrow batches into a transaction: packed as brokers keep them, and sent while the next ones are packed.

Nothing is in doubt about a record: each batch is waited for, and one that has no answer is sent again, under the number by which
its broker knows it. There is one batch a partition on its way at most, so they arrive in their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pakka.errors import PakkaError
from pakka.kafka_line import DriverError
from pakka.sinks._kafka_batch import Batch, Handle, Place, Press
from pakka.sinks._kafka_post import Post, Posted
from pakka.sinks._numpy import text_of

_BLOCK_BYTES, _BLOCK_ROWS = 8 << 20, 100_000
"""So much is packed at a time: enough for large batches, and two of it are in memory."""


@dataclass
class Seat:
    """A transactional id that is ours until somebody else asks for it: who writes under it, and how much was written."""

    post: Post
    handle: Handle
    press: Press
    patience_s: float
    """How long a broker may take for a batch, restarts and all."""
    sent: dict[Place, int] = field(default_factory=dict)
    """Records to each place, over all transactions: brokers count along."""

    def outbox(self, topic: str | None, touched: set[str]) -> Outbox:
        return Outbox(self, topic, touched)


class Outbox:
    """The records of one transaction on their way. An error is the last word: the transaction is of no use any more."""

    def __init__(self, seat: Seat, topic: str | None, touched: set[str]) -> None:
        self.seat = seat
        self.topic = topic
        """None: each record says its own."""
        self.touched = touched
        """Every topic that a record was taken for, which whoever gave it knows also if sending fails."""
        self._begun: set[Place] = set()
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._posted: Posted | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Take records. Waits while too many are on their way, and raises as soon as one is known not to be taken."""
        if batch.num_rows:
            self.touched.update(
                [self.topic] if self.topic is not None else pc.unique(batch.column("topic")).to_pylist()
            )
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            part = batch.slice(start, _BLOCK_ROWS)
            self._waiting.append(part)
            self._bytes += part.nbytes
            self._rows += part.num_rows
            if self._bytes >= _BLOCK_BYTES or self._rows >= _BLOCK_ROWS:
                self._push()

    def send_one(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        """One record of the sink's own, behind all that was taken before."""
        self._push()
        self.touched.add(topic)
        said = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.array([partition], np.int32))])
        records = pa.RecordBatch.from_arrays([text_of(key), text_of(value), said], ["key", "value", "partition"])
        self._post(records, topic)

    def settle(self) -> None:
        """Wait until the brokers have everything."""
        self._push()
        self._await()

    def drop(self) -> None:
        """Send nothing more, and wait for what is on its way: it must not arrive when the transaction has ended."""
        self._waiting.clear()
        # Whatever is said of it, the transaction is aborted.
        with suppress(PakkaError, *DriverError):
            self._await(0.0)

    def _push(self) -> None:
        waiting, self._waiting, self._bytes, self._rows = self._waiting, [], 0, 0
        if waiting:
            (block,) = pa.Table.from_batches(waiting).unify_dictionaries().combine_chunks().to_batches()
            self._post(block, self.topic)

    def _post(self, records: pa.RecordBatch, topic: str | None) -> None:
        seat = self.seat
        now_ms = time.time_ns() // 1_000_000
        batches = seat.press.batches(records, topic, seat.post.partitions, now_ms)
        for some in _rounds(list(batches)):
            self._await()
            new = {batch.place for batch in some} - self._begun
            if new:
                seat.post.begin_in(seat.handle, new)
                self._begun |= new
            self._posted = seat.post.post(seat.handle, {batch.place: self._signed(batch) for batch in some})

    def _signed(self, batch: Batch) -> bytes:
        sent = self.seat.sent.get(batch.place, 0)
        self.seat.sent[batch.place] = sent + batch.count
        return batch.signed(self.seat.handle, sent)

    def _await(self, patience_s: float | None = None) -> None:
        posted, self._posted = self._posted, None
        if posted is not None:
            self.seat.post.settle(posted, self.seat.patience_s if patience_s is None else patience_s)


def _rounds(batches: list[Batch]) -> Iterator[list[Batch]]:
    """One batch a place at a time: brokers take no more in a request."""
    while batches:
        some: dict[Place, Batch] = {}
        rest = [batch for batch in batches if some.setdefault(batch.place, batch) is not batch]
        yield list(some.values())
        batches = rest
