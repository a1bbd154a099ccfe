"""The simulated sinks: the contract over a `Place`, with the network between them and it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pakka.contract.sink import Ledger
from pakka.errors import PakkaError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.testing.simulation.place import Place, Rows
from pakka.testing.simulation.world import World

if TYPE_CHECKING:
    import pyarrow as pa

_WAYS = {"aggregated": Way.PUBLISHED, "spooled": Way.SPOOLED, "slotwise": Way.PREPARED}


@dataclass(frozen=True, eq=False)
class PlaceSink:
    """A sink in the simulated world; its place says of which kind it is."""

    place: Place
    world: World

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, _WAYS[self.place.kind], "simulated: each step is one instant")

    def target(self) -> str:
        return f"simulated:{self.place.name}"

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema | None) -> PlaceWriter:
        return PlaceWriter(slot, self.place, self.world)

    def open_committer(self, binding: Binding, fence: int) -> PlaceCommitter:
        kinds = {"aggregated": AggregatedCommitter, "spooled": SpooledCommitter, "slotwise": SlotwiseCommitter}
        return kinds[self.place.kind](fence, self.place, self.world)


class PlaceWriter:
    """One attempt at one slot. Rows are small numbers here, not Arrow."""

    def __init__(self, slot: Slot, place: Place, world: World) -> None:
        self.slot = slot
        self.place = place
        self.world = world
        self.rows: Rows = ()

    def write(self, batch: Any) -> None:
        self.rows = batch
        self.world.tell(self.place.name, "stage", lambda: self.place.stage(self.slot, self.rows), self.slot)

    def prepare(self, checksum: str) -> Prepared:
        return self.world.tell(
            self.place.name, "prepare", lambda: self.place.prepare(self.slot, self.rows), (self.slot, self.rows)
        )

    def discard(self) -> None:
        self.world.tell(self.place.name, "discard", lambda: self.place.discard(self.slot), self.slot)


class PlaceCommitter:
    """What all kinds have in common."""

    def __init__(self, fence: int, place: Place, world: World) -> None:
        self.fence = fence
        self.place = place
        self.world = world

    def raise_fence(self) -> bool:
        what = f"raise the fence to {self.fence}"
        return self.world.tell(self.place.name, what, lambda: self.place.raise_fence(self.fence))

    def abort(self, prepared: Sequence[Prepared]) -> None:
        records = tuple(prepared)
        slots = [p.slot for p in records]
        self.world.tell(self.place.name, "abort", lambda: self.place.abort(records, self.fence), slots)

    def pending(self) -> Sequence[Prepared]:
        return self.world.ask(self.place.name, "pending?", self.place.pending)

    def ledger(self) -> Ledger:
        return self.world.ask(self.place.name, "ledger?", self._ledger)

    def close(self) -> None:
        pass

    def _ledger(self) -> Ledger:
        return Ledger(max(self.place.fence, self.place.spool_fence), self.place.entry)

    def _tell(self, what: str, effect: Any, detail: object) -> Outcome:
        """Sinks say that they do not know in two ways: by the answer UNKNOWN, or by whatever their driver raised."""
        try:
            outcome: Outcome = self.world.tell(self.place.name, what, effect, detail)
            return outcome
        except UnknownOutcomeError as error:
            if self.world.chance.random() < 0.5:
                raise
            return Outcome.unknown(error.message)


class AggregatedCommitter(PlaceCommitter):
    """Files that a reader does not list yet: looked at first, then renamed into sight at one instant."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        place, records = self.place, tuple(prepared)
        lacks = self.world.ask(place.name, "look", lambda: place.lacks(epoch, records, self.fence), epoch.number)
        if lacks is not None:
            if lacks.is_final:
                # The epoch may be visible by other attempts than these, which nobody needs any more.
                self.world.tell(place.name, "tidy", lambda: place.empty(records), epoch.number)
            return lacks
        reach("commit.publish", epoch.number)
        detail = (epoch.number, [p.slot for p in records])
        return self._tell("publish", lambda: place.commit_epoch(epoch, records, self.fence), detail)


class SpooledCommitter(PlaceCommitter):
    """Rows wait in the spool, and are applied with the ledger in one transaction; then the spool is emptied."""

    def raise_fence(self) -> bool:
        super().raise_fence()
        what = f"raise the spool's fence to {self.fence}"
        return self.world.tell(self.place.name, what, lambda: self.place.raise_spool_fence(self.fence))

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        place, records = self.place, tuple(prepared)
        lacks = self.world.ask(place.name, "look", lambda: place.lacks(epoch, records, self.fence), epoch.number)
        if lacks is not None and not lacks.is_final:
            return lacks
        if lacks is None:
            reach("commit.apply", epoch.number)
            detail = (epoch.number, [p.slot for p in records])
            lacks = self._tell("apply", lambda: place.commit_epoch(epoch, records, self.fence), detail)
        if lacks.is_final:
            reach("commit.applied", epoch.number)
            # What cannot be removed now is left to the sweep: the epoch is committed all the same.
            with suppress(PakkaError):
                self.world.tell(place.name, "empty the spool", lambda: place.empty(records), epoch.number)
        return lacks


class SlotwiseCommitter(PlaceCommitter):
    """A database with prepared transactions: each slot on its own, and the fence waits for older ones."""

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        return [self._commit(epoch, record) for record in prepared]

    def _commit(self, epoch: Epoch, record: Prepared) -> Outcome:
        return self._tell("commit", lambda: self.place.commit_slot(epoch, record, self.fence), record.slot)

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        return self._tell("enter", lambda: self.place.enter_epoch(epoch, self.fence), epoch.number)
