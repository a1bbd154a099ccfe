"""Committers that commit honestly and lie about the rest: fences, aborts, what is pending, what is committed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Ledger
from pakka.errors import SinkError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding
from pakka.model.prepared import Prepared
from pakka.testing.twins.committers import Unchecked
from pakka.testing.twins.honest import HonestCommitter, HonestSink, Settler


class Meddling(HonestCommitter):
    """Aborts under any fence."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        Unchecked(self.sink, self.binding, self.fence).abort(prepared)


class Falling(HonestCommitter):
    """Lets the fence fall again."""

    def raise_fence(self) -> bool:
        return Unchecked(self.sink, self.binding, self.fence).raise_fence()


class Destructive(HonestCommitter):
    """Aborts what was committed."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self.fenced() as db:
            for record in prepared:
                if self.state(db, record) == "visible":
                    db.execute("DELETE FROM visible")
                self.drop(db, record)


class Spiteful(HonestCommitter):
    """Refuses to abort what was committed, and takes it away all the same."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        try:
            super().abort(prepared)
        except SinkError:
            with self.fenced() as db:
                db.execute("DELETE FROM visible")
            raise


class Agreeable(HonestCommitter):
    """Says nothing when it is asked to abort what is committed."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self.fenced() as db:
            for record in prepared:
                if self.state(db, record) != "visible":
                    self.drop(db, record)


class Fussy(HonestCommitter):
    """Complains about an abort of what is gone."""

    def drop(self, db: sqlite3.Connection, record: Prepared) -> None:
        if self.state(db, record) == "gone":
            raise SinkError(f"{self.binding}: `{record.slot}` is gone; nothing was changed")
        super().drop(db, record)


class Forgiving(HonestCommitter):
    """Commits what was aborted."""

    def drop(self, db: sqlite3.Connection, record: Prepared) -> None:
        db.execute("UPDATE slots SET state = 'aborted' WHERE slot = ?", [str(record.slot)])

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        state = super().state(db, record)
        return "prepared" if state == "aborted" else state


class Lazy(HonestCommitter):
    """Says that it has aborted."""

    def drop(self, db: sqlite3.Connection, record: Prepared) -> None:
        return


class Leaky(HonestCommitter):
    """Aborts so that nobody is told of what is left, and never removes it."""

    def drop(self, db: sqlite3.Connection, record: Prepared) -> None:
        db.execute("UPDATE slots SET state = 'leaked' WHERE slot = ?", [str(record.slot)])


class Skipping(HonestCommitter):
    """Calls an epoch without rows committed, and forgets it."""

    def enter(self, db: sqlite3.Connection, epoch: Epoch, slot: int, prepared: Sequence[Prepared]) -> None:
        if prepared:
            super().enter(db, epoch, slot, prepared)


class Unmindful(HonestCommitter):
    """Remembers nothing, and declares exactly-once all the same."""

    def ledger(self) -> Ledger:
        return Ledger(super().ledger().fence, None, keeps_epochs=False)


class Boastful(HonestCommitter):
    """Tells of an epoch that is only prepared."""

    def ledger(self) -> Ledger:
        true = super().ledger()
        ahead = [p for p in self.pending() if true.last is None or p.slot.epoch > true.last.epoch.number]
        if true.last is None or not ahead:
            return true
        return replace(true, last=replace(true.last, epoch=replace(true.last.epoch, number=ahead[0].slot.epoch)))


class Vague(HonestCommitter):
    """Remembers the epoch, and not how many rows it had."""

    def ledger(self) -> Ledger:
        true = super().ledger()
        return replace(true, last=replace(true.last, rows=0)) if true.last else true


class Blind(HonestCommitter):
    """Never finds anything pending."""

    def pending(self) -> Sequence[Prepared]:
        return []


class Shortsighted(HonestCommitter):
    """Finds only what is prepared whole: what a writer left half done stays for ever."""

    staged = "('prepared')"


class Nostalgic(HonestCommitter):
    """Names what is committed among what is pending."""

    staged = "('begun', 'prepared', 'visible')"


class Slamming(HonestCommitter):
    """Can be closed once."""

    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise SinkError(f"{self.binding}: is closed already")
        self.is_closed = True


class Reticent(HonestCommitter):
    """Tells only every other record that is in doubt."""

    def in_doubt(self) -> Sequence[Doubt]:
        return [Doubt(str(record.slot), record.slot) for record in self.pending()[::2]]


class Pushy(HonestCommitter):
    """Raises its fence as soon as it is opened."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.raise_fence()


class Amputated(Settler):
    """Has no power to commit."""


class Homebound(HonestCommitter):
    """Works in the thread that opened it, as a connection of `sqlite3` does."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.thread = threading.get_ident()

    def check_fence(self, db: sqlite3.Connection) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in another thread")
        super().check_fence(db)
