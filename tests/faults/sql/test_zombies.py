"""A driver is frozen with open prepared transactions, the next one settles them and goes on; the first wakes, and changes
nothing.
"""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.watched import FENCED

pytestmark = pytest.mark.faults

MIDDLE = 1
FREEZING = [
    ("task.batch", 1),
    ("task.sql.loaded", 1),
    ("task.sql.prepared", 2),
    ("prepared", 1),
    ("decide.before", 1),
    ("decide.after", 1),
    ("commit.slot", 2),
    ("commit.apply", 2),
    ("commit.applied", 2),
    ("commit.after", 1),
]


def wake_and_expect_fenced(zombie):
    zombie.wake()
    assert zombie.wait() == FENCED, zombie.said
    assert "lost to fence" in zombie.said


@one_store
@pytest.mark.parametrize(("point", "nth"), FREEZING)
def test_a_driver_that_wakes_after_all_is_done_is_fenced_and_changes_nothing(make_sql_site, state, point, nth):
    site = make_sql_site(state, "prepared")
    zombie = site.freeze(Drill(point, epoch=MIDDLE, nth=nth))
    site.check_whole_epochs()
    site.finish()
    before = site.snapshot()
    wake_and_expect_fenced(zombie)
    assert site.snapshot() == before
    site.check()


@one_store
@pytest.mark.parametrize("point", ["decide.after", "commit.applied", "commit.after"])
@pytest.mark.parametrize("layout", ["spooled", "upsert"])
def test_a_driver_that_spools_is_fenced_and_changes_nothing(make_sql_site, state, layout, point):
    site = make_sql_site(state, layout)
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    site.finish()
    before = site.snapshot()
    wake_and_expect_fenced(zombie)
    assert site.snapshot() == before
    site.check()


HALFWAY = ["recover.fenced", "recover.raised", "recover.committed", "begin", "task.batch", "decide.before"]
HALFWAY += ["decide.after", "commit.slot"]
PAIRS = [(*pair, halfway) for pair, halfway in itertools.product(FREEZING, HALFWAY)]


@one_store
@pytest.mark.parametrize(("point", "nth", "halfway"), PAIRS)
def test_a_driver_that_wakes_while_the_next_one_is_at_work_is_fenced(make_sql_site, state, point, nth, halfway):
    """Both stand at a chosen place. The old one goes first and must fail; the new one must not have noticed."""
    site = make_sql_site(state, "prepared")
    zombie = site.freeze(Drill(point, epoch=MIDDLE, nth=nth))
    heir = site.freeze(Drill(halfway))
    wake_and_expect_fenced(zombie)
    site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    site.check()


@one_store
@pytest.mark.parametrize("layout", ["spooled", "upsert"])
def test_a_driver_frozen_inside_its_transaction_delays_the_next_one_and_doubles_nothing(make_sql_site, state, layout):
    """It holds the row of the fence, which nobody can take away. The next driver says so, and leaves all as it is."""
    site = make_sql_site(state, layout, tries=2)
    zombie = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    before = site.judge.seen()
    heir = site.run(code=1)
    assert "another transaction holds its row; nothing was changed" in heir.said
    assert site.judge.seen() == before
    zombie.wake()
    assert zombie.wait() == FENCED, zombie.said
    site.check_whole_epochs()
    site.finish()


@pytest.mark.certify_only
@one_store
def test_a_driver_killed_inside_its_transaction_lets_the_next_one_on(make_sql_site, state):
    site = make_sql_site(state, "upsert", tries=2)
    zombie = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    site.run(code=1)
    zombie.kill()
    zombie.wait()
    site.finish()
