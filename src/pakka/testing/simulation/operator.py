"""Whoever runs the pipeline: starts drivers when they end, too many at times, and mends what was broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pakka.model.id import Slot
from pakka.testing.simulation.driver import Driver
from pakka.testing.simulation.judge import PROGRESS, REASON, Judge
from pakka.testing.simulation.place import Place, totals_of
from pakka.testing.simulation.plan import Fault
from pakka.testing.simulation.sinks import PlaceSink
from pakka.testing.simulation.source import rows_of
from pakka.testing.simulation.spark import PIPELINE, CheckpointDirectory, Spark, draw_batch
from pakka.testing.simulation.store import PlaceStore
from pakka.testing.simulation.world import World
from pakka.testing.store import Copy, MemoryStore

_STARTS_MOST = 25
"""After so many starts the faults stop."""
_STARTS_CALM = 10
"""So many starts without faults are enough for any pipeline to come to its end."""
_COPIES = 4
_HURTS = ("at decide.after", "at commit")


class Operator:
    """Has its hands on everything, and its eyes on how drivers end."""

    def __init__(self, world: World, judge: Judge, places: dict[str, Place]) -> None:
        self.world = world
        self.judge = judge
        self.places = places
        self.sinks = {name: PlaceSink(place, world) for name, place in places.items()}
        self.checkpoint = CheckpointDirectory()
        self.store = PlaceStore(world, judge, MemoryStore())
        self.drivers: list[Driver] = []
        self.calm_starts = 0
        self.is_store_whole = True
        self.undo: Callable[[], None] | None = None
        """Puts back what was taken away on purpose, once the guard has refused to go on without it."""
        self.planned_before = -1
        self.is_refused = False
        self.cores = world.plan.slots_most
        self.store_copies: list[Copy] = [self.store.memory.copy()]
        self.checkpoint_copies: list[CheckpointDirectory] = []
        self.place_copies: list[Place] = []
        self.part_copies: dict[str, Place] = {}
        """The last copy of each sink that was made while it held an epoch in part."""

    def start(self) -> None:
        """Start a driver."""
        name = f"driver {len(self.drivers) + 1}"
        if self.world.strikes(Fault.CORES):
            most = self.world.plan.slots_most
            self.cores = self.world.chance.randint((most + 1) // 2, most)
        spark = Spark(name, self.world, self.judge, self.checkpoint, self.sinks, self.cores)
        running = {unit.name for unit in self.world.baton.units}
        beside = [d for d in self.drivers if d.name in running]
        driver = Driver(name, self.world, spark, self.store, self.sinks, beside, self.on_refusal)
        self.drivers.append(driver)
        self.world.note("starts", f"{name}, {self.cores} cores", who="operator")
        self.world.baton.spawn(name, driver.run)

    def on_freeze(self) -> None:
        """A driver does not answer. In a while another one is started in its place."""
        if len(self.world.baton.units) < self.world.plan.drivers_most:
            self.world.baton.later(0.02, self._start_beside)

    def _start_beside(self) -> None:
        if 0 < len(self.world.baton.units) < self.world.plan.drivers_most:
            self.start()

    def on_step(self, what: str) -> None:
        """While drivers run. A state store or a record is lost anywhere, most often where it hurts: between decision and end."""
        world = self.world
        if world.is_calm:
            return
        if what == "at commit.slot":
            self._back_up_parts()
        if world.strikes(Fault.RIVAL):
            self._start_beside()
        for _ in range(4 if what.startswith(_HURTS) else 1):
            if world.strikes(Fault.STORE_LOST):
                self._replace_store("lost", Copy({}, {}))
            if world.strikes(Fault.STORE_RESTORED):
                self._replace_store("restored", world.chance.choice(self.store_copies))
            if world.strikes(Fault.RECORD_LOST):
                self._lose_record()

    def on_idle(self) -> None:
        """No driver is left: look how the last one ended, break something perhaps, and start the next."""
        world = self.world
        if self.is_refused:
            self._mend()
        is_done = bool(self.drivers) and self.drivers[-1].end == "done"
        if is_done and self.calm_starts:
            self.judge.ends(self.store.memory.read(PIPELINE), world.plan.rows, self.is_store_whole)
            return
        if is_done:
            world.baton.flush()
        self._back_up()
        self._tamper()
        world.is_calm = world.is_calm or len(self.drivers) >= _STARTS_MOST or (is_done and world.chance.random() < 0.7)
        if world.is_calm:
            world.baton.flush()
            self.calm_starts += 1
        if self.calm_starts > _STARTS_CALM:
            raise world.fail(PROGRESS, f"still not at the end after {_STARTS_CALM} starts without a fault")
        self.start()

    @property
    def _is_tampered(self) -> bool:
        """Something is not as it was, and no batch has gone through that was not planned before."""
        return self.undo is not None and self.checkpoint.acknowledged <= self.planned_before

    def on_refusal(self, driver: Driver) -> None:
        """The guard has refused. There must be a reason, and it is mended when no driver runs any more."""
        if driver.has_old_knowledge:
            return
        fitting = [cores for cores in range(1, self.world.plan.slots_most + 1) if self._fits(cores)]
        if fitting and driver.spark.cores not in fitting:
            # An epoch that runs again in other slots than sinks hold is refused. Where it is run as before, it is not.
            self.cores = self.world.chance.choice(fitting)
            self.world.note("goes back to", f"{self.cores} cores", who="operator")
            self.world.counts["refusals of other slots"] += 1
            return
        self.is_refused = self._is_tampered
        if not self.is_refused:
            raise self.world.fail(REASON, f"{driver.name} was refused, and nothing had been touched")

    def _fits(self, cores: int) -> bool:
        """Does a driver with so many cores make the very slots that sinks hold of an epoch in part?"""
        return all(self._fits_in(place, cores) for place in self.places.values())

    def _fits_in(self, place: Place, cores: int) -> bool:
        entry = place.entry
        if entry is None or entry.slots is None:
            return True
        batch = self.judge.batches[entry.epoch.origin].on(cores)
        made = {number: totals_of(rows_of(batch, place.name, number)) for number in range(batch.slots)}
        return all(made.get(number) == slot for number, slot in entry.slots.items())

    def _mend(self) -> None:
        assert self.undo is not None
        self.world.note("puts back what was taken away", who="operator")
        self.world.counts["refusals mended"] += 1
        self.undo()
        self.undo, self.is_refused = None, False

    def _back_up(self) -> None:
        """Copies as an operator has them: of a moment at which nothing ran."""
        self.store_copies = [*self.store_copies[-_COPIES:], self.store.memory.copy()]
        self.checkpoint_copies = [*self.checkpoint_copies[-_COPIES:], self.checkpoint.copy()]
        copies = [place.copy() for place in self.places.values()]
        self.place_copies = [*self.place_copies[-_COPIES * len(copies) :], *copies]

    def _back_up_parts(self) -> None:
        """A copy that was made while a driver ran has what was committed by then."""
        for place in self.places.values():
            if place.entry is not None and place.entry.slots is not None:
                self.part_copies[place.name] = place.copy()

    def _replace_store(self, how: str, copy: Copy) -> None:
        self.world.note(f"STATE STORE {how}", who="operator")
        self.store.replace(PIPELINE, copy)
        self.is_store_whole = False
        if self.world.chance.random() < 0.5:
            # Whoever replaces a store starts the pipeline again, and may take a driver for dead that is only slow.
            self._start_beside()
            unit = self.world.baton.current
            assert unit is not None
            unit.wake_s = self.world.now_s + self.world.chance.choice((0.005, 0.01, 0.02, 0.05))

    def _lose_record(self) -> None:
        slots: list[tuple[Place, Slot]] = [(place, slot) for place in self.places.values() for slot in place.staged]
        if slots:
            place, slot = self.world.chance.choice(slots)
            self.world.note("LOST", slot, who=f"sink {place.name}")
            place.lose(slot)

    def _tamper(self) -> None:
        """Take something away or put an older copy in its place, but never two things that vouch for each other."""
        world = self.world
        if self._is_tampered:
            return
        before = self.checkpoint.copy()
        if world.strikes(Fault.CHECKPOINT_LOST):
            self._tampered("CHECKPOINT lost", lambda: self.checkpoint.restore(before))
            self.checkpoint.restore(CheckpointDirectory())
        elif world.strikes(Fault.CHECKPOINT_RESTORED):
            self._tampered("CHECKPOINT restored", lambda: self.checkpoint.restore(before))
            self.checkpoint.restore(world.chance.choice(self.checkpoint_copies))
        elif self.checkpoint.planned > self.checkpoint.acknowledged and world.strikes(Fault.CHECKPOINT_REPLANNED):
            self._tampered("BATCH planned again", lambda: self.checkpoint.restore(before))
            number = self.checkpoint.planned
            planned = self.checkpoint.offsets[number]
            again = draw_batch(world, planned.first)
            self.checkpoint.offsets[number] = replace(again, partitions=planned.partitions)
            self.planned_before = number - 1
        elif world.strikes(Fault.SINK_RESTORED):
            parts = list(self.part_copies.values())
            copy = world.chance.choice(parts if parts and world.chance.random() < 0.5 else self.place_copies)
            self._restore_sink(self.places[copy.name], copy)

    def _restore_sink(self, place: Place, copy: Place) -> None:
        newest = place.copy()
        self._tampered(f"SINK {place.name} restored", lambda: self._put_sink(place, newest))
        self._put_sink(place, copy)

    def _put_sink(self, place: Place, copy: Place) -> None:
        place.restore(copy)
        self.world.lives[place.name] += 1
        self.judge.fences[place.name] = place.staging_fence
        # If the state store was replaced too, nobody is left who has seen the fences of drivers that are long gone.
        self.judge.started.clear()

    def _tampered(self, what: str, undo: Callable[[], None]) -> None:
        self.world.note(what, who="operator")
        self.undo = undo
        self.planned_before = self.checkpoint.planned
