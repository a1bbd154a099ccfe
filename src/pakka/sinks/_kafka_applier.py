"""A whole epoch into Kafka in one transaction: the records, the ledger's record and the source's offsets, seen at one instant.

What keeps an older driver out is Kafka itself. The transactional id of a sink is the same for ever, and asking for it
(InitProducerId) ends whatever the last one who had it left open and shuts that one out. The order makes it right:

1. ask for the id: from here on nobody else can write the ledger. What Kafka has ended and not told its partitions is ended there
   first (`Mender`);
2. read the ledger to its very end: whatever was decided of the transactions before is in it;
3. a newer fence there: leave, having written nothing. Else the ledger is what it says until somebody asks for the id again, and
   then our next transaction fails.

So a driver that woke up late can disturb the newest one, whose call fails and is repeated, but it cannot write: between 1 and 2 it
writes nothing, and after 2 it knows. To disturb as little as possible the ledger is looked at before 1 too.

An answer that does not come to the end of a transaction is settled in the same way: what is in the ledger after 1 and 2 was
committed, and what is not never will be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pakka.errors import FencedError, PakkaError, RefusedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.kafka_error import FENCED, reason_of, told, told_error, why
from pakka.kafka_line import DriverError, is_denied
from pakka.model.id import Binding
from pakka.notice import notice
from pakka.points import reach
from pakka.sinks._kafka_ledger import PARTITION, Page
from pakka.sinks._kafka_mender import Look, Mender
from pakka.sinks._kafka_position import Standing, check_rights, denied
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_produce import Outbox, Seat
from pakka.sinks._kafka_raw import End, Registry
from pakka.sinks.spooled import Applier, Token

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink
ABORT_S = 10.0
"""For an abort: what it does not do in this time, the next one who asks for the id does."""
CLOSE_S = 10.0
"""For the answer to the last look, at the end of a run."""
FEW_TOPICS = 64
"""After so many new topics it is asked which of the older ones are still there."""


@dataclass
class _Session:
    """The transactional id in hand, and the ledger as it is for as long as nobody else asks for it."""

    seat: Seat
    most_s: float
    """How long the brokers leave a transaction of it open."""
    page: Page


class KafkaApplier(Applier):
    """Holds the driver's producer, for one sink of one pipeline."""

    knows_parts: ClassVar[bool] = False
    """Whether an epoch may be found of which only some slots are visible."""

    def __init__(self, sink: KafkaSink, binding: Binding) -> None:
        self.sink = sink
        self.binding = binding
        self.address = sink.address
        self.id = sink.transactional_id(binding)
        self.book = sink.open_book(binding)
        self._session: _Session | None = None
        self._fence: int | None = None
        """The fence in whose name this applier has asked for the id; None: it has only looked so far."""
        self._topics: set[str] = set()
        """All that the sink has written to, as far as this applier knows."""
        self._touched: set[str] = set()
        """Of the last transaction, however it ended."""
        self._aged: set[str] = set()
        """Of all topics those that were known when the last ones were forgotten, or when the driver began."""
        self._topics_most = 0
        """With more it is time to forget some."""
        self._read_to: int | None = None
        """The offset up to which the ledger was read with the id in hand, as long as nothing was written behind it."""
        self._told = -1
        """The newest epoch of which this applier has said that it is committed."""
        self._look: Look | None = None
        """At what the last transaction has left; None: it was aborted, or was seen closed when the session began."""
        self._cluster_id = ""
        self._asked: set[tuple[str, frozenset[str]] | None] = set()
        """Groups that may be told of topics, as was seen."""
        self.post = Post(binding, self.address)
        self.second = Post(binding, self.address)
        """A line for more of an epoch's records than the other one takes."""

    @cached_property
    def mender(self) -> Mender:
        return self.sink.open_mender(Registry(self.binding, self.address), self.id, self.book)

    def ledger(self) -> tuple[int, str]:
        session = self._session
        if session is None and self._fence is not None:
            # A producer was lost, and with it perhaps an answer: only who has the id knows what became of its transaction.
            session = self._settle(self._fence)
        page = session.page if session is not None else self.seen()
        if not page.is_whole and not self.knows_parts:
            raise SinkError(
                f"{self.binding}: {self.address}: epoch {page.epoch} is visible in part: it was begun by `way: prepared` or `sharded`, and "
                "this run's is `spooled`; nothing was changed",
                hint="run once with `way: sharded` or `way: prepared`, either of which finishes it; then change the way",
            )
        return page.fence, page.entry

    def seen(self) -> Page:
        """The ledger as it is known without the id. What is committed counts, also where no reader gets to it: to take it for missing would
        be to take the sink for an older copy of itself.
        """
        raw = self.mender.hidden()
        return self.book.read() if raw is None else self.book.page(raw)

    def raise_fence(self, fence: int) -> None:
        self.book.make()
        self._drop()
        session = self._settle(fence)
        if session is None or session.page.fence >= fence:
            return
        page = Page(fence, session.page.epoch, session.page.entry)
        self._transact(session, page, lambda outbox: self._enter(outbox, page))

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        session = self._ready(token.fence)
        if session is None or session.page.fence != token.fence or token.epoch <= session.page.epoch:
            return False
        page = Page(token.fence, token.epoch, token.entry)

        def fill(outbox: Outbox) -> None:
            reach("commit.kafka.begun", token.epoch)
            outbox.foresee(self.book.name, PARTITION)
            for number, batch in enumerate(batches):
                outbox.send(batch)
                if number == 0:
                    reach("commit.kafka.sending", token.epoch)
            outbox.settle()
            reach("commit.kafka.sent", token.epoch)
            self._enter(outbox, page)
            reach("commit.kafka.offsets", token.epoch)
            self._tell_group(outbox.seat, token.position)
            reach("commit.kafka.ending", token.epoch)

        self._transact(session, page, fill)
        return True

    def check_position(self, position: str) -> None:
        try:
            standing = self._standing(position)
        except DriverError as error:
            raise told_error(self.binding, self.address, error) from None
        asked = (standing.group, standing.topics) if standing is not None else None
        if standing is not None and asked not in self._asked:
            check_rights(self.binding, self.book.cluster, standing)
            self._asked.add(asked)

    def _targets(self) -> list[str]:
        """Topics that are written to beside the ledger, as far as that is known before there are rows."""
        return [self.sink.topic] if self.sink.topic else []

    def close(self) -> None:
        self._see_off()
        self._drop()
        self.post.close()
        self.second.close()
        self.mender.registry.close()
        self.book.close()

    def _see_off(self) -> None:
        """No transaction of this driver follows the last one, so it is looked after here. What this does not do, the next driver does."""
        look, self._look = self._look, None
        is_closed = look is None or look.wait(CLOSE_S)
        trouble = "the brokers did not answer"
        if is_closed is False:
            try:
                timeout_ms = self.sink.transaction_ms(self.book.cluster)
                self.mender.settle(self._known(self.seen()), timeout_ms, leaves_open=True)
                return
            except PakkaError as error:
                trouble = error.message
        if not is_closed:
            notice(
                self.binding,
                "unsettled",
                f"whether the last transaction of `{self.id}` is visible in all of its partitions was not seen: {trouble}; the next run "
                "sees to it, and until then readers may wait for it",
            )

    def _ready(self, fence: int) -> _Session | None:
        """Have the id, and nothing open that an end of the next transaction could take with it. None: a newer fence is there."""
        if self._look is not None and not self._look.is_closed():
            self._drop()
        return self._session or self._settle(fence)

    def _settle(self, fence: int) -> _Session | None:
        """Ask for the id, and read the ledger to its end. None: a newer fence is there, and nothing was written."""
        page = self.book.read()
        if page.fence > fence:
            return None
        self._fence = fence
        timeout_ms = self.sink.transaction_ms(self.book.cluster)
        seat = self.mender.seize(
            self._known(page),
            timeout_ms,
            lambda: self.sink.open_seat(self.post, self.id, timeout_ms, self.second),
            is_wide=not self.sink.topic,
        )
        page, self._read_to = self.book.read_to_end(is_settled=True)
        if page.fence > fence:
            return None
        if page.epoch < self._told:
            raise SinkError(
                f"{self.binding}: {self.address}: the ledger has epoch {page.epoch} as its newest, and this driver was told that epoch {self._told} is "
                "committed: it was undone, or a broker that was overtaken has answered; nothing was changed",
                hint="run again; if it is said again, somebody has written to the ledger topic or set it back: see what readers have of that epoch",
            )
        self._aged = self._aged or set(page.topics)
        self._topics |= {*page.topics, *self._touched}
        self._session = _Session(seat, timeout_ms / 1000, page)
        return self._session

    def _known(self, page: Page) -> set[str]:
        """Every topic in which something of this id may be open."""
        topics = {self.book.name, *page.topics, *self._topics, *self._touched, *self._targets()}
        if self.mender.held([self.book.name]):
            # The newest page may be one that no reader gets to.
            raw = self.book.written(self.book.key)
            topics |= set(self.book.page(raw).topics) if raw is not None else set()
        return topics

    def _transact(self, session: _Session, page: Page, fill: Callable[[Outbox], None]) -> None:
        """One transaction: all that `fill` sends, which makes `page` the newest of the ledger."""
        began = time.monotonic()
        is_filled = False
        self._topics |= self._touched
        self._forget_gone()
        self._touched.clear()
        outbox = session.seat.outbox(self.sink.topic, self._touched)
        try:
            fill(outbox)
            outbox.settle()
            is_filled = True
        except DriverError as error:
            raise self._failed(session, error, began) from None
        finally:
            if not is_filled:
                outbox.drop()
                self._abort(session)
        # Until the answer is here it is not known what the ledger says, whatever ends this call.
        self._session = None
        end = self._end(session)
        if not end.is_done:
            raise UnknownOutcomeError(
                f"{self.binding}: {self.address}: the transaction of `{self.id}` has ended before, or somebody else has asked for the id"
            )
        if end is End.REPEATED:
            # What is still on its way must not end the next transaction: that one gets another handle.
            self._drop()
        else:
            session.page = page
            self._session = session
        self._told = page.epoch
        self._look = Look(self.mender, self._touched)

    def _end(self, session: _Session) -> End:
        try:
            return self.post.end(session.seat.handle, is_commit=True, granter=session.seat.granter)
        except UnknownOutcomeError as error:
            raise UnknownOutcomeError(f"{self.binding}: {self.address}: {error.message}") from None
        except PakkaError:
            # Nobody was asked, or it was refused.
            self._abort(session)
            raise

    def _enter(self, outbox: Outbox, page: Page) -> None:
        outbox.send_one(self.book.name, self._written(page), self.book.key, PARTITION)
        # Waited for: who was overtaken is told so here, and not at the end, where it would not be known what became of it.
        offset = outbox.settle().get((self.book.name, PARTITION))
        # Nobody else writes there while the id is ours. So there was more than was read: the broker that was asked had been overtaken itself.
        if self._read_to is not None and offset != self._read_to:
            raise UnavailableError(
                f"{self.binding}: {self.address}: ledger topic `{self.book.name}` was read to offset {self._read_to}, and its next record has offset "
                f"{offset}: what is between them may be committed epochs; nothing was changed",
                hint="it is read again; a broker that had lost the partition's lead has answered, or somebody else writes there",
            )
        self._read_to = None

    def _forget_gone(self) -> None:
        """Topics that rows name come and go, and the ledger would grow with them for ever. In one that is gone nothing can be open.

        All others stay: rows may name them again, and a transaction that is left behind then is looked for in those that the ledger has.
        Of one that was just made, a broker may not have heard yet, and it is not asked for.
        """
        if self.sink.topic or len(self._topics) <= self._topics_most:
            return
        cluster = self.book.cluster
        with told(self.binding, self.address, cluster.grievance, about="topics that rows have named"):
            self._topics -= {name for name, topic in cluster.visible(self._aged).items() if topic is None}
        self._aged = set(self._topics)
        self._topics_most = len(self._topics) + FEW_TOPICS

    def _written(self, page: Page) -> bytes:
        """A page as it stands in the ledger: with every topic that was written to and is not gone, this transaction's and those of its slots
        among them. Also one that the sink has for ever: its user may name another one tomorrow.
        """
        topics = {*self._topics, *self._touched, *self._targets()} - {self.book.name}
        return replace(page, topics=tuple(sorted(topics))).to_bytes()

    def _tell_group(self, seat: Seat, position: str) -> None:
        standing = self._standing(position)
        if standing is None:
            return
        try:
            gone = seat.post.tell_group(seat.handle, standing.group, standing.offsets)
        except DriverError as error:
            if is_denied(error):
                raise denied(self.binding, self.address, standing) from None
            raise
        if gone:
            parts = ", ".join(f"partition {partition} of topic `{topic}`" for topic, partition in sorted(gone))
            notice(
                self.binding,
                "gone",
                f"group `{standing.group}` is not told how far the source is in what is not there any more: {parts}",
            )

    def _standing(self, position: str) -> Standing | None:
        """Where the source stands, if it is of this very cluster."""
        standing = Standing.of(position)
        return standing if standing is not None and standing.cluster == self._own_cluster() else None

    def _own_cluster(self) -> str:
        self._cluster_id = self._cluster_id or self.book.cluster.id
        return self._cluster_id

    def _failed(self, session: _Session, raised: BaseException, began: float) -> PakkaError:
        """Before the end of a transaction was asked for: it is not committed, and never will be."""
        if why(raised).code() not in FENCED:
            return told_error(self.binding, self.address, raised)
        mine, seen = self._fence or 0, self.book.read().fence
        if seen > mine:
            return FencedError.of(str(self.binding), self.binding.pipeline, mine, seen)
        took_s = time.monotonic() - began
        if took_s >= session.most_s:
            return UnavailableError(
                f"{self.binding}: {self.address}: the transaction of `{self.id}` took {took_s:.0f} s, and the brokers end it after "
                f"{session.most_s:.0f} s; nothing was changed",
                hint="take less in one epoch, or raise `transaction.timeout.ms` in `settings`, and `transaction.max.timeout.ms` of the "
                "brokers with it",
            )
        return UnavailableError(
            f"{self.binding}: {self.address}: somebody else has asked for transactional id `{self.id}`: "
            f"{reason_of(raised, self.address)}; nothing was changed",
            hint="an older driver may have woken up and gone; if it happens again, see who else uses that id",
        )

    def _abort(self, session: _Session) -> None:
        """Undo what was sent, so that nobody has to wait for it. What cannot be undone now, the next who asks for the id undoes.

        The id goes too: of a batch that had no answer it is not known whether its broker has counted it.
        """
        self._drop()
        notice(self.binding, "aborted", f"a transaction of `{self.id}` is given up, and nothing of it becomes visible")
        with suppress(UnavailableError, UnknownOutcomeError, RefusedError):
            self.post.end(session.seat.handle, is_commit=False, patience_s=ABORT_S)

    def _drop(self) -> None:
        self._session = None
        look, self._look = self._look, None
        if look is not None:
            look.drop()
