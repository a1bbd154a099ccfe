"""Slots that fail: once, for good, by a killed worker, late, or twice over."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import group
from tests.faults.engine import Trouble
from tests.faults.extent import one_store

pytestmark = pytest.mark.faults


def test_a_slot_that_fails_once_is_retried_and_its_litter_is_gone(slips_site):
    slips_site.finish(trouble=Trouble(batch=1, slot=1, times=1), attempts=2)


def test_a_slot_that_fails_for_good_aborts_its_epoch_and_a_restart_goes_on(slips_site):
    child = slips_site.run(code=1, trouble=Trouble(batch=1, slot=1, times=9), attempts=3)
    assert "AbortedError" in child.said
    assert "epoch 1: a task failed for good: slot 1 was told to fail" in child.said
    assert "nothing of it is visible" in child.said
    assert [e["epoch"] for e in child.events if e["event"] == "delivered"] == [0]
    slips_site.check_whole_epochs()
    assert slips_site.judge.litter() == []
    slips_site.finish()


@one_store
@pytest.mark.parametrize(
    ("point", "nth"),
    [("task.begin", 1), ("task.batch", 1), ("task.batch", 2), ("task.prepared", 1), ("task.prepared", 3)],
)
def test_a_killed_worker_is_replaced_and_its_litter_is_gone(slips_site, ground, point, nth):
    mark = ground / "struck"
    child = slips_site.start(Drill(point, epoch=1, nth=nth, mark=str(mark)), has_workers=True, attempts=2)
    assert child.wait() == 0, child.said
    assert mark.exists(), "the drill did not strike"
    slips_site.check()


@pytest.mark.parametrize("point", ["task.begin", "task.batch", "task.prepared"])
def test_a_worker_killed_for_good_aborts_the_epoch_and_a_restart_goes_on(slips_site, ground, point):
    mark = ground / "struck"
    child = slips_site.start(Drill(point, epoch=1, mark=str(mark)), has_workers=True, attempts=1)
    assert child.wait() == 1, child.said
    assert mark.exists(), "the drill did not strike"
    assert "exited unexpectedly" in child.said
    slips_site.check_whole_epochs()
    assert slips_site.judge.litter() == []
    slips_site.finish()


@pytest.mark.parametrize("point", ["task.begin", "task.batch", "task.prepared"])
def test_a_worker_that_outlives_its_driver_cannot_prepare_under_the_old_fence(slips_site, ground, point):
    """On a cluster executors outlive the driver. This one is frozen, and wakes when another driver has done it all."""
    drill = Drill(point, do="stop", epoch=1, mark=str(ground / "struck"))
    first = slips_site.start(drill, has_workers=True)
    first.wait_until_frozen(lambda: group(first.pid))
    first.kill()
    first.wait()
    slips_site.finish()
    before = slips_site.snapshot()
    first.wake()
    slips_site.wait_for_group(first)
    assert "epoch 1 fence 1 slot" in slips_site.log()
    assert slips_site.log().splitlines()[-1].endswith("FencedError")
    assert slips_site.snapshot() == before
    slips_site.check()


def test_two_attempts_at_each_slot_at_once_deliver_one_of_them(slips_site):
    """As with speculative execution. What the losers staged is litter until the next sweep, and never visible."""
    slips_site.run(is_speculative=True, has_workers=True)
    slips_site.check_whole_epochs()
    slips_site.finish()
