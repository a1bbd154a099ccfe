"""Committing transactions that a database has prepared: what is the same for every server that can do it.

The writer has put a slot's rows and its ledger row into one transaction of the server, has read the fence in it under a
shared lock, and has prepared it. So three things hold whatever happens here:

- while something prepared under an older fence is there, the fence cannot be raised; it is settled first;
- once the fence is raised, no older writer can prepare;
- a slot's rows and its ledger row become visible together, so the ledger is the one witness of what is committed. That a
  server does not know an id any more proves nothing: it may be committed, and it may be rolled back by somebody.

A database is asked through a `Clerk`: one statement or one transaction each.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums
from pakka.points import reach

LEDGER_EPOCHS = 1000
"""How many epochs a ledger keeps for people to look at. For the protocol the newest one is enough."""
HEADER = -1
"""The slot number of the ledger row that stands for the epoch itself."""


class Answer(Enum):
    """What a server says to the end of a prepared transaction."""

    DONE = "done"
    GONE = "gone"
    """It knows no such id. Only the ledger can tell why."""
    BUSY = "busy"
    """Somebody else is at it, or its writer has not let go yet."""


@dataclass(frozen=True, slots=True)
class Share:
    """The ledger row of one committed slot."""

    slot: int
    fence: int
    attempt: int
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Page:
    """The fence, and the ledger of one epoch: what is entered of it, and which of its slots are committed."""

    fence: int = 0
    newest: int = -1
    number: int = -1
    header: str = ""
    shares: Mapping[int, Share] = field(default_factory=dict)

    @property
    def epoch(self) -> Epoch | None:
        """The epoch as it was entered; None before it was."""
        return Epoch.from_json(json.loads(self.header)["epoch"]) if self.header else None

    @property
    def is_whole(self) -> bool:
        return bool(self.header) and bool(json.loads(self.header).get("is_whole", True))

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.shares.values())

    @property
    def checksum(self) -> str:
        return add_checksums(share.checksum for share in self.shares.values())


def header_of(epoch: Epoch, *, is_whole: bool) -> str:
    """What the ledger keeps of an epoch that is committed slot by slot."""
    return json.dumps({"v": 1, "epoch": epoch.to_json(), "is_whole": is_whole}, separators=(",", ":"))


class Clerk(ABC):
    """A database, asked one thing at a time. Several threads ask at once.

    What it raises: `UnavailableError` if nothing can have been done, `SinkError` if the server says no,
    `UnknownOutcomeError` if there was no answer to something that changes rows.
    """

    @abstractmethod
    def look(self, epoch: int | None) -> Page:
        """The fence, and the page of that epoch, or of the newest one. `Page()` before there are tables. Changes nothing."""

    @abstractmethod
    def raise_fence(self, fence: int) -> bool:
        """Make the tables if they are missing, and keep `fence` durably if it is higher. False: something prepared is in
        the way, which was waited for only briefly.
        """

    @abstractmethod
    def write_header(self, fence: int, epoch: int, header: str, *, keep: int) -> bool:
        """Enter or replace an epoch's header, and forget epochs up to `keep`. False: a newer fence is kept, and nothing was done.

        An older one may be kept: a new driver commits what is decided before it can raise its own. It need not be durable by itself: what makes a later transaction durable makes this one durable too.
        """

    @abstractmethod
    def commit(self, ident: str) -> Answer:
        """End a prepared transaction: its rows become visible."""

    @abstractmethod
    def roll_back(self, ident: str) -> Answer:
        """End a prepared transaction: its rows vanish."""

    def may_list(self) -> bool:
        """Whether the server lets this user see what is prepared."""
        return True

    @abstractmethod
    def listed(self) -> Iterator[tuple[Slot, str]]:
        """Every prepared transaction of this pipeline and sink in this database, and its id. Never anybody else's."""

    def in_doubt(self) -> Sequence[Doubt]:
        """The same, told in full where the server tells more, and what others have prepared there."""
        return [Doubt(ident, slot) for slot, ident in self.listed()]

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. Twice is harmless."""


def is_of_server(record: Prepared) -> bool:
    """It was prepared on the server, and not spooled."""
    return "id" in record.detail


class TwoPhaseCommitter:
    """Settles prepared transactions by the ledger, for one sink of one pipeline under one fence."""

    def __init__(self, binding: Binding, fence: int, clerk: Clerk) -> None:
        self.binding = binding
        self.fence = fence
        self.clerk = clerk

    def ledger(self) -> Ledger:
        page = self.clerk.look(None)
        epoch = page.epoch
        if epoch is None:
            return Ledger(page.fence, None)
        slots = {share.slot: (share.rows, share.checksum) for share in page.shares.values() if share.slot != HEADER}
        return Ledger(page.fence, Entry(epoch, page.rows, page.checksum, None if page.is_whole else slots))

    def raise_fence(self) -> bool:
        is_raised = self.clerk.raise_fence(self.fence)
        self._check_fence(self.clerk.look(None))
        return is_raised

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        # 1. The ledger first: it knows the fence, whether this is the same epoch, and what is visible already.
        page = self._page(epoch)
        #    An epoch that is whole stays so, also if a person has accepted it without some of its slots.
        if page.newest > epoch.number or page.is_whole:
            return [ALREADY_COMMITTED] * len(prepared)
        #    A spooled one is refused here: with a header of ours its own way would take the epoch for one that is visible in part.
        for record in prepared:
            self._ident(record)
        # 2. From the first visible row on, the ledger must be able to say whose epoch this is.
        if not page.header and not self._write_header(epoch, is_whole=False):
            return [self._overtaken(epoch)] * len(prepared)
        # 3. Each slot on its own.
        return [self._commit(epoch, record, page) for record in prepared]

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        page = self._page(epoch)
        if page.newest > epoch.number or page.is_whole:
            return ALREADY_COMMITTED
        return COMMITTED if self._write_header(epoch, is_whole=True) else self._overtaken(epoch)

    def abort(self, prepared: Sequence[Prepared]) -> None:
        self._check_fence(self.clerk.look(None))
        for record in prepared:
            answer = self.clerk.roll_back(self._ident(record))
            if answer is Answer.BUSY:
                raise UnavailableError(
                    f"{self.binding}: `{record.slot}` is prepared and somebody else is at it; it was not aborted",
                    hint="run again: it is aborted when nobody else holds it",
                )
            if answer is Answer.GONE:
                self._check_not_committed(record.slot)

    def pending(self) -> Sequence[Prepared]:
        return [Prepared(slot, 0, add_checksums(()), {"id": ident}) for slot, ident in self.clerk.listed()]

    def in_doubt(self) -> Sequence[Doubt]:
        return self.clerk.in_doubt()

    def close(self) -> None:
        self.clerk.close()

    def _commit(self, epoch: Epoch, record: Prepared, page: Page) -> Outcome:
        number = record.slot.number
        if number in page.shares:
            return ALREADY_COMMITTED
        ident = self._ident(record)
        reach("commit.apply", epoch.number)
        try:
            answer = self.clerk.commit(ident)
            if answer is Answer.DONE:
                reach("commit.applied", epoch.number)
                return COMMITTED
            # The id is no longer there: by our own hand, by another driver's, or by an administrator's.
            if number in self._page(epoch).shares:
                return ALREADY_COMMITTED
        except UnknownOutcomeError as error:
            return Outcome.unknown(error.message, error.hint)
        except UnavailableError as error:
            return Outcome.retry(error.message, error.hint)
        if answer is Answer.BUSY:
            return Outcome.retry(f"somebody else is at prepared transaction `{ident}`")
        return Outcome.refused(
            f"the server has no prepared transaction `{ident}`, and its rows are not in the ledger: it was rolled back"
        )

    def _page(self, epoch: Epoch) -> Page:
        page = self.clerk.look(epoch.number)
        self._check_fence(page)
        held = page.epoch
        if held is not None and held != epoch:
            raise SinkError(
                f"{self.binding}: holds epoch {epoch.number} of {held.origin}, and was asked to commit one of {epoch.origin}; its "
                "rows are not the same; nothing was changed",
                hint="restore the state store and the checkpoint that belong to this sink",
            )
        return page

    def _write_header(self, epoch: Epoch, *, is_whole: bool) -> bool:
        header = header_of(epoch, is_whole=is_whole)
        keep = epoch.number - LEDGER_EPOCHS
        return self.clerk.write_header(self.fence, epoch.number, header, keep=keep)

    def _overtaken(self, epoch: Epoch) -> Outcome:
        """The header was refused inside the server's transaction: a newer driver has come since the look at the fence."""
        self._check_fence(self.clerk.look(None))
        return Outcome.retry(f"epoch {epoch.number} was not entered")

    def _check_fence(self, page: Page) -> None:
        if page.fence > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, page.fence)

    def _check_not_committed(self, slot: Slot) -> None:
        """What is gone was aborted before, or is visible. To call the second one aborted would be a lie."""
        page = self.clerk.look(slot.epoch)
        share = page.shares.get(slot.number)
        is_held = share is not None and (share.fence, share.attempt) == (slot.fence, slot.attempt)
        if is_held or slot.epoch <= page.newest - LEDGER_EPOCHS:
            raise SinkError(
                f"{self.binding}: `{slot}` of epoch {slot.epoch} is committed and cannot be aborted; it stays visible"
            )

    def _ident(self, record: Prepared) -> str:
        ident = record.detail.get("id")
        if not isinstance(ident, str):
            raise SinkError(
                f"{self.binding}: `{record.slot}` was prepared the `spooled` way, and this run's is `prepared`; nothing was changed",
                hint="set `way: spooled`, and `pakka indoubt resolve` finishes it; then change the way",
            )
        return ident
