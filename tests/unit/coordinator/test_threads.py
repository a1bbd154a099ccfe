"""Sinks are committed side by side, and so are the slots of a sink, in one pool of whatever size."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pakka.errors import FencedError
from pakka.testing.simulated import SimulatedSink, World
from tests.unit.coordinator.stage import Stage


@pytest.mark.timeout(30)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_a_pool_with_no_more_threads_than_sinks_is_enough(threads):
    """Each sink's commit holds a thread while it waits for its slots, which need threads too."""
    worlds = {f"sink{n}": World() for n in range(4)}
    stage = Stage({name: SimulatedSink(world, name) for name, world in worlds.items()}, slots=20)
    with ThreadPoolExecutor(max_workers=threads) as pool:
        driver = stage.driver()
        driver.pool = pool
        stage.run(1, driver)
    assert [len(world.visible) for world in worlds.values()] == [40] * 4


@pytest.mark.timeout(30)
def test_a_slot_that_is_fenced_ends_the_commit_of_its_sink_and_leaves_no_work_behind():
    fenced, free = World(), World()
    stage = Stage({"fenced": SimulatedSink(fenced, "a"), "free": SimulatedSink(free, "b")}, slots=20)
    with ThreadPoolExecutor(max_workers=2) as pool:
        driver = stage.driver()
        driver.pool = pool
        driver.start(stage.checkpoint())

        def overtake(step, record):
            if step == "before" and record.slot.number == 5:
                raise FencedError("overtaken")
            return None

        fenced.answer = overtake
        with pytest.raises(FencedError, match="overtaken"):
            driver.deliver(stage.origin(0), stage.prepare)
        assert len(free.visible) == 20
