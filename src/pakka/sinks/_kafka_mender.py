"""Ends in its partitions what Kafka has ended, and forgotten to tell them.

The end of a transaction is decided by its coordinator, which then tells every partition of it with a marker. A broker that is killed in
between and comes back too soon may find a partition without a leader, take it for deleted, and call the transaction complete (see
docs/decisions/0014-kafka-forgets-markers.md). Readers then stop in front of its records; and worse, the next transaction of the same
producer there ends both: if that one is aborted, so are records that were told as committed, and if it is committed, so are aborted ones.

So no record is sent before every partition in which the last transaction of this id may be has been seen closed. By induction what is open
in one of them is of the last transaction, and nothing that is ended later can take older records with it.

1. Look whether readers wait for anybody in the topics of the sink. Mostly nobody does, and that is all.
2. Ask the coordinator. What is open is aborted, what is being ended is waited for, and after either it remembers how it ended.
3. Ask the partitions. What is still open there, of this producer, hangs.
4. Write down beside the ledger what hangs and how it was ended: step 5 makes the coordinator forget it.
5. Take the id, by which nobody else can write under it, and end a transaction without records in the partitions that hang, as the last
   one was ended. The epoch that this takes is used for nothing else, so whoever comes later may end it too.

A driver that dies in 5 is followed by one that finds the note. It has the time of a transaction for that: after it the brokers abort what
was begun. What is not known from either the coordinator or the note is told, and left as it is (`_kafka_forgotten`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from pakka.errors import PakkaError, SinkError, UnavailableError
from pakka.kafka_error import told
from pakka.notice import notice
from pakka.sinks._kafka_batch import Place
from pakka.sinks._kafka_forgotten import forgotten, lost_end, lost_page, lost_rows, named
from pakka.sinks._kafka_ledger import LedgerTopic
from pakka.sinks._kafka_note import Note
from pakka.sinks._kafka_raw import Described, Opened, Registry
from pakka.sinks._kafka_wire import DeniedError

_SETTLE_S = 30.0
"""How long the end of a transaction may take in all: its partitions may have to find a leader first."""
_MARKERS_S = 0.5
"""How long markers may take after a commit, which is milliseconds, before the coordinator is asked what has become of them."""
_USUAL_S = 0.05
"""How long they do take."""
_PAUSE_S = 0.005
_LAST_EPOCH = 32_766
"""After this one an id has another producer, which cannot end what the one before has left open."""

T = TypeVar("T")


class Mender:
    """For one transactional id; notes are kept in the ledger of its sink. Held by whoever writes under that id, and asked before each
    transaction.
    """

    def __init__(self, registry: Registry, ident: str, book: LedgerTopic, own: str) -> None:
        self.registry = registry
        self.whose = registry.whose
        self.address = registry.address
        self.id = ident
        self.own = own
        """The sink's id, with which those of its slots begin."""
        self.book = book
        self._is_warned = False

    def is_closed(self, topics: Iterable[str], *, is_mended: bool = False) -> bool:
        """Whether nothing is open in these topics that is of this id, after a moment for the markers. Also if nobody can tell.

        `is_mended`: where it is not told whose transactions are open, they were seen to just now.
        """
        wanted = frozenset(topics)
        deadline = time.monotonic() + _MARKERS_S
        while held := self.held(wanted):
            try:
                found = self.registry.described(self.id)
                opened = self.registry.opened(found.producer_id, held) if found is not None else {}
            except DeniedError as error:
                self._warn(held, error.message)
                return True
            if all(each is None and is_mended for each in opened.values()):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        return True

    def settle(
        self, topics: Iterable[str], timeout_ms: int, *, is_wide: bool = False, leaves_open: bool = False
    ) -> frozenset[str]:
        """Before the id is asked for: end what is open under it, and what hangs. Returns all topics that were looked at.

        `is_wide`: rows name their topics, so a transaction that is open may be in more than these.
        `leaves_open`: what is open is somebody's who has seen all closed, and stays so.
        """
        wanted = set(topics)
        mended: set[Place] = set()
        deadline = time.monotonic() + _SETTLE_S
        while (held := self.held(wanted)) or is_wide:
            try:
                if self._is_settled(held, wanted, mended, timeout_ms, leaves_open):
                    break
            except DeniedError as error:
                self._warn(held, error.message)
                break
            except UnavailableError:
                # Nothing is open where it is known to have been. That this client cannot get in must not stop what another one can do.
                if held:
                    raise
                break
            self._expect_progress(deadline, held)
        return frozenset(wanted)

    def seize(self, topics: Iterable[str], timeout_ms: int, ask: Callable[[], T], *, is_wide: bool = False) -> T:
        """Ask for the id when nothing is open under it, and see that nothing is."""
        seen = self.settle(topics, timeout_ms, is_wide=is_wide)
        asked = ask()
        if not self.is_closed(seen, is_mended=True):
            raise UnavailableError(
                f"{self.whose}: {self.address}: somebody else has asked for transactional id `{self.id}` in the same moment, and what "
                "was open is not ended; nothing was changed",
                hint="run again",
            )
        return asked

    def hidden(self) -> bytes | None:
        """The newest record of the ledger, if it is committed and no reader gets to it, since its partition was not told yet, or never.
        Changes nothing.
        """
        deadline = time.monotonic() + _SETTLE_S
        while held := self.held([self.book.name]):
            found = self.registry.described(self.id)
            if found is None or not found.is_being_ended:
                lost = self._forgotten(found, held)
                raw = self._committed(found, held) if found is not None and not lost else None
                if self.registry.described(self.id) == found:
                    if lost:
                        raise self._forsaken(lost)
                    return raw
            self._expect_progress(deadline, held)
        return None

    def _committed(self, found: Described, held: Collection[Place]) -> bytes | None:
        """The newest record of the ledger, if it hangs and is committed."""
        opened = self.registry.opened(found.producer_id, held)
        hanging = {place: each for place, each in opened.items() if each is not None}
        return self.book.written(self.book.key) if self._is_commit(found, hanging) else None

    def was_commit(self, topic: str) -> bool:
        """How what hangs in a topic was ended, though its id was taken since: the note tells. Changes nothing."""
        found, held = self.registry.described(self.id), self.held([topic])
        opened = self.registry.opened(found.producer_id, held) if found is not None else {}
        hanging = {place: each for place, each in opened.items() if each is not None}
        if found is None or not hanging or self.registry.described(self.id) != found:
            raise UnavailableError(
                f"{self.whose}: {self.address}: a transaction of `{self.id}` that hung in `{topic}` is being mended; nothing was changed",
                hint="run again",
            )
        return self._is_commit(found, hanging)

    def held(self, topics: Collection[str]) -> dict[Place, int]:
        """Where readers wait for anybody."""
        cluster = self.book.cluster
        with told(self.whose, self.address, cluster.grievance):
            return cluster.held(topics)

    def _expect_progress(self, deadline: float, held: Collection[Place]) -> None:
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"{self.whose}: {self.address}: the last transaction of `{self.id}` is not ended after {_SETTLE_S:.0f} s, in "
                f"{named(held)}; nothing was changed",
                hint="see that all partitions of its topics have a leader, then run again",
            )
        time.sleep(_PAUSE_S)

    def _is_settled(
        self, held: Mapping[Place, int], wanted: set[str], mended: set[Place], timeout_ms: int, leaves_open: bool
    ) -> bool:
        """One step of the way. True: nothing of this id is open. False: look again."""
        found = self.registry.described(self.id)
        lost = self._forgotten(found, held)
        if lost and self.registry.described(self.id) == found:
            raise self._forsaken(lost)
        if found is None:
            return not lost
        more = {topic for topic in found.topics if not topic.startswith("__")} - wanted
        if more or found.is_being_ended:
            wanted.update(more)
            return False
        opened = self.registry.opened(found.producer_id, held) if held else {}
        # Where it is not told whose transaction is open, an end without records does no harm; but once is enough.
        hanging = {place: each for place, each in opened.items() if each is not None or place not in mended}
        if self.registry.described(self.id) != found:
            # Its driver goes on, or somebody else has the id now: what was found open may be of another transaction.
            return False
        if found.is_open and not _is_begun(found, hanging):
            if leaves_open:
                return True
            # Its driver had seen all closed before it sent anything, so only what it sent goes.
            self.registry.cut_off(self.id, timeout_ms)
            return False
        if hanging:
            self._mend(found, hanging, timeout_ms)
            mended.update(hanging)
        return not hanging

    def _mend(self, found: Described, hanging: Mapping[Place, Opened | None], timeout_ms: int) -> None:
        producer_id = found.producer_id
        certain = {place: each for place, each in hanging.items() if each is not None}
        note = self._noted(found, certain)
        is_commit = _outcome(found, certain) if note is None else note.is_commit
        is_last = found.producer_epoch >= _LAST_EPOCH and not found.is_open
        if certain and (is_commit is None or is_last):
            raise self._lost(found, certain, is_commit)
        if is_commit is None:
            self._warn(hanging, "the user of `settings` may not READ them")
            return
        if not found.is_open:
            places = tuple((*place, each.offset) for place, each in sorted(certain.items()))
            self.book.write(self._note_key, Note(producer_id, is_commit, places, found.producer_epoch).to_bytes())
        # One that is open was begun by somebody who got as far as this. To take the id would abort it.
        handle = found.handle if found.is_open else self.registry.take(self.id, timeout_ms)
        now = self.registry.opened(producer_id, hanging)
        left = [place for place, each in hanging.items() if place in now and now[place] == each]
        if left:
            self.registry.end_in(handle, left, is_commit=is_commit)
        if certain:
            how = "committed" if is_commit else "aborted"
            notice(
                self.whose,
                "mended",
                f"Kafka had not told {named(certain)} that a transaction of `{self.id}` was {how}; it is told now",
            )

    def _is_commit(self, found: Described, hanging: Mapping[Place, Opened]) -> bool:
        """Whether what is open in these places is committed."""
        if not hanging:
            return False
        note = self._noted(found, hanging)
        if note is not None or found.is_open:
            return note is not None and note.is_commit
        is_commit = _outcome(found, hanging)
        if is_commit is None:
            raise self._lost(found, hanging, is_commit)
        return is_commit

    def _forgotten(self, found: Described | None, held: Collection[Place]) -> dict[int, list[Place]]:
        """What is open, was of this very id, and is not known to any coordinator; the id may have been taken since, by another producer. In the
        ledger it is whatever is open, since nothing else writes there; elsewhere what has written to the ledger before.
        """
        if self.id != self.own:
            return {}
        known = None if found is None else found.producer_id
        pages = [place for place in held if place[0] == self.book.name]
        rows = [place for place in held if place[0] != self.book.name]
        lost = forgotten(self.registry, pages, known)
        return lost or forgotten(self.registry, rows, known, self._writers)

    def _writers(self) -> set[int]:
        """Producers by which pages were written of late."""
        return self.registry.writers(self.book.name, *self.book.span())

    def _forsaken(self, lost: Mapping[int, Collection[Place]]) -> SinkError:
        if any(topic != self.book.name for places in lost.values() for topic, _ in places):
            return lost_rows(self.whose, self.address, lost)
        raw = self.book.written(self.book.key)
        return lost_page(self.whose, self.address, lost, -1 if raw is None else self.book.page(raw).epoch)

    def _lost(self, found: Described, hanging: Collection[Place], is_commit: bool | None) -> SinkError:
        return lost_end(self.whose, self.address, found, hanging, is_commit)

    def _noted(self, found: Described, hanging: Mapping[Place, Opened]) -> Note | None:
        raw = self.book.written(self._note_key) if hanging or found.is_forgotten else None
        note = Note.from_bytes(raw) if raw is not None else None
        return note if note is not None and note.is_of(found, hanging) else None

    @property
    def _note_key(self) -> bytes:
        # The id of a slot has its numbers behind the sink's own, and names may be numbers too.
        return self.book.key + self.id.removeprefix(self.own).encode() + b".hanging"

    def _warn(self, held: Collection[Place], reason: str) -> None:
        if held and not self._is_warned:
            self._is_warned = True
            notice(
                self.whose,
                "open",
                f"transactions are open in {named(held)}, and it cannot be told whether one is ours, which a broker that was killed has "
                f"left: {reason}",
            )


