"""Batches that are packed already into a transaction: signed, and sent while the next ones are signed.

Nothing is in doubt about a record: each batch is waited for, and one that has no answer is sent again, under the number by which
its broker knows it. There is one batch a partition on its way at most, so they arrive in their order. Several requests are: a broker takes
the next one from a line when it has answered the last, and should find it there. And since it does so with one of its threads, what is more than a
request goes over two lines.

But the first batch to each place goes over the first line, one request after the other. Before a broker takes it, it asks the coordinator whether the place is part of
the transaction; of two such questions for one id that meet there it gives up the older, and refuses what it was asked for, and all of it has to be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pakka.errors import PakkaError
from pakka.kafka_line import DriverError
from pakka.sinks._kafka_batch import Batch, Handle, Place, Press, Signed, unpacked
from pakka.sinks._kafka_limit import Limits
from pakka.sinks._kafka_post import Post, Posted
from pakka.sinks._numpy import column_of, text_of

_PRESS = Press(1 << 20)
"""For records of the sink's own, one at a time."""
_ANYWHERE = Limits(1, 1 << 20)
REQUEST_BYTES = 2 << 20
"""Batches are sent together up to that: a request costs half a millisecond whatever is in it, and several should be on their way."""
_ON_WAY_MAX = 3
"""So many requests of a line wait for an answer at most. kafka-python refuses the sixth, and others are sent over it too."""


@dataclass
class Seat:
    """A transactional id that is ours until somebody else asks for it: who writes under it, and how much was written."""

    post: Post
    handle: Handle
    patience_s: float
    """How long a broker may take for a batch, restarts and all."""
    second: Post | None = None
    """Another line, for batches that would wait for others on the first. It is opened when there are such."""
    sent: dict[Place, int] = field(default_factory=dict)
    """Records to each place, over all transactions: brokers count along."""
    granter: int | None = None
    """The broker that has granted the last places of the newest transaction."""

    def outbox(self, topic: str, touched: set[str]) -> Outbox:
        return Outbox(self, topic, touched)


class Outbox:
    """The records of one transaction on their way. An error is the last word: the transaction is of no use any more."""

    def __init__(self, seat: Seat, topic: str, touched: set[str]) -> None:
        self.seat = seat
        self.topic = topic
        """Of batches that name none; empty if each names its own."""
        self.touched = touched
        """Every topic that a record was taken for, which whoever gave it knows also if sending fails."""
        self._begun: set[Place] = set()
        self._foreseen: set[Place] = set()
        self._opened: set[Place] = set()
        """Where a batch was sent to."""
        self._posted: list[tuple[Post, Posted]] = []
        """On their way, the oldest first, and over which line."""

    def foresee(self, topic: str, partition: int) -> None:
        """A record of the sink's own will be sent there behind all others. The coordinator hears of the place with the first of theirs: asked
        for it alone it writes to its log once more, while everything waits.
        """
        self._foreseen.add((topic, partition))

    def send(self, packed: pa.RecordBatch) -> None:
        """Take rows of `PACKED`. Waits while others are on their way, and raises as soon as one is known not to be taken."""
        self._post(unpacked(packed, self.topic))

    def send_one(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        """One record of the sink's own, behind all that was taken before. `settle` comes back with its offset."""
        said = column_of(np.array([partition], np.int32))
        record = pa.RecordBatch.from_arrays([text_of(key), text_of(value), said], ["key", "value", "partition"])
        packed = _PRESS.pack(record, topic, lambda _: _ANYWHERE, time.time_ns() // 1_000_000)
        self._post(unpacked(packed, topic))

    def settle(self) -> dict[Place, int]:
        """Wait until the brokers have everything. Comes back with the offsets at which the last batches waited for begin, as far as they say it."""
        offsets: dict[Place, int] = {}
        while self._posted:
            offsets |= self._await()
        return offsets

    def drop(self) -> None:
        """Send nothing more, and wait for what is on its way: it must not arrive when the transaction has ended."""
        self._posted = [(line, posted) for line, posted in self._posted if posted.answer is not None]
        while self._posted:
            # Whatever is said of it, the transaction is aborted.
            with suppress(PakkaError, *DriverError):
                self._await(0.0)

    def _post(self, batches: Iterable[Batch]) -> None:
        post, handle, waiting = self.seat.post, self.seat.handle, list(batches)
        self.touched.update(batch.place[0] for batch in waiting)
        new = {batch.place for batch in waiting} - self._begun
        if new:
            new |= self._foreseen - self._begun
            post.find(new)
            self.seat.granter = post.begin_in(handle, new)
            self._begun |= new
        for some in _requests(waiting):
            while any(some.keys() & posted.batches for _, posted in self._posted) or not self._free(some):
                self._await()
            line = self._free(some)[0]
            self._opened |= some.keys()
            self._posted.append(
                (line, line.post(handle, {place: self._signed(batch) for place, batch in some.items()}))
            )

    def _signed(self, batch: Batch) -> Signed:
        sent = self.seat.sent.get(batch.place, 0)
        self.seat.sent[batch.place] = sent + batch.count
        return batch.signed(self.seat.handle, sent)

    def _await(self, patience_s: float | None = None) -> dict[Place, int]:
        """Wait for the oldest. What could not be sent over the second line is sent over the first, which has to be there anyway."""
        line, posted = self._posted.pop(0)
        line = line if posted.answer is not None else self.seat.post
        return line.settle(posted, self.seat.patience_s if patience_s is None else patience_s)

    def _free(self, some: Mapping[Place, Batch]) -> list[Post]:
        """The lines on which a request with these batches may follow, that with the fewest first."""
        is_first = not some.keys() <= self._opened
        lines = [self.seat.post] if self.seat.second is None or is_first else [self.seat.post, self.seat.second]
        counts = {line: sum(of is line for of, _ in self._posted) for line in lines}
        return sorted((line for line in lines if counts[line] < _ON_WAY_MAX), key=counts.__getitem__)


def _requests(batches: Iterable[Batch]) -> Iterator[dict[Place, Batch]]:
    """What is sent together: one batch a place, since brokers take no more, and as much as a request should have."""
    turns: dict[Place, int] = {}

    def turn(batch: Batch) -> int:
        turns[batch.place] = turns.get(batch.place, 0) + 1
        return turns[batch.place]

    some: dict[Place, Batch] = {}
    size = 0
    # Each place in turn: the next batch of one waits for the answer to its last.
    for batch in sorted(batches, key=turn):
        if batch.place in some or (some and size + len(batch.records) > REQUEST_BYTES):
            yield some
            some, size = {}, 0
        some[batch.place] = batch
        size += len(batch.records)
    if some:
        yield some
