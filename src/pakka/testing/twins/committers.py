"""Committers that lie, each in one way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from pakka.contract.sink import Ledger
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.testing.twins.honest import HonestCommitter, HonestSink, HonestSlotCommitter, Settler, connect
from pakka.testing.twins.writers import REMEMBERED


class Remembering(HonestCommitter):
    """Finds prepared rows in the memory of its process; belongs to a forgetful writer."""

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        state = super().state(db, record)
        return "gone" if state == "prepared" and record.slot not in REMEMBERED else state

    def show(self, db: sqlite3.Connection, record: Prepared) -> None:
        super().show(db, record)
        db.execute("UPDATE visible SET rows = ? WHERE rows = ?", [REMEMBERED.pop(record.slot), b""])


class Doubling(HonestCommitter):
    """Asks no ledger: a second commit is a second copy."""

    def is_held(self, db: sqlite3.Connection, epoch: Epoch) -> bool:
        return False

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        return "prepared"

    def show(self, db: sqlite3.Connection, record: Prepared) -> None:
        slot = [str(record.slot)]
        db.execute("INSERT INTO visible SELECT rows FROM slots WHERE slot = ?", slot)
        db.execute("UPDATE slots SET state = 'visible' WHERE slot = ?", slot)


class Sly(Doubling):
    """Answers a second commit as it should, and shows a second copy all the same."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            is_held = super(Doubling, self).is_held(db, epoch)
        outcome = super().commit_epoch(epoch, prepared)
        return ALREADY_COMMITTED if is_held else outcome


class Narrow(HonestCommitter):
    """Goes by what its slots say, and not by the ledger."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            if prepared and all(self.state(db, p) == "visible" for p in prepared):
                return ALREADY_COMMITTED
        return super().commit_epoch(epoch, prepared)

    def is_held(self, db: sqlite3.Connection, epoch: Epoch) -> bool:
        return False


class Numeric(HonestCommitter):
    """Goes by the number of an epoch alone, wherever its rows came from."""

    def check_origin(self, db: sqlite3.Connection, epoch: Epoch) -> None:
        return


class Touchy(HonestCommitter):
    """Takes a second commit for a mistake, and complains."""

    def is_held(self, db: sqlite3.Connection, epoch: Epoch) -> bool:
        if super().is_held(db, epoch):
            raise SinkError(f"{self.binding}: epoch {epoch.number} is committed already; nothing was changed")
        return False


class Fearless(HonestCommitter):
    """Commits under any fence."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with closing(connect(self.sink.path)) as db:
            newest = max(self.fence, int(db.execute("SELECT max(fence) FROM fence").fetchone()[0]))
        return HonestCommitter(self.sink, self.binding, newest).commit_epoch(epoch, prepared)


class Slow(HonestCommitter):
    """Looks at the fence first, and acts in another transaction, as if nothing could happen in between."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced():
            pass
        return _Unchecked(self.sink, self.binding, self.fence).commit_epoch(epoch, prepared)


class _Unchecked(HonestCommitter):
    def check_fence(self, db: sqlite3.Connection) -> None:
        return


class Meddling(HonestCommitter):
    """Aborts under any fence."""

    def abort(self, prepared: Sequence[Prepared]) -> None:
        _Unchecked(self.sink, self.binding, self.fence).abort(prepared)


class Falling(HonestCommitter):
    """Lets the fence fall again."""

    def raise_fence(self) -> bool:
        return _Unchecked(self.sink, self.binding, self.fence).raise_fence()


class Swallowing(HonestCommitter):
    """Takes a commit that failed for one that was done."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        try:
            return super().commit_epoch(epoch, prepared)
        except FencedError:
            raise
        except Exception:  # the lie itself: what failed is called done
            return COMMITTED


class Despairing(HonestCommitter):
    """Takes a commit whose answer was lost for one that was not done."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        try:
            return super().commit_epoch(epoch, prepared)
        except FencedError:
            raise
        except Exception as error:
            return Outcome.refused(f"failed: {error}")


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


class Piecemeal(HonestCommitter):
    """Commits an epoch slot by slot, and the ledger last."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            if self.is_held(db, epoch):
                return ALREADY_COMMITTED
        for record in prepared:
            with self.fenced() as db:
                if self.state(db, record) == "prepared":
                    self.show(db, record)
        with self.fenced() as db:
            self.enter(db, epoch, -1, prepared)
            reach("commit.apply", epoch.number)
        reach("commit.applied", epoch.number)
        return COMMITTED


