"""Committers that lie when they commit, each in one way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress

from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.testing.twins.honest import HonestCommitter, HonestSink, HonestSlotCommitter, connect
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
        return Unchecked(self.sink, self.binding, self.fence).commit_epoch(epoch, prepared)


class Unchecked(HonestCommitter):
    """Looks at no fence at all."""

    def check_fence(self, db: sqlite3.Connection) -> None:
        return


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


class Modern(HonestCommitter):
    """Reads the records of its own release only."""

    def state(self, db: sqlite3.Connection, record: Prepared) -> str:
        return super().state(db, record) if record.detail.get("form") != 0 else "of an unknown form"


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
            self.barrier.wait(timeout=2)
        return super()._commit(epoch, self.record)


class Hopeful(HonestSlotCommitter):
    """Calls an epoch whole with its first slot: whoever lost the decision takes the rest for committed."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        outcome = super()._commit(epoch, record)
        self.enter_epoch(epoch)
        return outcome


class Exacting(HonestSlotCommitter):
    """Asks for a slot that is gone before it asks the ledger, which may know that nobody waits for it any more."""

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        with self.fenced() as db:
            if self.state(db, record) == "gone":
                return Outcome.refused(f"`{record.slot}` is gone")
        return super()._commit(epoch, record)


class Careworn(HonestSlotCommitter):
    """Never calls an epoch whole, and does not remember one without slots."""

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        return COMMITTED


class Deaf(HonestSlotCommitter):
    """Cannot be told that an epoch is whole."""

    enter_epoch = None  # type: ignore[assignment]


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
