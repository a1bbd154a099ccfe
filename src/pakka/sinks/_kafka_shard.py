"""Epochs that the executors send: each slot out of the spool, after the decision, in a transaction of its own.

Rows wait as by `spooled`, in no transaction, and are visible slot by slot as by `prepared`, with the same ledger and the same slots topic.
A slot has one transactional id for shards, whichever attempt at it was decided:

1. No shard is begun before its epoch is entered in the ledger as one in part, by the driver that has the id of the sink.
2. Who sends a slot asks for its id first. Whoever had it is shut out, and what he left open is aborted.
3. With the id in hand he reads the ledger and the slots topic. A newer fence, or another epoch: he leaves. The slot is visible: there is nothing to do.
4. Only then he sends, and ends the transaction himself: after the decision a commit is the only answer.

So two who send the same slot, a task that was thought to be dead and its next attempt, those of two drivers, or of an attempt that was lost and of
the one that was made in its place, cannot both commit it: the one that asked for the id last decides, and has seen what the other one did.

A newer driver that finds an epoch in part takes the ids under which nothing was begun since they were taken (`Sweeper.shut_out`): whoever has one
has looked at the fence, and would not look again. What is open already is in its way until it is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pakka.contract.sink import Spread
from pakka.errors import FencedError, RefusedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._kafka_control import Control
from pakka.sinks._kafka_ledger import Page
from pakka.sinks._kafka_pack import PackWriter
from pakka.sinks._kafka_part import Known, UntoldError, shares_of
from pakka.sinks._kafka_prepared import PreparedCommitter, entered_of, handle_of
from pakka.sinks._kafka_target import check_records
from pakka.sinks._spool import SpoolReader, staging_of
from pakka.sinks._two_phase import Share

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink


class ShardWriter(PackWriter):
    """One attempt at one slot: into the spool, and with the topics that its records name, which the ledger has to know before they are sent."""

    def prepare(self, checksum: str) -> Prepared:
        prepared = super().prepare(checksum)
        if not prepared.rows or self.packer.encode.recipe.topic is not None:
            return prepared
        return replace(prepared, detail={**prepared.detail, "topics": self.packer.encode.gauge.topics})


class Sender(Control):
    """Who has the transactional id of one attempt at a slot."""

    def __init__(self, sink: KafkaSink, binding: Binding, slot: Slot) -> None:
        super().__init__(sink, binding)
        self.id = sink.shard_id(binding, slot)

    def _reach_sent(self, epoch: int) -> None:
        reach("commit.kafka.shard.sent", epoch)


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a shard."""

    outcome: Outcome | None
    """None: a newer fence is there, or another epoch, and nothing was sent."""
    share: Share | None = None
    """What is visible of the slot; it may be another attempt, of the same rows."""


@dataclass(frozen=True)
class Shard:
    """Sends one slot of a decided epoch, wherever there is room for it."""

    sink: KafkaSink
    binding: Binding
    fence: int
    record: Prepared

    def __call__(self) -> Sent:
        with closing(Sender(self.sink, self.binding, self.record.slot)) as sender:
            try:
                return self._send(sender)
            except FencedError:
                return Sent(None)
            except UnknownOutcomeError as error:
                return Sent(Outcome.unknown(error.message, error.hint))
            except (UnavailableError, RefusedError) as error:
                return Sent(Outcome.retry(error.message, error.hint))

    def _send(self, sender: Sender) -> Sent:
        slot, entered = self.record.slot, entered_of(self.record)
        check_records(self.binding, self.sink, [self.record])
        sender.know(self.record.detail.get("topics", ()))
        # 1. Nobody else sends it from here on. Who comes too late takes the id from nobody.
        page = sender.own(self.fence) if self._is_wanted(sender.seen()) else None
        if page is None or not self._is_wanted(page):
            return Sent(None)
        # 2. Only now the slots topic can be believed of it.
        slots = self.sink.open_slots(self.binding)
        try:
            held = shares_of(page, slots.read(sender.book.cluster, sender.post), slots.name).get(slot.number)
        except UntoldError as error:
            return Sent(Outcome.refused(str(error)))
        if held is not None:
            return Sent(ALREADY_COMMITTED, self._compared(held))
        reach("commit.kafka.shard.begun", slot.epoch)
        # 3. Every byte is verified before one is sent.
        reader = SpoolReader(staging_of(self.binding, self.fence), [self.record])
        trouble = reader.verify()
        if trouble is not None:
            return Sent(Outcome.refused(trouble))
        if not sender.replay(slots.name, entered, reader.batches()):
            return Sent(Outcome.retry("the transactional id was lost before the slot was sent"))
        reach("commit.kafka.shard.ended", slot.epoch)
        return Sent(COMMITTED, entered.share)

    def _is_wanted(self, page: Page) -> bool:
        """Whether the ledger still waits for this slot."""
        return (page.fence, page.epoch, page.is_whole) == (self.fence, self.record.slot.epoch, False)

    def _compared(self, held: Share) -> Share:
        if (held.rows, held.checksum) != (self.record.rows, self.record.checksum):
            raise SinkError(
                f"{self.binding}: slot {held.slot} of epoch {self.record.slot.epoch} is visible with {held.rows} rows, checksum {held.checksum}, and "
                f"{self.record.rows} rows, checksum {self.record.checksum}, were decided; nothing was changed",
                hint="`process` gave other rows when the epoch ran again; compare the two, and accept what is there with "
                f"`pakka reset {self.binding.pipeline} --sink {self.binding.sink}`",
            )
        return held


class ShardedCommitter(PreparedCommitter):
    """Has what the writers of one sink have spooled sent by the executors; without any, by this very process."""

    def __init__(self, sink: KafkaSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self._over: Spread = _here

    def spread(self, over: Spread) -> None:
        self._over = over

    def _answers(self, epoch: Epoch, prepared: Sequence[Prepared], known: Known) -> list[Outcome]:
        done: dict[Slot, Outcome | None] = {}
        for record in prepared:
            # What another way has left open is ended by its own rules.
            is_shard = handle_of(record) is None
            done[record.slot] = self._done(record, known) if is_shard else self._answer(epoch, record, known)
        left = [record for record in prepared if done[record.slot] is None]
        for record, sent in zip(left, self._sent(left), strict=True):
            done[record.slot] = self._settled(epoch, record, sent, known)
        return [done[record.slot] or self._retried(epoch) for record in prepared]

    def _sent(self, left: Sequence[Prepared]) -> Sequence[Sent]:
        if not left:
            return ()
        with self._lock:
            # Nothing may be open in the ledger that shards would wait for.
            if self.control.own(self.fence) is None:
                return [Sent(None)] * len(left)
        return self._over([Shard(self.sink, self.binding, self.fence, record) for record in left])

    def _settled(self, epoch: Epoch, record: Prepared, sent: Sent, known: Known) -> Outcome | None:
        if sent.share is not None:
            reach("commit.applied", epoch.number)
            known.shares[record.slot.number] = sent.share
            self._empty(record)
        return sent.outcome

    def _retried(self, epoch: Epoch) -> Outcome:
        """The ledger has waited for something else. Asked without the id, as shards do: it is not ours if a newer fence is there."""
        with self._lock:
            self._check_fence(self.control.seen())
        return Outcome.retry(f"epoch {epoch.number} was not entered")


def _here(work: Sequence[Callable[[], Any]]) -> list[Any]:
    return [each() for each in work]