class Postponing(HonestCommitter):
    """Shows the rows first, and enters the epoch in the ledger in a transaction of its own."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            if self.is_held(db, epoch):
                return ALREADY_COMMITTED
            for record in prepared:
                db.execute("INSERT INTO visible SELECT rows FROM slots WHERE slot = ?", [str(record.slot)])
        with self.fenced() as db:
            for record in prepared:
                db.execute("UPDATE slots SET state = 'visible', rows = NULL WHERE slot = ?", [str(record.slot)])
            self.enter(db, epoch, -1, prepared)
        return COMMITTED


class Greedy(HonestCommitter):
    """Commits whatever is prepared for the epoch, decided or not."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        decided = {p.slot for p in prepared}
        with self.fenced() as db:
            others = [p for p in self.pending() if p.slot.epoch == epoch.number and p.slot not in decided]
            others = [p for p in others if self.state(db, p) == "prepared"]
        return super().commit_epoch(epoch, [*prepared, *others])


class Picky(HonestCommitter):
    """Sees no reason to commit an epoch without rows."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        if not any(p.rows for p in prepared):
            return Outcome.refused("nothing was prepared")
        return super().commit_epoch(epoch, prepared)


class Skipping(HonestCommitter):
    """Calls an epoch without rows committed, and forgets it."""

    def enter(self, db: sqlite3.Connection, epoch: Epoch, slot: int, prepared: Sequence[Prepared]) -> None:
        if prepared:
            super().enter(db, epoch, slot, prepared)


class Modern(HonestCommitter):
    """Reads the records of its own release only."""

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        return super().state(db, record) if record.detail.get("form") != 0 else "of an unknown form"


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


class Pushy(HonestCommitter):
    """Raises its fence as soon as it is opened."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.raise_fence()


class Amputated(Settler):
    """Has no power to commit."""


class Confused(HonestSlotCommitter):
    """Commits slot by slot, and one slot stands for all: once one is there, the others are called committed."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self.fenced() as db:
            if db.execute("SELECT 1 FROM ledger WHERE number >= ?", [epoch.number]).fetchone():
                self.drop(db, record)
                return ALREADY_COMMITTED
        return super()._commit(epoch, record)


class Muddled(HonestSlotCommitter):
    """Keeps the record at hand in one place for all threads."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.record: Prepared | None = None
        self.barrier = threading.Barrier(2)

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        self.record = record
        # Two threads meet here if there are two; one that is alone goes on after a moment.
        with suppress(threading.BrokenBarrierError):
            self.barrier.wait(timeout=0.2)
        return super()._commit(epoch, self.record)


class Homebound(HonestCommitter):
    """Works in the thread that opened it, as a connection of `sqlite3` does."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.thread = threading.get_ident()

    def check_fence(self, db: sqlite3.Connection) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in another thread")
        super().check_fence(db)


class Hoarding(HonestCommitter):
    """Keeps the staged copy of what it has committed."""

    def show(self, db: sqlite3.Connection, record: Prepared) -> None:
        super().show(db, record)
        db.execute("INSERT INTO slots VALUES (?, ?, 'prepared', NULL)", [f"{record.slot}.copy", record.slot.epoch])


class Volatile(HonestCommitter):
    """Answers before it has committed: the rows follow when it is closed."""

    def __init__(self, sink: HonestSink, binding: Binding, fence: int) -> None:
        super().__init__(sink, binding, fence)
        self.put_off: list[tuple[Epoch, Sequence[Prepared]]] = []

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.fenced() as db:
            if self.is_held(db, epoch):
                return ALREADY_COMMITTED
        self.put_off.append((epoch, prepared))
        return COMMITTED

    def close(self) -> None:
        while self.put_off:
            super().commit_epoch(*self.put_off.pop(0))
