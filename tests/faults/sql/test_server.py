"""The server is killed at each step of an epoch, and comes back: at once, or when the driver has long given up."""

import signal

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.sql.setups import IMPATIENT
from tests.faults.watched import DONE, FAILED

pytestmark = pytest.mark.faults

MIDDLE = 1
UNDECIDED = ["begin", "task.batch", "task.sql.loaded", "task.sql.prepared", "prepared", "decide.before"]
DECIDED = ["decide.after", "commit.slot", "commit.apply", "commit.applied", "commit.after", "acknowledge.before"]
RECOVERY = ["recover.fenced", "recover.raised", "recover.committed", "recover.settled"]
STEPS = [(point, 1) for point in (*UNDECIDED, *DECIDED)]
STEPS += [(point, 2) for point in ("task.sql.prepared", "commit.slot", "commit.apply", "commit.applied")]
ABSENCES = ["for a moment", "for long"]
CASES = [(*step, absence) for step in STEPS for absence in ABSENCES]


def kill_the_server(base, child, absence):
    """While the driver stands still: it finds a server that has forgotten its connections, or none at all."""
    base.server.kill()
    if absence == "for a moment":
        base.server.restart()
    child.wake()
    child.wait()
    if absence == "for long":
        base.server.restart()


def keep_to_the_rules(site, child):
    """It went on, or it gave up; never did it end by an error that nobody has thought of, nor show a part of anything."""
    site.ends(child)
    assert "Traceback" not in child.said
    site.check_whole_epochs()


@one_store
@pytest.mark.parametrize(("point", "nth", "absence"), CASES)
def test_a_server_killed_in_an_epoch_ends_with_each_row_once(base, make_sql_site, state, point, nth, absence):
    site = make_sql_site(state, tries=3)
    child = site.freeze(Drill(point, epoch=MIDDLE, nth=nth))
    kill_the_server(base, child, absence)
    keep_to_the_rules(site, child)
    site.finish()


SINGLE = [(layout, point) for layout in ("prepared", "keyed") for point in ("prepared", "decide.after", "commit.slot")]
SINGLE += [
    (layout, point) for layout in ("spooled", "upsert") for point in ("prepared", "decide.after", "commit.apply")
]


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize(("layout", "point"), SINGLE)
def test_a_server_of_one_table_killed_in_an_epoch_ends_with_each_row_once(base, make_sql_site, state, layout, point):
    site = make_sql_site(state, layout, tries=3)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    kill_the_server(base, child, "for a moment")
    keep_to_the_rules(site, child)
    site.finish()


@one_store
@pytest.mark.parametrize(("point", "nth"), [("decide.after", 1), ("commit.slot", 2), ("commit.applied", 2)])
def test_prepared_transactions_outlive_their_server_and_their_driver(base, make_sql_site, state, point, nth):
    """Both die, as with one power switch. All that is left is on the disks."""
    site = make_sql_site(state, "prepared")
    site.crash(Drill(point, epoch=MIDDLE, nth=nth))
    base.server.kill()
    base.server.restart()
    site.check_whole_epochs()
    site.finish()
    assert site.children[-1].events[0]["finished"] == 1


@one_store
@pytest.mark.parametrize("absence", ABSENCES)
@pytest.mark.parametrize("point", RECOVERY)
def test_a_server_killed_while_a_driver_recovers_ends_with_each_row_once(base, make_sql_site, state, point, absence):
    site = make_sql_site(state, tries=3)
    site.crash(Drill("commit.slot", epoch=MIDDLE, nth=2))
    child = site.freeze(Drill(point))
    kill_the_server(base, child, absence)
    keep_to_the_rules(site, child)
    site.finish()


@pytest.mark.parametrize("layout", ["prepared", "spooled"])
@one_store
def test_a_decided_epoch_goes_on_by_itself_when_the_server_is_back(base, make_sql_site, state, layout):
    site = make_sql_site(state, layout, tries=4)
    child = site.freeze(Drill("decide.after", epoch=MIDDLE))
    base.server.kill()
    base.server.restart()
    child.wake()
    assert site.ends(child, (DONE, FAILED)) == DONE, child.said
    site.check()


@pytest.mark.certify_only
@pytest.mark.parametrize(
    ("point", "known"), [("task.batch", "nothing of it is visible"), ("decide.after", "is decided and")]
)
def test_a_server_that_freezes_is_given_up(base, make_sql_site, ground, point, known):
    """It is there, and takes connections, and says nothing."""
    site = make_sql_site(f"sqlite:///{ground}/state.db", "prepared", setup=IMPATIENT, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    base.server.signal(signal.SIGSTOP)
    try:
        child.wake()
        site.ends(child, (1, 3))
    finally:
        base.server.signal(signal.SIGCONT)
    assert known in child.said
    site.check_whole_epochs()
    site.finish(setup="")
