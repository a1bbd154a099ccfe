"""The rules, and whoever breaks one. It looks from outside: it believes neither the coordinator nor the sinks' own checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pakka.contract.state import Decision, PipelineState
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Slot
from pakka.testing.simulation.source import Batch, rows_of
from pakka.testing.simulation.world import STORE, World

if TYPE_CHECKING:
    from pakka.testing.simulation.place import Place

ONCE = "every decided row is visible exactly once"
UNDECIDED = "nothing undecided is ever visible"
WHOLE = "no reader sees part of an epoch, or of a slot where slots are committed one by one"
FENCE = "no older fence has an effect after a newer one has"
OWNER = "each fence has one owner"
FINAL = "after the decision abort is no answer"
TOLD = "an epoch is acknowledged only when it is visible in every sink"
LITTER = "litter goes to zero"
PROGRESS = "progress resumes when faults stop"
COUNT = "rows in = out + dead + dropped"
REASON = "the guard refuses only with a reason"
BUG = "pakka never breaks a rule of its own"


class Judge:
    """Told of every effect at the instant it happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.places: dict[str, Place] = {}
        self.acknowledged = 0
        """How many epochs were acknowledged so far."""
        self.fences: dict[str, int] = {}
        """The newest fence that has raised itself or prepared, by sink."""
        self.owners: dict[tuple[int, int], str] = {}
        """Who took a fence, by the life of the state store and the fence."""
        self.started: dict[int, str] = {}
        """The driver that has started under a fence."""
        self.decided: dict[Slot, None] = {}
        self.open: dict[Slot, None] = {}
        """What the open decision names, as the state store has it now."""
        self.batches: dict[Origin, Batch] = {}
        self.cores: dict[int, int] = {}
        """How many the driver has that prepares under a fence."""

    # What happens in the state store.

    def taken(self, fence: int, owner: str) -> None:
        life = self.world.lives[STORE]
        other = self.owners.setdefault((life, fence), owner)
        if other != owner:
            raise self.world.fail(OWNER, f"fence {fence} was taken by {other} and by {owner}")
        is_elsewhere = any(f == fence and o != owner for (_, f), o in self.owners.items())
        if is_elsewhere and all(fence > max(p.fence, p.spool_fence) for p in self.places.values()):
            # Taken in a store that was lost before any sink saw it. Nobody can know; both must stay harmless.
            self.world.counts["fence taken again after a loss"] += 1

    def wrote(self, fence: int) -> None:
        now = self.world.lives[STORE]
        newest = max((f for life, f in self.owners if life == now), default=0)
        if fence < newest:
            raise self.world.fail(FENCE, f"state store: fence {fence} wrote after fence {newest} was taken")

    def decides(self, decision: Decision) -> None:
        self.wrote(decision.fence)
        self.decided.update((p.slot, None) for p in decision.prepared)
        if not decision.count.adds_up:
            raise self.world.fail(COUNT, f"epoch {decision.epoch.number} was decided with {decision.count}")

    def holds(self, state: PipelineState | None) -> None:
        """The state store has changed."""
        self.open = {p.slot: None for d in (state.open if state else ()) for p in d.prepared}

    # What happens in a sink.

    def raised(self, sink: str, fence: int) -> None:
        self.fences[sink] = max(fence, self.fences.get(sink, 0))

    def prepared(self, sink: str, slot: Slot) -> None:
        self._check_fence(sink, slot.fence, f"prepared `{slot}`")
        self.raised(sink, slot.fence)

    def shown(
        self,
        sink: str,
        kind: str,
        epoch: Epoch,
        slots: Sequence[Slot],
        rows: Sequence[int],
        fence: int,
        visible: Mapping[int, int],
    ) -> None:
        where = f"sink `{sink}`, epoch {epoch.number}"
        self._check_fence(sink, fence, f"committed epoch {epoch.number}")
        for slot in slots:
            if slot not in self.decided:
                raise self.world.fail(UNDECIDED, f"{where}: `{slot}` is named by no decision")
        twice = sorted(row for row in rows if row in visible)
        if twice or len(set(rows)) < len(rows):
            raise self.world.fail(ONCE, f"{where}: rows {twice or sorted(rows)} are shown again")
        batch = self.batches[epoch.origin]
        if kind == "slotwise":
            expected = rows_of(batch.on(self.cores[slots[0].fence]), sink, slots[0].number)
        else:
            expected = rows_of(batch, sink)
        if sorted(rows) != sorted(expected):
            raise self.world.fail(WHOLE, f"{where}: shows rows {sorted(rows)} of {sorted(expected)}")

    def aborted(self, sink: str, slot: Slot, fence: int) -> None:
        # A driver of a store that is gone knows other decisions than the store in its place.
        if slot in self.open and (self.world.lives[STORE], fence) in self.owners:
            raise self.world.fail(FINAL, f"sink `{sink}`: `{slot}` was aborted, and an open decision names it")

    def _check_fence(self, sink: str, fence: int, what: str) -> None:
        newest = self.fences.get(sink, 0)
        if fence < newest:
            raise self.world.fail(FENCE, f"sink `{sink}`: fence {fence} {what} after fence {newest} had raised itself")

    # What happens in a driver.

    def starts(self, fence: int, driver: str) -> None:
        """A start is over: whatever became of the state store on the way, no other driver may have come so far."""
        other = self.started.setdefault(fence, driver)
        if other != driver:
            raise self.world.fail(OWNER, f"{other} and {driver} have both started under fence {fence}")

    def recovers(self, fence: int) -> None:
        """A start is over, and this driver still owns the pipeline: nothing older is left, but what is decided."""
        for place in self.places.values():
            # The spool's copy of what is visible is no litter yet: the next sweep removes it.
            known = (self.open, place.committed)
            old = [slot for slot in place.staged if slot.fence < fence and not any(slot in k for k in known)]
            if old:
                raise self.world.fail(
                    LITTER, f"sink `{place.name}`: `{old[0]}` is left after recovery by fence {fence}"
                )

    def acknowledges(self, batch: Batch, epoch: int, fence: int, sweep_every: int) -> None:
        for place in self.places.values():
            missing = [row for row in rows_of(batch, place.name) if row not in place.visible]
            if missing:
                raise self.world.fail(TOLD, f"epoch {epoch}: sink `{place.name}` lacks rows {missing}")
            old = [
                slot
                for slot, staged in place.staged.items()
                if slot.fence <= fence and staged.since < self.acknowledged - sweep_every
            ]
            if old:
                raise self.world.fail(LITTER, f"sink `{place.name}`: `{old[0]}` has outlived {sweep_every} epochs")
        self.acknowledged += 1

    def ends(self, state: PipelineState | None, rows: int, is_store_whole: bool) -> None:
        """Everything is over, and nothing was wrong for a while."""
        everything = Batch(0, rows)
        for place in self.places.values():
            expected = sorted(rows_of(everything, place.name))
            if sorted(place.visible) != expected:
                lost = sorted(set(expected) - set(place.visible))
                raise self.world.fail(ONCE, f"sink `{place.name}`: rows {lost} are not visible in the end")
            if place.staged:
                raise self.world.fail(
                    LITTER, f"sink `{place.name}`: {[str(s) for s in place.staged]} is left in the end"
                )
        if state is None or state.open:
            raise self.world.fail(PROGRESS, f"the state store still has open epochs: {state and state.open}")
        total = everything.count()
        mine = state.totals
        if is_store_whole and (mine.rows_in, mine.good, mine.dead, mine.dropped) != (
            total.rows_in,
            total.good,
            total.dead,
            total.dropped,
        ):
            raise self.world.fail(COUNT, f"the state store counted {mine} of {total}")
