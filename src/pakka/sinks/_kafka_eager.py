"""An epoch on its way into Kafka while its slots are still written, in the transaction that is ended after the decision.

The driver follows the slots' files in the spool and sends what is whole. A transaction that nobody has ended is as invisible as a file, and whoever
takes the transactional id aborts it, which the next driver does first of all. The spool remains what counts:

1. what was sent is taken only if the decided slots are the very bytes of it, and nothing else was sent;
2. else it is aborted, and the epoch is sent out of the spool as if nothing had been begun. So is one that anything went wrong with.

Readers wait from an epoch's first record on, and not from its decision. Large epochs gain nothing by it, since both processors have enough to do:
they are sent after their decision, and so are those that take long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from pakka.errors import PakkaError
from pakka.kafka_line import DriverError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Outcome
from pakka.model.prepared import Prepared
from pakka.mount import mount_of
from pakka.notice import notice
from pakka.points import reach
from pakka.sinks._kafka_applier import KafkaApplier, Opened
from pakka.sinks._spool import CRC32C, FILE
from pakka.sinks._staging import Staging
from pakka.sinks._tail import Tail
from pakka.sinks.spooled import Flow, SpooledCommitter, Token

BYTES_MAX = 32 << 20
"""Of an epoch that is begun early. One of 250 MB took as long as without, and more of the processors."""
HELD_S = 5.0
"""How long readers may wait for an epoch that is still written."""
_PATIENCE_S = 5.0
"""For a broker that is away. There is no hurry before the decision, and an epoch that is aborted should not wait long."""
_PAUSE_S = 0.004


class EagerCommitter(SpooledCommitter):
    """Settles epochs as every spooled sink does, and has sent them by then, mostly."""

    applier: KafkaApplier

    def __init__(self, binding: Binding, fence: int, applier: KafkaApplier) -> None:
        super().__init__(binding, fence, applier, is_exact=True)
        # Of a network file system another machine can take a file away while it is read, and the reader dies of it.
        self._is_local = not mount_of(binding.spool).is_network
        self._is_worth_it = True
        """Whether the last epoch was small, and quickly written."""
        self._began: float | None = None
        self._early: Early | None = None

    def begin_epoch(self, epoch: Epoch) -> None:
        self.give_up()
        self._began = time.monotonic()
        if self._is_local and self._is_worth_it:
            self._early = Early(self.staging, self.applier, self.fence, epoch.number)

    def give_up(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            early.stop()
            early.undo()

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        if self._began is not None:
            took_s, self._began = time.monotonic() - self._began, None
            self._is_worth_it = took_s < HELD_S and sum(p.detail.get("bytes", 0) for p in prepared) <= BYTES_MAX
        # From here on the applier is the caller's.
        if self._early is not None:
            self._early.stop()
        try:
            return super().commit_epoch(epoch, prepared)
        finally:
            self.give_up()

    def close(self) -> None:
        try:
            self.give_up()
        finally:
            super().close()

    def _apply(self, token: Token, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome | None:
        early, self._early = self._early, None
        opened = early.taken(epoch.number, prepared) if early is not None else None
        if opened is not None:
            self.applier.finish(opened, token, Flow(iter(()), epoch.number))
            return None
        if early is not None:
            early.undo()
        return super()._apply(token, epoch, prepared)


class _Late(Exception):
    """Why an epoch is sent after its decision."""


class Early:
    """One epoch that is sent by a thread of its own. Until `stop` the applier is the thread's."""

    def __init__(self, staging: Staging, applier: KafkaApplier, fence: int, epoch: int) -> None:
        self.staging = staging
        self.applier = applier
        self.fence = fence
        self.epoch = epoch
        self._opened: Opened | None = None
        self._tails: dict[Slot, Tail] = {}
        self._deadline = time.monotonic() + HELD_S
        self._is_whole = False
        """Whether the thread came to its end, with all that it has found sent."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pakka-kafka-early", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is there by now, and no more."""
        self._is_over.set()
        self._thread.join()

    def taken(self, epoch: int, prepared: Sequence[Prepared]) -> Opened | None:
        """The transaction, for its taker to end, if it has these slots of this epoch, every byte of them, and nothing else."""
        if self._opened is None or not self._is_whole or epoch != self.epoch:
            return None
        decided = {record.slot: record for record in prepared if record.rows}
        sent = {slot: tail for slot, tail in self._tails.items() if tail.batches}
        if sent.keys() != decided.keys() or not all(tail.is_all_of(decided[slot]) for slot, tail in sent.items()):
            return None
        opened, self._opened = self._opened, None
        self._let_go()
        return opened

    def undo(self) -> None:
        """Nothing of it becomes visible. Twice is harmless."""
        opened, self._opened = self._opened, None
        self._let_go()
        if opened is not None:
            self.applier.give_up(opened)

    def _let_go(self) -> None:
        tails, self._tails = self._tails, {}
        for tail in tails.values():
            tail.close()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                if not self._look():
                    self._is_over.wait(_PAUSE_S)
            self._look()
            self._is_whole = True
        except Exception as error:  # whatever it is, the commit begins anew, and says what is wrong if it still is
            notice(self.staging.binding, "late", f"epoch {self.epoch} is sent after its decision: {error}")
            # Readers wait for what is open. What cannot be ended now, the next who takes the id ends.
            with suppress(PakkaError, *DriverError):
                self.undo()

    def _look(self) -> bool:
        """Send what has become whole. Whether there was anything."""
        self._find()
        is_found = False
        for tail in self._tails.values():
            for batch in tail.read():
                self._send(batch)
                is_found = True
        if self._opened is not None:
            self._check_bounds()
        return is_found

    def _find(self) -> None:
        """Follow the attempts that have begun."""
        for name in os.listdir(self.staging.path):
            slot = Slot.parse(name)
            # What an older driver has staged lies here too, until it is aborted.
            if slot is None or (slot.epoch, slot.fence) != (self.epoch, self.fence) or slot in self._tails:
                continue
            with suppress(FileNotFoundError):  # not there yet, or gone again: a slot without rows leaves no file
                self._tails[slot] = Tail(self.staging.attempt(slot) / FILE, CRC32C)
        sent = [slot.number for slot, tail in self._tails.items() if tail.batches]
        if len(sent) != len(set(sent)):
            raise _Late("a slot of it has been begun twice")

    def _check_bounds(self) -> None:
        if sum(tail.bytes for tail in self._tails.values()) > BYTES_MAX:
            raise _Late(f"it is larger than {BYTES_MAX >> 20} MB")
        if time.monotonic() > self._deadline:
            raise _Late(f"it was not written after {HELD_S:.0f} s, and readers wait for it")

    def _send(self, batch: pa.RecordBatch) -> None:
        if self._opened is None:
            self._opened = self.applier.begin(self.fence, self.epoch)
            if self._opened is None:
                raise _Late("a newer fence is there, or it is committed")
            self._opened.outbox.patience_s = _PATIENCE_S
            # Nothing is won where the brokers end it first.
            self._deadline = min(self._deadline, time.monotonic() + self._opened.session.most_s / 2)
        self._opened.outbox.send(batch)
        reach("early.kafka.sending", self.epoch)