class Look:
    """Whether the last transaction is closed, asked while nobody waits for the answer: it takes some milliseconds, and between two
    epochs there are many. What was seen closed stays so, since nothing is sent before.
    """

    def __init__(self, mender: Mender, topics: Iterable[str]) -> None:
        self._mender = mender
        self._topics = frozenset(topics)
        self._answer: bool | None = None
        self._is_wanted = threading.Event()
        self._is_dropped = False
        # Not waited for at the end of the process.
        self._thread = threading.Thread(target=self._run, name="pakka-kafka-look", daemon=True)
        self._thread.start()

    def is_closed(self) -> bool:
        """The answer. Where nobody gave one, it is asked for again, so that the reason is told."""
        self._is_wanted.set()
        self._thread.join()
        return self._mender.is_closed(self._topics) if self._answer is None else self._answer

    def wait(self, patience_s: float) -> bool | None:
        """The answer, if there is one by then; None: nobody gave one."""
        self._is_wanted.set()
        self._thread.join(patience_s)
        return self._answer

    def drop(self) -> None:
        self._is_dropped = True
        self._is_wanted.set()

    def _run(self) -> None:
        # Who looks at once finds the markers on their way, and has to look again.
        self._is_wanted.wait(_USUAL_S)
        if not self._is_dropped:
            # Without an answer `is_closed` asks again, and then raises what is wrong.
            with suppress(PakkaError):
                self._answer = self._mender.is_closed(self._topics)


def _outcome(found: Described, hanging: Mapping[Place, Opened]) -> bool | None:
    """How what hangs was ended, if it is what the coordinator remembers. Releases that did not look may have left older ones behind."""
    is_commit, epoch = found.is_commit, found.producer_epoch
    # A commit leaves the epoch as it is. An abort may raise it, by which it shuts out whoever left the transaction open.
    of_the_last = {epoch} if is_commit else {epoch, epoch - 1}
    return is_commit if all(each.producer_epoch in of_the_last for each in hanging.values()) else None


def _is_begun(found: Described, hanging: Mapping[Place, Opened | None]) -> bool:
    """Whether an open transaction is one of step 5: its places have records of an older producer epoch. In any other they have none,
    since all was closed before.
    """
    return any(each is not None and each.producer_epoch != found.producer_epoch for each in hanging.values())
