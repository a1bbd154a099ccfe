"""A slot's way into Kafka as an open transaction: its records, its record for the slots topic, and a copy of it all in the spool.

Nobody but the driver ends it, by its producer id and epoch. It may be called prepared when the brokers have answered for every batch:
an end that is asked for from outside is granted whatever became of the records.

The last word is the spool's: its directory is renamed when a newer fence is raised, and only then are open transactions looked for. So
either this attempt was open before and is found, or it is refused here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pakka.errors import FencedError, PakkaError, RefusedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.kafka_error import FENCED, told_error, why
from pakka.kafka_line import DriverError
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._kafka_applier import ABORT_S
from pakka.sinks._kafka_batch import Handle
from pakka.sinks._kafka_ledger import PARTITION, Page
from pakka.sinks._kafka_pack import open_spool
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_produce import Outbox, Seat
from pakka.sinks._kafka_raw import PROTOCOL
from pakka.sinks._kafka_slots import Entered
from pakka.sinks._kafka_target import named

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink


class KafkaWriter:
    """One attempt at one slot."""

    def __init__(self, sink: KafkaSink, binding: Binding, slot: Slot, schema: pa.Schema) -> None:
        self.sink = sink
        self.binding = binding
        self.slot = slot
        self.id = sink.slot_id(binding, slot)
        self.rows = 0
        self.packer = sink.open_packer(binding, schema)
        # Before anything is asked for: it refuses an attempt that was begun before, and whatever is open in Kafka has its name there.
        self.spool = open_spool(sink, binding, slot)
        self.control = sink.open_control(binding)
        self.post = Post(self._who, sink.address)
        self._outbox: Outbox | None = None
        self._is_visible = False
        self._handle: Handle | None = None
        """Of the transaction, from the first record on."""
        self._deadline = 0
        self._touched: set[str] = set()
        self._opening = _Opening(self)

    def write(self, batch: pa.RecordBatch) -> None:
        with self._told():
            if batch.num_rows and self._outbox is None and not self._is_visible:
                self._begin()
            self._keep(self.packer.take(batch))
            self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        return named(self._prepare(checksum), self.sink)

    def discard(self) -> None:
        if self._outbox is not None:
            self._let_go()
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                self.post.end(handle, is_commit=False)
        finally:
            self._close()
        self.spool.discard()

    def _prepare(self, checksum: str) -> Prepared:
        with self._told():
            self._keep(self.packer.rest())
            if self._is_visible:
                self.spool.discard()
                return Prepared(self.slot, self.rows, checksum)
            outbox, handle = self._outbox, self._handle
            if outbox is None or handle is None:
                self._close()
                return self.spool.prepare(checksum)
            entered = Entered(self.slot, self.rows, checksum)
            outbox.send_one(self.sink.slots_topic(self.binding), entered.to_bytes(), entered.key, PARTITION)
            outbox.settle()
            reach("task.kafka.sent", self.slot.epoch)
            copy = self.spool.prepare(checksum)
        self._outbox = None
        self._close()
        reach("task.kafka.prepared", self.slot.epoch)
        return Prepared(self.slot, copy.rows, checksum, {**copy.detail, **self._detail(handle)})

    def _keep(self, packs: Iterator[pa.RecordBatch]) -> None:
        """Into the spool, and on the way. Of a slot that is visible they are only made, which refuses what must be refused."""
        for packed in packs:
            if self._outbox is not None:
                self.spool.write(packed)
                self._outbox.send(packed)

    def _begin(self) -> None:
        """With the id in hand, look at the ledger: whose the sink is, and whether this slot is visible already."""
        seat, timeout_ms = self._opening.wait()
        page = self.control.book.read()
        if page.fence < self.slot.fence:
            # The driver has raised it a moment ago, and the partition has not heard yet how that transaction ended.
            page = self.control.seen()
        self._check_fence(page.fence)
        self._is_visible = page.epoch > self.slot.epoch or (page.epoch == self.slot.epoch and self._is_held(page))
        if self._is_visible:
            # The epoch runs again because other slots, or other sinks, have lost it. These rows are only counted.
            self._close()
            return
        reach("task.kafka.begun", self.slot.epoch)
        self._deadline = int(time.time() + timeout_ms / 1000)
        self._handle, self._outbox = seat.handle, seat.outbox(self.sink.topic, self._touched)
        self._outbox.foresee(self.sink.slots_topic(self.binding), PARTITION)

    def _is_held(self, page: Page) -> bool:
        """Whether this slot of the epoch that the ledger names is visible."""
        if page.is_whole:
            return True
        found = self.sink.open_slots(self.binding).read(self.control.book.cluster, self.post)
        return self.slot.number in found.of_epoch(self.slot.epoch)

    def _detail(self, handle: Handle) -> dict[str, Any]:
        # The driver looks after what they have open, and cannot know them otherwise.
        named = {} if self.sink.topic else {"topics": sorted(self._touched)}
        return {
            **named,
            "id": handle.id,
            "producer_id": handle.producer_id,
            "producer_epoch": handle.producer_epoch,
            "protocol": PROTOCOL,
            "deadline": self._deadline,
        }

    @property
    def _who(self) -> str:
        return f"{self.binding}: epoch {self.slot.epoch}, slot {self.slot.number}"

    def _check_fence(self, seen: int) -> None:
        if seen > self.slot.fence:
            raise FencedError.of(str(self.binding), self.slot.pipeline, self.slot.fence, seen)
        if seen < self.slot.fence:
            raise SinkError(
                f"{self._who}: its fence is {self.slot.fence}, and the ledger holds {seen or 'none'}; nothing was written",
                hint="the ledger topic was removed or made anew; run again, to compare it with the state",
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """After any error the transaction is of no use, and is aborted at once, so that no reader waits for it."""
        try:
            yield
        except DriverError as error:
            try:
                raise self._failed(error) from None
            finally:
                self._let_go()
        except BaseException:
            self._let_go()
            raise

    def _failed(self, raised: BaseException) -> PakkaError:
        if why(raised).code() in FENCED:
            seen = self.control.book.read().fence
            if seen > self.slot.fence:
                return FencedError.of(str(self.binding), self.slot.pipeline, self.slot.fence, seen)
        return told_error(self._who, self.sink.address, raised, known="nothing of it is visible")

    def _let_go(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.drop()
        handle, self._handle = self._handle, None
        if handle is not None:
            # What this does not do, the driver does, or the brokers when it expires: nobody can commit it any more.
            with suppress(UnavailableError, UnknownOutcomeError, RefusedError):
                self.post.end(handle, is_commit=False, patience_s=ABORT_S)
        self._close()

    def _close(self) -> None:
        self._opening.drop()
        self.post.close()
        self.control.close()


class _Opening:
    """Asks for the id of an attempt while the first rows are on their way."""

    def __init__(self, writer: KafkaWriter) -> None:
        self._writer = writer
        self._opened: tuple[Seat, int] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    def wait(self) -> tuple[Seat, int]:
        """The id, and how many milliseconds the brokers leave a transaction of it open."""
        self._thread.join()
        if self._opened is None:
            raise self._error or SinkError(f"{self._writer._who}: was prepared or discarded; nothing was changed")
        return self._opened

    def drop(self) -> None:
        """Nothing is open under it, or it is left as it is."""
        self._thread.join()
        self._opened = None

    def _open(self) -> None:
        writer = self._writer
        sink, book, post = writer.sink, writer.control.book, writer.post
        try:
            timeout_ms = sink.transaction_ms(book.cluster)
            named = {*book.read().topics, *([sink.topic] if sink.topic else [])}
            # Whoever had the id may have left something that this attempt would end once more.
            seat = sink.open_mender(post, writer.id, book).seize(
                [*named, sink.slots_topic(writer.binding)],
                timeout_ms,
                lambda: sink.open_seat(post, writer.id, timeout_ms),
                is_wide=not sink.topic,
            )
            self._opened = seat, timeout_ms
        except BaseException as error:
            self._error = error
