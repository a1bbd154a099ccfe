"""What the simulation has found, each told again without it, so that it stays found when seeds mean something else."""

import uuid

import pytest

from pakka.sinks.memory import MemorySink
from pakka.testing.simulated import SimulatedSink, World
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
