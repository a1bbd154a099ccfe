"""Slots that fail on their way into a server: killed, left behind, or run twice at once."""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import group
from tests.faults.engine import Trouble
from tests.faults.extent import one_store
from tests.faults.sql.setups import SHORT_LOCKS

pytestmark = pytest.mark.faults

MIDDLE = 1
POINTS = ["task.begin", "task.batch", "task.sql.loaded", "task.sql.prepared", "task.prepared"]
KILLS = [(layout, point) for layout in ("prepared", "keyed", "mix") for point in POINTS]


def kill_a_worker(site, ground, point, **changes):
    mark = ground / "struck"
    child = site.start(Drill(point, epoch=MIDDLE, mark=str(mark)), has_workers=True, **changes)
    code = child.wait()
    assert mark.exists(), "the drill did not strike"
    return code, child


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize(("layout", "point"), KILLS)
def test_a_killed_worker_is_replaced_and_its_transaction_is_gone(make_sql_site, state, ground, layout, point):
    site = make_sql_site(state, layout)
    code, child = kill_a_worker(site, ground, point, attempts=2)
    assert code == 0, child.said
    site.check()


@one_store
@pytest.mark.parametrize("layout", ["prepared", "keyed"])
def test_a_slot_whose_first_attempt_is_prepared_runs_again(make_sql_site, state, ground, layout):
    """Nobody was told of the first one. With a PRIMARY KEY the second would wait for its rows for ever."""
    site = make_sql_site(state, layout)
    code, child = kill_a_worker(site, ground, "task.sql.prepared", attempts=2)
    assert code == 0, child.said
    site.check()


@one_store
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_for_good_aborts_the_epoch_and_a_restart_goes_on(make_sql_site, state, ground, point):
    site = make_sql_site(state, "keyed")
    code, child = kill_a_worker(site, ground, point)
    assert code == 1, child.said
    assert "exited unexpectedly" in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
def test_a_slot_that_fails_for_good_leaves_nothing_in_doubt(make_sql_site, state):
    site = make_sql_site(state)
    child = site.run(code=1, trouble=Trouble(batch=MIDDLE, slot=1, times=9), attempts=3)
    assert "epoch 1: a task failed for good" in child.said
    site.check_whole_epochs()
    assert site.judge.litter() == []
    site.finish()


def leave_an_orphan(site, ground, point, epoch=MIDDLE):
    """A driver was killed while one of its workers was frozen at this point."""
    driver = site.start(Drill(point, do="stop", epoch=epoch, mark=str(ground / "struck")), has_workers=True)
    driver.wait_until_frozen(lambda: group(driver.pid))
    driver.kill()
    driver.wait()
    return driver


def wake_orphan(site, driver):
    driver.wake()
    site.wait_for_group(driver)


ORPHANS = ["task.begin", "task.batch", "task.sql.loaded", "task.sql.prepared"]


@one_store
@pytest.mark.parametrize("point", ORPHANS)
def test_a_worker_that_outlives_its_driver_cannot_prepare_under_the_old_fence(make_sql_site, state, ground, point):
    site = make_sql_site(state, "prepared")
    orphan = leave_an_orphan(site, ground, point)
    site.finish()
    before = site.snapshot()
    wake_orphan(site, orphan)
    told = site.log().splitlines()[-1]
    # One that had prepared finds nothing left to do; its transaction was aborted by the next driver.
    assert told.endswith("SlotReport" if point == "task.sql.prepared" else "FencedError")
    assert site.snapshot() == before
    site.check()


def test_an_orphan_that_holds_keys_of_the_table_keeps_the_next_run_waiting_and_doubles_nothing(
    make_sql_site, state, ground
):
    """Its transaction is open, and has written the very rows that the next run has to write again."""
    site = make_sql_site(state, "keyed", setup=SHORT_LOCKS)
    # Not in the middle epoch: there the slot that is frozen may be the empty one.
    orphan = leave_an_orphan(site, ground, "task.sql.loaded", epoch=2)
    heir = site.run(code=1)
    assert "timeout" in heir.said
    assert "nothing of it is visible" in heir.said
    wake_orphan(site, orphan)
    assert site.log().splitlines()[-1].endswith("FencedError")
    site.finish()


HALFWAY = ["recover.fenced", "recover.examined", "recover.raised", "recover.committed", "recover.settled"]
HALFWAY += ["recover.entered", "begin", "prepared", "decide.after", "commit.after"]
WAKING = list(itertools.product(ORPHANS, HALFWAY))


@one_store
@pytest.mark.parametrize(("point", "halfway"), WAKING)
def test_a_worker_that_wakes_while_the_next_driver_is_at_work_leaves_nothing(
    make_sql_site, state, ground, point, halfway
):
    """Until the new fence is raised it may still prepare under the old one; what it leaves is settled with the rest."""
    site = make_sql_site(state, "prepared")
    orphan = leave_an_orphan(site, ground, point)
    heir = site.freeze(Drill(halfway))
    wake_orphan(site, orphan)
    site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    site.check()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("layout", ["prepared", "spooled"])
def test_two_attempts_at_each_slot_at_once_deliver_one_of_them(make_sql_site, state, layout):
    """As with speculative execution. The loser stays prepared, out of sight, until the next sweep."""
    site = make_sql_site(state, layout)
    site.run(is_speculative=True, has_workers=True)
    site.check_whole_epochs()
    site.finish()
