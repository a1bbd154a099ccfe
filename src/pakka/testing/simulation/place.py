"""What outlives every driver: the durable side of a simulated sink. Each method is one instant, as a transaction is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pakka.contract.sink import Entry
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.id import Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums, checksum_of
from pakka.testing.simulation.judge import Judge

Rows = tuple[int, ...]


def totals_of(rows: Rows) -> tuple[int, str]:
    """How many, and their checksum."""
    return len(rows), checksum_of(sum(row * 7919 + 1 for row in rows))


@dataclass(frozen=True, slots=True)
class Staged:
    """What an attempt has staged: not whole before it is prepared."""

    rows: Rows
    since: int
    """How many epochs were acknowledged when it was staged: litter may not grow old."""
    is_prepared: bool = False


@dataclass
class Place:
    """Rows, ledger, fence, and what is staged."""

    name: str
    kind: str
    judge: Judge
    fence: int = 0
    spool_fence: int = 0
    """Spooled sinks have two: where rows become visible, and in the spool; they are raised one after the other."""
    staged: dict[Slot, Staged] = field(default_factory=dict)
    visible: dict[int, int] = field(default_factory=dict)
    """Rows that a reader sees, and the epoch each came with."""
    entry: Entry | None = None
    committed: dict[Slot, None] = field(default_factory=dict)

    def copy(self) -> Place:
        """A backup."""
        copied = Place(self.name, self.kind, self.judge, self.fence, self.spool_fence)
        copied.restore(self)
        return copied

    def restore(self, copy: Place) -> None:
        """All that happened here since `copy` was made is gone."""
        self.fence, self.spool_fence, self.entry = copy.fence, copy.spool_fence, copy.entry
        self.staged, self.visible, self.committed = dict(copy.staged), dict(copy.visible), dict(copy.committed)

    @property
    def staging_fence(self) -> int:
        return self.spool_fence if self.kind == "spooled" else self.fence

    def check_fence(self, fence: int, seen: int) -> None:
        if seen > fence:
            raise FencedError.of(f"sink `{self.name}`", "refunds", fence, seen)

    # What a writer does.

    def stage(self, slot: Slot, rows: Rows) -> None:
        """Begin an attempt. A database shows nothing of a transaction that is not prepared, so there it leaves nothing."""
        self.check_fence(slot.fence, self.staging_fence)
        if slot not in self.staged and self.kind != "slotwise":
            self.staged[slot] = Staged(rows, self.judge.acknowledged)

    def prepare(self, slot: Slot, rows: Rows) -> Prepared:
        self.check_fence(slot.fence, self.staging_fence)
        before = self.staged.get(slot)
        if before is None and self.kind != "slotwise":
            raise SinkError(f"sink `{self.name}`: what `{slot}` had staged was removed; nothing is prepared")
        if before is None or not before.is_prepared:
            # The same id twice: the first one wins.
            self.staged[slot] = Staged(rows, self.judge.acknowledged, is_prepared=True)
        self.judge.prepared(self.name, slot)
        return Prepared(slot, *totals_of(rows))

    def discard(self, slot: Slot) -> None:
        self.staged.pop(slot, None)

    # What a committer does.

    def raise_fence(self, fence: int) -> bool:
        self.check_fence(fence, self.fence)
        if self.kind == "slotwise" and any(slot.fence < fence for slot in self.staged):
            return False
        self.fence = fence
        if self.kind != "spooled":
            self.judge.raised(self.name, fence)
        return True

    def raise_spool_fence(self, fence: int) -> bool:
        self.check_fence(fence, self.spool_fence)
        self.spool_fence = fence
        newest = self.entry.epoch.number if self.entry else -1
        for slot in [s for s in self.staged if s.epoch <= newest]:
            del self.staged[slot]
        self.judge.raised(self.name, fence)
        return True

    def lacks(self, epoch: Epoch, prepared: Sequence[Prepared], fence: int) -> Outcome | None:
        """Why the epoch cannot be committed, or need not be; None if it can."""
        self.check_fence(fence, self.fence)
        if self.entry is not None and epoch.number <= self.entry.epoch.number:
            if epoch.number == self.entry.epoch.number and epoch != self.entry.epoch:
                raise SinkError(f"sink `{self.name}`: holds an epoch {epoch.number} of {self.entry.epoch.origin}")
            return ALREADY_COMMITTED
        gone = [p.slot for p in prepared if not self._is_whole(p)]
        return Outcome.refused(f"`{gone[0]}` is not prepared and not committed") if gone else None

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared], fence: int) -> Outcome:
        """Rows and ledger, at one instant."""
        lacks = self.lacks(epoch, prepared, fence)
        if lacks is not None:
            return lacks
        self._show(epoch, prepared, fence)
        checksum = add_checksums(p.checksum for p in prepared)
        self.entry = Entry(epoch, sum(p.rows for p in prepared), checksum)
        if self.kind == "aggregated":
            self.empty(prepared)
        return COMMITTED

    def empty(self, prepared: Sequence[Prepared]) -> None:
        """The epoch is visible; what was staged for it goes."""
        for record in prepared:
            self.staged.pop(record.slot, None)

    def commit_slot(self, epoch: Epoch, record: Prepared, fence: int) -> Outcome:
        self.check_fence(fence, self.fence)
        last = self.entry
        if last and last.epoch.number == epoch.number and last.epoch != epoch:
            raise SinkError(f"sink `{self.name}`: holds an epoch {epoch.number} of {last.epoch.origin}")
        if self._is_entered(epoch):
            return ALREADY_COMMITTED
        held = last.slots if last and last.slots and last.epoch == epoch else {}
        if not self._is_whole(record):
            # What is gone may be what is committed, and the ledger can tell. What is there it commits: that no slot is decided
            # twice under two attempts is for the coordinator to see to.
            if record.slot in self.committed or record.slot.number in held:
                return ALREADY_COMMITTED
            return Outcome.refused(f"`{record.slot}` is not prepared and not committed")
        self._show(epoch, (record,), fence)
        slots = {**held, record.slot.number: (record.rows, record.checksum)}
        rows, checksum = sum(r for r, _ in slots.values()), add_checksums(c for _, c in slots.values())
        self.entry = Entry(epoch, rows, checksum, slots)
        del self.staged[record.slot]
        return COMMITTED

    def enter_epoch(self, epoch: Epoch, fence: int) -> Outcome:
        """Every slot of it is visible, or it has none."""
        self.check_fence(fence, self.fence)
        last = self.entry
        if self._is_entered(epoch):
            return ALREADY_COMMITTED
        self.entry = replace(last, slots=None) if last and last.epoch == epoch else Entry(epoch, 0, add_checksums(()))
        return COMMITTED

    def _is_entered(self, epoch: Epoch) -> bool:
        """It is whole, or older than what is here."""
        last = self.entry
        return last is not None and (last.epoch.number > epoch.number or (last.epoch == epoch and last.slots is None))

    def abort(self, prepared: Sequence[Prepared], fence: int) -> None:
        self.check_fence(fence, max(self.fence, self.spool_fence))
        for record in prepared:
            is_newest = self.entry is not None and record.slot.epoch == self.entry.epoch.number
            if record.slot in self.committed and (is_newest or record.slot not in self.staged):
                raise SinkError(f"sink `{self.name}`: `{record.slot}` is committed and cannot be aborted")
            if record.slot in self.staged:
                self.judge.aborted(self.name, record.slot, fence)
                del self.staged[record.slot]

    def pending(self) -> list[Prepared]:
        return [Prepared(slot, 0, add_checksums(())) for slot in self.staged]

    def lose(self, slot: Slot) -> None:
        """Somebody rolled back or deleted what was staged."""
        del self.staged[slot]

    def _is_whole(self, record: Prepared) -> bool:
        staged = self.staged.get(record.slot)
        return staged is not None and staged.is_prepared

    def _show(self, epoch: Epoch, prepared: Sequence[Prepared], fence: int) -> None:
        rows = [row for p in prepared for row in self.staged[p.slot].rows]
        self.judge.shown(self.name, self.kind, epoch, [p.slot for p in prepared], rows, fence, self.visible)
        self.visible.update((row, epoch.number) for row in rows)
        self.committed.update((p.slot, None) for p in prepared)
