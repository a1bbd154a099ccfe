"""A slot's way into Kafka as an open transaction: its records, its record for the slots topic, and a copy of it all in the spool.

Nobody but the driver ends it, by its producer id and epoch. Three things must hold before it may be called prepared, because an end
that is asked for from outside is granted whatever became of the records: nothing waits to be sent, no record was refused, and the
library itself, in statistics made after that, says that the transaction is whole (see decision 0012).

The last word is the spool's: its directory is renamed when a newer fence is raised, and only then are open transactions looked for. So
either this attempt was open before and is found, or it is refused here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from pakka.errors import FencedError, PakkaError, SinkError
from pakka.kafka_error import FENCED, told, told_error, why
from pakka.kafka_line import ANSWER_S, FATAL, DriverError, Grievance, error_of, fatal_of
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._kafka_ledger import PARTITION, Page
from pakka.sinks._kafka_produce import Outbox
from pakka.sinks._kafka_raw import PROTOCOL, Handle, Registry
from pakka.sinks._kafka_slots import Entered
from pakka.sinks._spool import SpoolWriter, no_rows, staging_of

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

STATISTICS_MS = 20
_INIT_S = 2 * ANSWER_S
_ABORT_S = 10.0


class _Gauge:
    """The newest statistics of a producer, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._text = "{}"

    def __call__(self, text: str) -> None:
        self.count += 1
        self._text = text

    @property
    def transaction(self) -> dict[str, Any]:
        return dict(json.loads(self._text).get("eos", {}))


