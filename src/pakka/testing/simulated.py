"""A simulated sink that commits slot by slot, for tests, simulation and benchmarks: no rows, only records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums


@dataclass
class World:
    """What outlives a driver: prepared and committed slots, the fence, and the answers a test wants to be given."""

    prepared: dict[Slot, Prepared] = field(default_factory=dict)
    visible: dict[Slot, Prepared] = field(default_factory=dict)
    epoch: Epoch | None = None
    """The newest epoch of which a slot is committed, and those slots: rows and checksum by number."""
    slots: dict[int, tuple[int, str]] = field(default_factory=dict)
    is_whole: bool = False
    """That epoch was entered as whole."""
    fence: int = 0
    answer: Callable[[str, Prepared], Outcome | None] = lambda _step, _record: None
    """Called before and after each commit with `before` or `after`; an outcome it returns is the answer given."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self, slot: Slot) -> None:
        """Somebody rolled back what was prepared."""
        del self.prepared[slot]


@dataclass(frozen=True, eq=False)
class SimulatedSink:
    """Commits each slot on its own, as a database with prepared transactions does."""

    world: World
    name: str = "simulated"

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.PREPARED, "simulated: a slot is committed under one lock")

    def target(self) -> str:
        return f"simulated:{self.name}"

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> SimulatedWriter:
        return SimulatedWriter(slot, self.world)

    def open_committer(self, binding: Binding, fence: int) -> SimulatedCommitter:
        return SimulatedCommitter(binding, fence, self.world)


class SimulatedWriter:
    """Counts rows and prepares under the fence."""

    def __init__(self, slot: Slot, world: World) -> None:
        self.slot = slot
        self.world = world
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        with self.world.lock:
            if self.world.fence > self.slot.fence:
                subject = f"sink `{self.slot.pipeline}.{self.slot.sink}`"
                raise FencedError.of(subject, self.slot.pipeline, self.slot.fence, self.world.fence)
            self.world.prepared[self.slot] = Prepared(self.slot, self.rows, checksum)
            return self.world.prepared[self.slot]

    def discard(self) -> None:
        self.world.prepared.pop(self.slot, None)


class SimulatedCommitter:
    """Settles slots one by one. The fence cannot be raised while an older one has something prepared."""

    def __init__(self, binding: Binding, fence: int, world: World) -> None:
        self.binding = binding
        self.fence = fence
        self.world = world

    def raise_fence(self) -> bool:
        with self.world.lock:
            self._check_fence()
            if any(slot.fence < self.fence for slot in self.world.prepared):
                return False
            self.world.fence = self.fence
            return True

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        return [self._commit(epoch, record) for record in prepared]

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        told = self.world.answer("before", record)
        if told is not None:
            return told
        with self.world.lock:
            self._check_fence()
            if record.slot in self.world.visible or self._is_settled(epoch):
                return ALREADY_COMMITTED
            if self.world.prepared.pop(record.slot, None) is None:
                return Outcome.refused(f"`{record.slot}` is not prepared and not committed")
            self.world.visible[record.slot] = record
            self._enter(epoch, record)
        return self.world.answer("after", record) or COMMITTED

    def _enter(self, epoch: Epoch, record: Prepared) -> None:
        if self.world.epoch != epoch:
            self.world.epoch, self.world.slots, self.world.is_whole = epoch, {}, False
        self.world.slots[record.slot.number] = (record.rows, record.checksum)

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        with self.world.lock:
            self._check_fence()
            if self._is_settled(epoch):
                return ALREADY_COMMITTED
            if self.world.epoch != epoch:
                self.world.epoch, self.world.slots = epoch, {}
            self.world.is_whole = True
            return COMMITTED

    def _is_settled(self, epoch: Epoch) -> bool:
        last = self.world.epoch
        return last is not None and (last.number > epoch.number or (last == epoch and self.world.is_whole))

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self.world.lock:
            for record in prepared:
                if record.slot in self.world.visible:
                    raise SinkError(
                        f"{self.binding}: `{record.slot}` is committed and cannot be aborted; it stays visible"
                    )
                self.world.prepared.pop(record.slot, None)

    def pending(self) -> Sequence[Prepared]:
        with self.world.lock:
            return list(self.world.prepared.values())

    def ledger(self) -> Ledger:
        with self.world.lock:
            if self.world.epoch is None:
                return Ledger(self.world.fence, None)
            slots, is_whole = dict(self.world.slots), self.world.is_whole
        rows, checksum = sum(r for r, _ in slots.values()), add_checksums(c for _, c in slots.values())
        return Ledger(self.world.fence, Entry(self.world.epoch, rows, checksum, None if is_whole else slots))

    def close(self) -> None:
        pass

    def _check_fence(self) -> None:
        if self.world.fence > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, self.world.fence)
