"""An administrator at the server: ends prepared transactions by hand, and has some that are none of ours."""

import itertools
import shutil

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.watched import DONE, FAILED

pytestmark = pytest.mark.faults

MIDDLE = 1
LAST = 2
"""Every slot of it has rows."""


ROLLED_BACK = list(itertools.product(["prepared", "keyed"], [1, 2, 3]))


@one_store
@pytest.mark.parametrize(("layout", "count"), ROLLED_BACK)
def test_a_decided_slot_that_was_rolled_back_by_hand_runs_again(base, make_sql_site, state, layout, count):
    """The server does not know the id any more, and the ledger does not know the slot: it is lost, and is made again."""
    site = make_sql_site(state, layout)
    child = site.freeze(Drill("decide.after", epoch=LAST))
    base.end_prepared("ROLLBACK", site.prepared(3)[:count])
    child.wake()
    site.ends(child, (FAILED,))
    assert f"sink `refunds` has lost {count} of its prepared records" in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", ["commit.slot", "decide.after"])
def test_a_slot_rolled_back_by_hand_while_nobody_runs_is_made_again(base, make_sql_site, state, point):
    site = make_sql_site(state, "prepared")
    site.crash(Drill(point, epoch=LAST, nth=2 if point == "commit.slot" else 1))
    base.end_prepared("ROLLBACK", site.prepared()[-1:])
    site.finish()


@one_store
def test_a_decided_slot_that_was_committed_by_hand_is_not_committed_twice(base, make_sql_site, state):
    site = make_sql_site(state, "prepared")
    child = site.freeze(Drill("decide.after", epoch=LAST))
    base.end_prepared("COMMIT", site.prepared(3)[1:])
    child.wake()
    assert site.ends(child) == DONE, child.said
    site.check()


@one_store
@pytest.mark.parametrize("then", ["goes on", "dies"])
def test_an_undecided_slot_that_was_committed_by_hand_is_not_delivered_twice(base, make_sql_site, state, then):
    """By somebody who cannot know better. The ledger knows the slot, so that it is never added a second time."""
    site = make_sql_site(state, "prepared")
    child = site.freeze(Drill("prepared", epoch=LAST))
    base.end_prepared("COMMIT", site.prepared(3)[:1])
    if then == "dies":
        child.kill()
        child.wait()
        site.run()
    else:
        child.wake()
        assert site.ends(child) == DONE, child.said
    site.finish()


@one_store
def test_prepared_transactions_of_others_are_never_touched(base, make_sql_site, state):
    """Another program's, another pipeline's, and one whose id looks like ours in another place."""
    site = make_sql_site(state, "prepared")
    site.foreign = base.prepare_foreign()
    site.crash(Drill("prepared", epoch=MIDDLE))
    site.crash(Drill("commit.slot", epoch=MIDDLE, nth=2))
    site.finish()
    assert set(site.foreign) <= set(site.judge.prepared())


LOST = [("prepared", "commit.slot"), ("keyed", "commit.slot"), ("keyed", "commit.after"), ("mix", "commit.sink")]


@pytest.mark.parametrize(("layout", "point"), LOST)
def test_a_state_store_lost_between_two_slots_doubles_nothing(make_sql_site, ground, layout, point):
    """The decision is gone, and some of its slots are visible. The ledger knows which; a key would refuse them a second time."""
    site = make_sql_site(f"sqlite:///{ground}/state/state.db", layout)
    (ground / "state").mkdir()
    site.crash(Drill(point, epoch=LAST, nth=1 if point == "commit.after" else 2))
    shutil.rmtree(ground / "state")
    (ground / "state").mkdir()
    site.finish()