class KafkaWriter:
    """One attempt at one slot."""

    def __init__(self, sink: KafkaSink, binding: Binding, slot: Slot, schema: pa.Schema) -> None:
        self.sink = sink
        self.binding = binding
        self.slot = slot
        self.id = sink.slot_id(binding, slot)
        self.rows = 0
        self.encode = sink.open_encoder(binding, schema)
        records = self.encode(no_rows(schema)).schema
        # First of all: it refuses an attempt that was begun before, and whatever is open in Kafka has its name there.
        self.spool = SpoolWriter(
            staging_of(binding, slot.fence), slot, records, lambda batch: batch, sink.spool_bytes_max
        )
        self.control = sink.open_control(binding)
        self._outbox: Outbox | None = None
        self._is_visible = False
        self._handle: Handle | None = None
        self._begun = 0.0
        self._timeout_ms = 0
        self._opening = _Opening(self)

    def write(self, batch: pa.RecordBatch) -> None:
        with self._told():
            records = self.encode(batch)
            if batch.num_rows and self._outbox is None and not self._is_visible:
                self._begin()
            if not self._is_visible:
                self.spool.write(records)
            if self._outbox is not None:
                self._outbox.send(records)
            self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        with self._told():
            if self._is_visible:
                self.spool.discard()
                return Prepared(self.slot, self.rows, checksum)
            outbox = self._outbox
            if outbox is None:
                self._opening.drop()
                return self.spool.prepare(checksum)
            entered = Entered(self.slot, self.rows, checksum)
            outbox.send_one(self.sink.slots_topic(self.binding), entered.to_bytes(), entered.key, PARTITION)
            outbox.settle()
            handle = self._confirm(outbox.producer)
            reach("task.kafka.sent", self.slot.epoch)
            copy = self.spool.prepare(checksum)
        self._handle = handle
        # Dropped, never closed: that would abort it.
        self._outbox = None
        del outbox
        self._opening.forget()
        reach("task.kafka.prepared", self.slot.epoch)
        return Prepared(self.slot, self.rows, checksum, {**copy.detail, **self._detail(handle)})

    def discard(self) -> None:
        self._let_go()
        handle, self._handle = self._handle, None
        if handle is not None:
            registry = Registry(self.binding, self.sink.address)
            try:
                registry.end(handle, is_commit=False)
            finally:
                registry.close()
        self.spool.discard()

    def _begin(self) -> None:
        """With the id in hand, look at the ledger: whose the sink is, and whether this slot is visible already."""
        opened = self._opening.wait()
        page = self.control.book.read()
        self._check_fence(page.fence)
        self._is_visible = page.epoch > self.slot.epoch or (page.epoch == self.slot.epoch and self._is_held(page))
        if self._is_visible:
            # The epoch runs again because other slots, or other sinks, have lost it. These rows are only counted.
            self._opening.drop()
            return
        reach("task.kafka.begun", self.slot.epoch)
        opened.producer.begin_transaction()
        self._begun, self._timeout_ms = time.time(), opened.timeout_ms
        self._outbox = Outbox(opened.producer, self.sink.topic or None, is_heeded=True)

    def _is_held(self, page: Page) -> bool:
        """Whether this slot of the epoch that the ledger names is visible."""
        if page.is_whole:
            return True
        registry = Registry(self.binding, self.sink.address)
        try:
            found = self.sink.open_slots(self.binding).read(self.control.book.cluster, registry)
        finally:
            registry.close()
        return self.slot.number in found.of_epoch(self.slot.epoch)

    def _confirm(self, producer: Producer) -> Handle:
        """What the library says of the transaction now. The first statistics that come may have been made before."""
        gauge = self._opening.gauge
        while producer.poll(0):
            pass
        wanted, deadline = gauge.count + 2, time.monotonic() + ANSWER_S
        while gauge.count < wanted:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the library tells no statistics"))
            producer.poll(STATISTICS_MS / 1000)
        seen = gauge.transaction
        if seen.get("txn_state") != "InTransaction" or int(seen.get("producer_id", -1)) < 0:
            raise SinkError(
                f"{self._who}: transaction `{self.id}` is {seen.get('txn_state', 'not known')}; nothing was prepared",
                hint="a record of it was not delivered; run again",
            )
        return Handle(self.id, int(seen["producer_id"]), int(seen["producer_epoch"]))

    def _detail(self, handle: Handle) -> dict[str, Any]:
        return {
            "id": handle.id,
            "producer_id": handle.producer_id,
            "producer_epoch": handle.producer_epoch,
            "protocol": PROTOCOL,
            "deadline": int(self._begun + self._timeout_ms / 1000),
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
            told = self._failed(error)
            self._let_go()
            raise told from None
        except BaseException:
            self._let_go()
            raise

    def _failed(self, raised: BaseException) -> PakkaError:
        opened = self._opening
        cause: BaseException | KafkaError = raised
        if opened.made is not None and error_of(raised).code() == FATAL:
            cause = fatal_of(opened.made)
        if why(cause).code() in FENCED:
            seen = self.control.book.read().fence
            if seen > self.slot.fence:
                return FencedError.of(str(self.binding), self.slot.pipeline, self.slot.fence, seen)
        return told_error(self._who, self.sink.address, cause, opened.grievance, "nothing of it is visible")

    def _let_go(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            # What this does not do, the driver does, or the brokers when it expires: nobody can commit it any more.
            with suppress(*DriverError):
                outbox.producer.abort_transaction(_ABORT_S)
        del outbox
        self._opening.drop()


class _Opening:
    """The producer of an attempt, which asks for its id while the first rows are on their way."""

    def __init__(self, writer: KafkaWriter) -> None:
        self.gauge = _Gauge()
        self.timeout_ms = 0
        self.grievance: Grievance | None = None
        self._writer = writer
        self.made: Producer | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    @property
    def producer(self) -> Producer:
        if self.made is None:
            raise SinkError(f"{self._writer._who}: was prepared or discarded; nothing was changed")
        return self.made

    def wait(self) -> _Opening:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self

    def drop(self) -> None:
        """Nothing is open under it, or it was aborted."""
        self._thread.join()
        self.forget()

    def forget(self) -> None:
        self.made = None
        self._writer.control.close()

    def _open(self) -> None:
        writer = self._writer
        try:
            self.timeout_ms = writer.sink.transaction_ms(writer.control.book.cluster)
            producer, self.grievance = writer.sink.open_producer(
                writer.binding, writer.id, self.timeout_ms, heed=self.gauge, statistics_ms=STATISTICS_MS
            )
            with told(writer._who, writer.sink.address, self.grievance, about=f"transactional id `{writer.id}`"):
                # Asked at once, the library mostly finds itself without a connection, and tries again half a second later.
                producer.list_topics(writer.sink.slots_topic(writer.binding), ANSWER_S)
                producer.init_transactions(_INIT_S)
            self.made = producer
        except BaseException as error:
            self._error = error
