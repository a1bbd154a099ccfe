"""Slots that fail: once, for good, by a killed worker, late, or twice over."""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import group, is_frozen, wait_until
from tests.faults.engine import Trouble
from tests.faults.extent import one_store, sample

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
    # The other slots may be at work yet; whatever they leave is the next run's to sweep.
    slips_site.finish()


@pytest.mark.parametrize("point", ["task.begin", "task.batch", "task.prepared"])
def test_a_worker_that_outlives_its_driver_cannot_prepare_under_the_old_fence(slips_site, ground, point):
    """On a cluster executors outlive the driver. This one is frozen, and wakes when another driver has done it all."""
    orphan = leave_an_orphan(slips_site, ground, point)
    slips_site.finish()
    before = slips_site.snapshot()
    wake_orphan(slips_site, orphan)
    assert slips_site.log().splitlines()[-1].endswith("FencedError")
    assert slips_site.snapshot() == before
    slips_site.check()


HALFWAY = [
    "recover.fenced",
    "recover.examined",
    "recover.raised",
    "recover.committed",
    "recover.settled",
    "recover.entered",
]
HALFWAY += ["begin", "prepared", "decide.after", "commit.after"]
WAKING = list(itertools.product(["task.begin", "task.batch", "task.file.prepared", "task.prepared"], HALFWAY))


@one_store
@pytest.mark.parametrize(("point", "halfway"), sample(WAKING, 8))
def test_a_worker_that_wakes_while_the_next_driver_is_at_work_leaves_nothing(slips_site, ground, point, halfway):
    """Until the new fence is raised it may still prepare under the old one; what it leaves is swept with the rest."""
    orphan = leave_an_orphan(slips_site, ground, point)
    heir = slips_site.freeze(Drill(halfway))
    wake_orphan(slips_site, orphan)
    slips_site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    slips_site.check()


@one_store
@pytest.mark.parametrize("wakes", ["before the next run", "after the next run"])
def test_a_slot_left_behind_by_its_failed_job_is_never_seen(slips_site, ground, wakes):
    """Slot 0 fails for good, the epoch is aborted, and another slot goes on as if nothing had happened."""
    drill = Drill("task.prepared", do="stop", epoch=1, mark=str(ground / "struck"))
    child = slips_site.start(drill, has_workers=True, trouble=Trouble(batch=1, slot=0, times=1))
    assert child.wait() == 1, child.said
    wait_until(lambda: any(map(is_frozen, group(child.pid))), "no slot was left behind")
    if wakes == "before the next run":
        wake_orphan(slips_site, child)
        slips_site.check_whole_epochs()
    slips_site.finish()
    if wakes == "after the next run":
        wake_orphan(slips_site, child)
        assert slips_site.log().splitlines()[-1].endswith("FencedError")
        slips_site.check()


def leave_an_orphan(site, ground, point):
    """A driver was killed while one of its workers was frozen at this point of epoch 1."""
    driver = site.start(Drill(point, do="stop", epoch=1, mark=str(ground / "struck")), has_workers=True)
    driver.wait_until_frozen(lambda: group(driver.pid))
    driver.kill()
    driver.wait()
    return driver


def wake_orphan(site, driver):
    driver.wake()
    site.wait_for_group(driver)


def test_two_attempts_at_each_slot_at_once_deliver_one_of_them(slips_site):
    """As with speculative execution. What the losers staged is litter until the next sweep, and never visible."""
    slips_site.run(is_speculative=True, has_workers=True)
    slips_site.check_whole_epochs()
    slips_site.finish()
