"""Committing slots that writers hold open in Kafka: each transaction is ended by its handle, and one that has expired is replayed.

What keeps an older driver out, step by step:

1. The fence and the epoch stand in the ledger topic, which only who has the transactional id of the sink can write (`Control`). A
   newer driver asks for that id first, so that an older one can enter nothing any more, and writes its fence.
2. It renames the spool's directory. From here on no older attempt can be prepared: the last step of `prepare` is in that directory.
3. It looks for open transactions. What was prepared by then is open, and is in the way until it is settled: the decided ones are
   committed, the others aborted. What is opened later can never be prepared; no decision can name it, and nobody else ends it but by
   an abort.
4. No slot is ended before the epoch is entered in the ledger as one in part, which takes the id of step 1. So an older driver ends
   only transactions of an epoch that it had decided and entered before, and those a newer one finds open, or visible.

A transaction whose end was asked for is committed, or it is gone: committed before, aborted by a hand, or expired. Which of these, only
the slot's record in the slots topic can tell, and it is asked after the id was taken from whoever had it: nothing can change
any more. If it is not there the slot is sent again out of the spool, with the same record. That is done under the id of step 1, so two
drivers cannot both do it: who was overtaken is shut out before its transaction can end.

An attempt's id has its number modulo `ATTEMPTS`, or the brokers would remember a new id for every task for a week. Two attempts may so
have the same id; the later one aborts the earlier, which is then replayed, if it was the one that was decided.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, PakkaError, RefusedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums
from pakka.notice import notice
from pakka.points import reach
from pakka.sinks._kafka_batch import Handle
from pakka.sinks._kafka_ledger import Page
from pakka.sinks._kafka_part import Known, UntoldError, check_life, entry_of, lost_slots, part_of, shares_of
from pakka.sinks._kafka_raw import PROTOCOL, Registry
from pakka.sinks._kafka_slots import Entered, Found
from pakka.sinks._kafka_sweeper import Sweeper
from pakka.sinks._kafka_target import check_part, check_records
from pakka.sinks._spool import SpoolReader, clear, spool_errors, staging_of
from pakka.sinks._staging import not_aborted
from pakka.sinks._two_phase import Share

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

ATTEMPTS = 16


class PreparedCommitter:
    """Ends what the writers of one sink have prepared, under one fence."""

    def __init__(self, sink: KafkaSink, binding: Binding, fence: int) -> None:
        self.sink = sink
        self.binding = binding
        self.fence = fence
        self.control = sink.open_control(binding)
        self.slots = sink.open_slots(binding)
        self.registry = Registry(binding, sink.address)
        self.sweeper = Sweeper(sink, self.registry, self.control.book, self.slots)
        self.staging = staging_of(binding, fence)
        self._known: Known | None = None
        self._slots_id = ""
        self._is_same_life = False
        """Seen once: from then on only this driver has slots ended."""
        self._told: set[str] = set()
        """Topics that the ledger names."""
        self._lock = threading.RLock()

    def ledger(self) -> Ledger:
        page = self.control.page()
        with spool_errors(self.staging):
            # The spool may have seen a newer fence than the ledger: a driver died between raising the two.
            fence = max(page.fence, self.staging.seen())
        if not page.entry:
            return Ledger(fence, None)
        data = json.loads(page.entry)
        epoch = Epoch.from_json(data["epoch"])
        if page.is_whole:
            return Ledger(fence, Entry(epoch, data["rows"], data["checksum"]))
        shares = self._found().of_epoch(page.epoch).values()
        slots = {share.slot: (share.rows, share.checksum) for share in shares}
        rows, checksum = sum(s.rows for s in shares), add_checksums(s.checksum for s in shares)
        return Ledger(fence, Entry(epoch, rows, checksum, slots))

    def raise_fence(self) -> bool:
        self._check_fence(self.control.page())
        self.control.raise_fence(self.fence)
        page = self.control.page()
        self._check_fence(page)
        check_part(self.binding, self.sink, page)
        self._slots_id = self.slots.make(self.control.book.cluster)
        # An epoch that was left in part has slots that are committed, and readers may wait for them.
        self.sweeper.sweep(self._topics)
        if not page.is_whole:
            # Of an epoch that is whole every shard is visible, and whoever else had its id has lost it.
            self.sweeper.shut_out(self._topics)
        with spool_errors(self.staging):
            self.staging.raise_fence()
            newest = page.epoch if page.is_whole else page.epoch - 1
            holders = self._holders()
            for ident, slot in list(holders.items()):
                # Of an epoch that is whole nothing open can be wanted.
                if slot.fence and slot.epoch <= newest:
                    self.sweeper.end(ident, self._topics)
                    del holders[ident]
            for slot in self.staging.slots():
                if slot.epoch <= newest:
                    self.staging.remove(slot)
        return not any(slot.fence < self.fence for slot in holders.values())

    def check_position(self, position: str) -> None:
        self.control.check_position(position)

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        with self._lock:
            # 1. The ledger first: it knows the fence, whether this is the same epoch, and whether it is whole.
            page = self._page(epoch)
            if _is_settled(page, epoch):
                for record in prepared:
                    self._empty(record)
                return [ALREADY_COMMITTED] * len(prepared)
            # Before anything of this epoch is entered, and also if all that is left is to end what is open in the right topic.
            check_records(self.binding, self.sink, prepared)
            self.control.know(topic for record in prepared for topic in record.detail.get("topics", ()))
            # 2. From the first visible row on, the ledger must be able to say whose epoch this is.
            try:
                known = self._enter_part(epoch, page)
            except UntoldError as error:
                return self._untold(epoch, prepared, error)
            if known is None:
                return [self._overtaken(epoch)] * len(prepared)
        # 3. Each slot on its own.
        outcomes = self._answers(epoch, prepared, known)
        # 4. Readers wait for whatever is open, so other attempts at these slots must not be left to expire.
        self._end_others([record.slot for record, o in zip(prepared, outcomes, strict=True) if o.is_final])
        return outcomes

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        with self._lock:
            page = self._page(epoch)
            if _is_settled(page, epoch):
                return ALREADY_COMMITTED
            known: Known | None = Known(epoch.number)
            if page.epoch == epoch.number:
                # A person may accept an epoch of which nobody can tell any more what is visible.
                with suppress(UntoldError):
                    known = self._enter_part(epoch, page)
            if known is None:
                return self._overtaken(epoch)
            # Who finds the epoch whole does not look after it any more.
            self.sweeper.sweep(self._topics)
            entry = entry_of(epoch, known.shares.values())
            whole = Page(self.fence, epoch.number, entry)
            return COMMITTED if self.control.enter(whole, epoch.origin.position) else self._overtaken(epoch)

    def abort(self, prepared: Sequence[Prepared]) -> None:
        page = self.control.page()
        self._check_fence(page)
        holders = self._holders()
        for record in prepared:
            slot, ident = record.slot, self.sink.slot_id(self.binding, record.slot)
            if holders.get(ident) == slot:
                # Not only its end: whoever still writes to it is shut out.
                self.sweeper.end(ident, self._topics)
            elif slot.fence:
                # One that nobody knew of has ended meanwhile, or has got a record, by which it is another one.
                self._check_not_committed(slot, page)
            with spool_errors(self.staging):
                self.staging.remove(slot)

    def pending(self) -> Sequence[Prepared]:
        staged, others = self._pending()
        detail = {slot: {"id": ident} for ident, slot in others.items()}
        return [Prepared(slot, 0, add_checksums(()), detail.get(slot, {})) for slot in {*staged, *detail}]

    def in_doubt(self) -> Sequence[Doubt]:
        staged, others = self._pending()
        unstaged = {slot: ident for ident, slot in others.items() if slot not in staged}
        return [*self.staging.in_doubt(staged), *(Doubt(ident, slot) for slot, ident in unstaged.items())]

    def close(self) -> None:
        self.control.close()
        self.registry.close()

    def _answers(self, epoch: Epoch, prepared: Sequence[Prepared], known: Known) -> list[Outcome]:
        return [self._answer(epoch, record, known) for record in prepared]

    def _answer(self, epoch: Epoch, record: Prepared, known: Known) -> Outcome:
        try:
            return self._commit(epoch, record, known)
        except UnknownOutcomeError as error:
            # What is known of this epoch is read again before anything else of it is ended.
            with self._lock:
                known.is_sure = False
            return Outcome.unknown(error.message, error.hint)
        except (UnavailableError, RefusedError) as error:
            return Outcome.retry(error.message, error.hint)

    def _commit(self, epoch: Epoch, record: Prepared, known: Known) -> Outcome:
        slot, done = record.slot, self._done(record, known)
        if done is not None:
            return done
        reach("commit.apply", epoch.number)
        handle = handle_of(record)
        if handle is not None and self.registry.end(handle, is_commit=True).is_done:
            reach("commit.applied", epoch.number)
            known.shares[slot.number] = entered_of(record).share
            self._empty(record)
            return COMMITTED
        with self._lock:
            return self._settle(epoch, record, known)

    def _done(self, record: Prepared, known: Known) -> Outcome | None:
        """What is to be said of a record for which nothing is left to do; None: it is not visible yet."""
        if not record.rows:
            return COMMITTED
        held = known.shares.get(record.slot.number)
        if held is None:
            return None
        if (held.fence, held.attempt) != (record.slot.fence, record.slot.attempt):
            self._drop(record)
        self._empty(record)
        return ALREADY_COMMITTED

    def _settle(self, epoch: Epoch, record: Prepared, known: Known) -> Outcome:
        """The transaction is gone. It is visible, or it never will be and is sent again; to pass it over would lose rows."""
        # 1. Nobody else may replay it, and nothing may be left open that could still be ended.
        page = self.control.own(self.fence)
        if page is None or page.fence != self.fence or page.epoch != epoch.number:
            return self._overtaken(epoch)
        # One that was only spooled may be a shard, which somebody still sends under the id of its slot.
        handle = handle_of(record)
        self.sweeper.take(handle.id if handle else self.sink.shard_id(self.binding, record.slot), self._topics)
        # 2. Only now the slots topic can be believed.
        try:
            held = self._shares(page).get(record.slot.number)
        except UntoldError as error:
            return self._untold(epoch, [record], error)[0]
        if held is not None:
            known.shares[record.slot.number] = held
            self._empty(record)
            return ALREADY_COMMITTED
        # 3. The copy, with the same record.
        if "file" not in record.detail:
            return Outcome.refused(f"transaction `{record.slot}` has ended, and there is no copy of it")
        reader = SpoolReader(self.staging, [record])
        trouble = reader.verify()
        if trouble is not None:
            return Outcome.refused(f"its transaction has expired or was aborted, and {trouble}")
        notice(
            self.binding, "expired", f"`{record.slot}` has expired before its commit, and is sent again from the spool"
        )
        entered = entered_of(record)
        if not self.control.replay(self.slots.name, entered, reader.batches()):
            return Outcome.retry("the transactional id was lost before the replay")
        reach("commit.applied", epoch.number)
        known.shares[record.slot.number] = entered.share
        self._empty(record)
        return COMMITTED

    def _enter_part(self, epoch: Epoch, page: Page) -> Known | None:
        """What is visible of this epoch. None: a newer fence is kept."""
        # Slots are committed some at a time, and what is open in a topic is looked for only where the ledger names it.
        is_told = bool(self.sink.topic) or self.control.topics <= self._told
        if page.epoch < epoch.number:
            self._check_life(page)
        if page.epoch < epoch.number or not is_told:
            begun_with = json.loads(page.entry).get("slots_topic") if page.epoch == epoch.number else self._slots_id
            entry = part_of(epoch, begun_with or self._slots_id, self.sink.topic or None)
            if not self.control.enter(Page(self.fence, epoch.number, entry)):
                return None
            self._told = self.control.topics
        if page.epoch < epoch.number:
            # No slot is ever ended before this is entered.
            self._known = Known(epoch.number)
        elif self._known is None or self._known.epoch != epoch.number:
            self._known = Known(epoch.number, is_sure=False)
        if not self._known.is_sure:
            self._known.shares.update(self._shares(page))
            self._known.is_sure = True
        return self._known

    def _shares(self, page: Page) -> dict[int, Share]:
        return shares_of(page, self._found(), self.slots.name)

    def _check_life(self, page: Page) -> None:
        if self._is_same_life:
            return
        try:
            check_life(page, self._found(), self.slots.name)
        except UntoldError:
            # Slots of a newer driver are ahead, too.
            self._check_fence(self.control.seen())
            raise
        self._is_same_life = True

    def _untold(self, epoch: Epoch, prepared: Sequence[Prepared], error: UntoldError) -> list[Outcome]:
        """To send them again could double rows, and to call them visible could lose some."""
        for handle in filter(None, map(handle_of, prepared)):
            # A person will take longer than readers should wait. Their copies stay in the spool.
            self.sweeper.end(handle.id, self._topics)
        pipeline, topic = self.binding.pipeline, self.slots.name
        tool = f"kafka-topics.sh --bootstrap-server {self.sink.address.servers}"
        notice(
            self.binding,
            "untold",
            f"{error}; compare the rows of epoch {epoch.number} in {self.sink.target()} by hand, and accept what is there with "
            f"`pakka reset {pipeline} --sink {self.binding.sink}`; only if all of `{pipeline}` has begun anew, its checkpoint and state "
            f"store too, is the slots topic what is left over: `{tool} --delete --topic {topic}`",
        )
        return [Outcome.refused(str(error))] * len(prepared)

    def _page(self, epoch: Epoch) -> Page:
        page = self.control.page()
        self._check_fence(page)
        held = Epoch.from_json(json.loads(page.entry)["epoch"]) if page.epoch == epoch.number else epoch
        if held != epoch:
            raise SinkError(
                f"{self.binding}: holds epoch {epoch.number} of {held.origin}, and was asked to commit one of {epoch.origin}; its "
                "rows are not the same; nothing was changed",
                hint="restore the state store and the checkpoint that belong to this sink",
            )
        return page

    def _overtaken(self, epoch: Epoch) -> Outcome:
        self._check_fence(self.control.page())
        return Outcome.retry(f"epoch {epoch.number} was not entered")

    def _check_fence(self, page: Page) -> None:
        if page.fence > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, page.fence)

    def _check_not_committed(self, slot: Slot, page: Page) -> None:
        """What is gone was aborted before, or is visible. To call the second one aborted would be a lie."""
        if page.is_whole:
            slots = json.loads(page.entry)["slots"] if page.entry else []
            is_held = slot.epoch == page.epoch and [slot.number, slot.fence, slot.attempt] in slots
        else:
            found = self._found() if slot.epoch == page.epoch else Found()
            if slot in found.lost_of_epoch(page.epoch):
                raise SinkError(f"{self.binding}: {lost_slots([slot], self.slots.name)}; nothing was changed")
            share = found.of_epoch(page.epoch).get(slot.number)
            is_held = share is not None and (share.fence, share.attempt) == (slot.fence, slot.attempt)
        # Which slots an epoch was made of is known of the newest one only. Of an older one, what is staged was never committed: raising
        # the fence has removed the rest.
        if is_held or (slot.epoch < page.epoch and not self.staging.attempt(slot).exists()):
            raise not_aborted(self.binding, slot)

    @property
    def _topics(self) -> set[str]:
        """Every topic in which slots may have something open."""
        return {*self.control.topics, self.slots.name}

    def _found(self) -> Found:
        return self.slots.read(self.control.book.cluster, self.registry)

    def _pending(self) -> tuple[set[Slot], dict[str, Slot]]:
        holders = self._holders()
        with spool_errors(self.staging):
            return set(self.staging.slots()), holders

    def _holders(self) -> dict[str, Slot]:
        """Whose each open transaction is: its record in the slots topic says so, or, before there is one, its place in the spool."""
        producers = self.registry.listed(self.slots.prefix)
        if not producers:
            return {}
        found = self._found()
        with spool_errors(self.staging):
            staged = sorted(self.staging.slots(), key=lambda slot: (slot.fence, slot.epoch))
        by_id = {self.sink.slot_id(self.binding, slot): slot for slot in staged}
        holders: dict[str, Slot] = {}
        for ident, producer in producers.items():
            attempt = self.slots.attempt_of(ident)
            if attempt is None:
                continue
            # Nobody knows of it, so it was never prepared. No driver has fence 0, and no decision names it.
            nobody = Slot(self.binding.pipeline, self.binding.sink, 0, 0, *attempt)
            holders[ident] = found.is_open.get(producer) or by_id.get(ident) or nobody
        return holders

    def _end_others(self, winners: Sequence[Slot]) -> None:
        """Shut out other attempts at slots that are visible. What cannot be done now is left to the sweep, or expires."""
        won = {slot.number: slot for slot in winners}
        try:
            for ident, slot in self._holders().items():
                winner = won.get(slot.number)
                if winner is not None and slot.fence and slot.epoch <= winner.epoch and slot != winner:
                    with self._lock:
                        self.sweeper.end(ident, self._topics)
        except (UnavailableError, RefusedError) as error:
            notice(self.binding, "open", f"attempts that lost may still be open, and keep readers waiting: {error}")

    def _drop(self, record: Prepared) -> None:
        """An attempt at a slot of which another one is visible."""
        handle = handle_of(record)
        if handle is not None and self.registry.holder(handle.id) == handle:
            with self._lock:
                self.sweeper.end(handle.id, self._topics)

    def _empty(self, record: Prepared) -> None:
        """What cannot be removed, now or by this driver, is left to the sweep: the slot is committed all the same."""
        with suppress(OSError, PakkaError):
            clear(self.staging, record.slot)


def handle_of(record: Prepared) -> Handle | None:
    """The transaction of a record; None if it was only spooled."""
    detail = record.detail
    if "id" not in detail or "producer_id" not in detail:
        return None
    if detail.get("protocol", PROTOCOL) != PROTOCOL:
        raise SinkError(
            f"sink `{record.slot.pipeline}.{record.slot.sink}`: `{record.slot}` was prepared by transaction protocol "
            f"{detail['protocol']}, and {PROTOCOL} is known here; nothing was changed",
            hint="run the newer pakka that prepared it",
        )
    return Handle(str(detail["id"]), int(detail["producer_id"]), int(detail["producer_epoch"]))


def entered_of(record: Prepared) -> Entered:
    return Entered(record.slot, record.rows, record.checksum)


def _is_settled(page: Page, epoch: Epoch) -> bool:
    return page.epoch > epoch.number or (page.epoch == epoch.number and page.is_whole)
