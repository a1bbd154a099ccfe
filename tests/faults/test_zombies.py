"""A driver is frozen, another one takes over, the first wakes up: it must stop, and must not have changed anything."""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store, sample

pytestmark = pytest.mark.faults

FENCED = 4
MIDDLE = 1
# Every place at which time may pass, except inside a transaction of a sink: that one holds a lock (see below).
FREEZING = [
    "task.batch",
    "prepared",
    "decide.before",
    "decide.after",
    "commit.sink",
    "commit.publish",
    "commit.applied",
    "commit.after",
]
MORE = [
    ("begin", 1),
    ("task.begin", 1),
    ("task.batch", 4),
    ("task.prepared", 1),
    ("task.prepared", 5),
    ("commit.sink", 2),
    ("commit.sink", 3),
    ("commit.slot", 2),
    ("commit.move", 1),
    ("commit.move", 2),
    ("commit.published", 1),
    ("acknowledge.before", 1),
]


def wake_and_expect_fenced(zombie):
    zombie.wake()
    assert zombie.wait() == FENCED, zombie.said
    assert "FencedError" in zombie.said
    assert "lost to fence" in zombie.said


def finish_and_wake(site, zombie):
    """Another driver does all there is to do; the first one must find itself fenced, and leave everything as it is."""
    site.finish()
    before = site.snapshot()
    wake_and_expect_fenced(zombie)
    assert site.snapshot() == before
    site.check()


@pytest.mark.parametrize("point", FREEZING)
def test_a_driver_that_wakes_after_all_is_done_is_fenced_and_changes_nothing(slips_site, point):
    finish_and_wake(slips_site, slips_site.freeze(Drill(point, epoch=MIDDLE)))


@one_store
@pytest.mark.parametrize(("point", "nth"), MORE)
def test_a_driver_frozen_anywhere_else_is_fenced_and_changes_nothing(slips_site, point, nth):
    finish_and_wake(slips_site, slips_site.freeze(Drill(point, epoch=MIDDLE, nth=nth)))


@one_store
@pytest.mark.parametrize(
    "point", ["recover.fenced", "recover.examined", "recover.raised", "recover.committed", "recover.settled"]
)
def test_a_driver_that_was_frozen_in_its_recovery_is_fenced_and_changes_nothing(slips_site, point):
    slips_site.crash(Drill("commit.sink", epoch=MIDDLE, nth=2))
    finish_and_wake(slips_site, slips_site.freeze(Drill(point)))


def test_a_driver_that_had_only_to_stop_ends_well(site):
    """Frozen at the end of its recovery of a finished pipeline: it finds nothing to do, and does nothing."""
    site.finish()
    zombie = site.freeze(Drill("recover.entered"))
    site.finish()
    before = site.snapshot()
    zombie.wake()
    assert zombie.wait() == 0, zombie.said
    assert site.snapshot() == before


HALFWAY = [
    "recover.fenced",
    "recover.raised",
    "recover.committed",
    "begin",
    "task.batch",
    "decide.before",
    "decide.after",
    "commit.sink",
]
PAIRS = list(itertools.product([*FREEZING, "begin", "acknowledge.before"], HALFWAY))


@one_store
@pytest.mark.parametrize(("first", "second"), sample(PAIRS, 10))
def test_a_driver_that_wakes_while_the_next_one_is_at_work_is_fenced(slips_site, first, second):
    """Both stand at a chosen place. The old one goes first and must fail; the new one must not have noticed."""
    zombie = slips_site.freeze(Drill(first, epoch=MIDDLE))
    heir = slips_site.freeze(Drill(second))
    wake_and_expect_fenced(zombie)
    slips_site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    slips_site.check()


def test_a_driver_frozen_inside_a_sinks_transaction_delays_the_next_one_and_doubles_nothing(make_site, state):
    """It holds SQLite's write lock, which no fence can take away. The next driver says so, and leaves all as it is."""
    site = make_site(state, sinks="tests.faults.outputs:impatient")
    zombie = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    site.check_whole_epochs()
    before = site.judge.seen()
    heir = site.run(code=1)
    assert "audit.db is locked by another process" in heir.said
    assert "nothing was changed" in heir.said
    assert site.judge.seen() == before
    zombie.wake()
    assert zombie.wait() == FENCED, zombie.said
    site.check_whole_epochs()
    site.finish()


def test_a_driver_killed_inside_a_sinks_transaction_lets_the_next_one_on(make_site, state):
    site = make_site(state, sinks="tests.faults.outputs:impatient")
    zombie = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    site.run(code=1)
    zombie.kill()
    zombie.wait()
    site.check_whole_epochs()
    site.finish()
