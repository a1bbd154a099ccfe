"""What the simulation has found, each told again without it, so that it stays found when seeds mean something else."""

import uuid

import pytest

from pakka import points
from pakka.contract.state import Owner
from pakka.errors import FencedError, RefusedError
from pakka.model.epoch import Epoch
from pakka.sinks.memory import MemorySink
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import Copy, MemoryStore
from tests.unit.coordinator.stage import Stage


@pytest.mark.parametrize("sink", [lambda: MemorySink(uuid.uuid4().hex), lambda: SimulatedSink(World())])
def test_a_state_store_restored_from_a_copy_of_a_running_pipeline_is_brought_up_to_date(sink):
    """Seed 1085: such a copy always has an open decision, and the guard took its epoch for the newest there could be."""
    stage = Stage({"lake": sink()})
    copies = []

    def prepare(epoch, fence):
        copies.append(stage.store.copy())
        return stage.prepare(epoch, fence)

    stage.run(6, prepare=prepare)
    assert [d.epoch.number for d in copies[2].states["refunds"].open] == [1]
    stage.store.restore(copies[2])
    stage.run(8)
    state = stage.store.read("refunds")
    assert (state.committed, state.open) == (8, ())


@pytest.fixture
def disarmed():
    yield
    points.arm(None)


def test_a_driver_whose_fence_was_given_to_another_by_a_lost_store_settles_nothing(disarmed):
    """Seed 1571: the store is lost before a sink has seen the fence, so the next driver gets the same one."""
    world = World()
    stage = Stage({"lake": SimulatedSink(world)})
    stage.run(0)
    other = Owner("other host", 2, 1.0)

    def lose_the_store(point, epoch):
        if point == "recover.examined":
            points.arm(None)
            stage.store.restore(Copy({}, {}))
            assert stage.store.take_fence("refunds", other, at_least=2).fence == 2
            # What the other driver has prepared under the same fence is not this one's to abort.
            stage.prepare(Epoch("refunds", 1, stage.origin(1)), 2)

    points.arm(lose_the_store)
    with pytest.raises(FencedError, match="no longer names this driver as the owner of fence 2"):
        stage.run(1)
    assert len(world.prepared) == stage.slots
    assert stage.store.read("refunds").owner == other


def test_a_driver_that_the_store_knows_no_more_settles_nothing(disarmed):
    stage = Stage({"lake": SimulatedSink(World())}, MemoryStore())

    def lose_the_store(point, epoch):
        if point == "recover.examined":
            stage.store.forget("refunds")

    points.arm(lose_the_store)
    with pytest.raises(FencedError, match="no longer names this driver"):
        stage.run(1)
    assert stage.store.read("refunds") is None


def test_a_slot_lost_twice_does_not_bring_back_the_slot_that_the_sink_holds():
    """Seed 4162: a decision made beside a held slot names only the other one. When that one was lost, both were decided."""
    world = World()
    stage = Stage({"lake": SimulatedSink(world)})

    def lose_slot_1(store_is_lost):
        def prepare(epoch, fence):
            harvest = stage.prepare(epoch, fence)
            world.lose(next(slot for slot in world.prepared if slot.number == 1))
            return harvest

        with pytest.raises(RefusedError, match="has lost 1 of its prepared records"):
            stage.run(0, prepare=prepare)
        if store_is_lost:
            stage.store.restore(Copy({}, {}))

    lose_slot_1(store_is_lost=True)
    lose_slot_1(store_is_lost=False)
    assert [p.slot.number for p in stage.store.read("refunds").open[0].prepared] == [1]
    stage.run(0)
    assert sorted(slot.number for slot in world.visible) == [0, 1]
    assert world.prepared == {}
