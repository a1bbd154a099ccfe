"""The broker is killed at each step of an epoch, and comes back: at once, or when the driver has long given up."""

import itertools
import signal

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.kafka.outputs import OF_SHARDS
from tests.faults.kafka.setups import IMPATIENT
from tests.faults.watched import DONE, FAILED, UNKNOWN

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
INSIDE = ["commit.kafka.begun", "commit.kafka.sending", "commit.kafka.sent", "commit.apply"]
INSIDE += ["commit.kafka.offsets", "commit.kafka.ending"]
AROUND = ["begin", "task.batch", "prepared", "decide.before", "decide.after", "commit.applied", "commit.after"]
OF_SLOTS = [
    "task.kafka.begun",
    "task.kafka.sent",
    "task.kafka.prepared",
    "commit.slot",
    "commit.apply",
    "commit.kafka.ending",
]
EVERYWHERE = [
    *itertools.product(["one", "mix"], [*INSIDE, *AROUND]),
    *itertools.product(["prepared", "ways"], [*OF_SLOTS, *AROUND]),
    *itertools.product(["sharded"], [*sorted(OF_SHARDS), "commit.slot", "commit.kafka.ending", *AROUND]),
]
RECOVERY = ["recover.fenced", "recover.raised", "recover.committed", "recover.settled"]
QUICK = {"transaction.timeout.ms": 4000}
"""Records that cannot be sent are given up by then, too."""


def keep_to_the_rules(site, child):
    """It went on, or it gave up; never did it end by an error that nobody has thought of, nor show a part of anything."""
    code = site.ends(child)
    assert "Traceback" not in child.said
    site.check_whole_epochs()
    return code


@pytest.mark.every_case
@one_store
@pytest.mark.parametrize("point", ["commit.kafka.sending", "commit.kafka.ending", "commit.applied"])
def test_a_broker_killed_in_a_commit_and_back_at_once_ends_with_each_record_once(
    mortal, make_mortal_site, state, point
):
    """In the middle of the records; before the end of the transaction; after it."""
    site = make_mortal_site(state)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.kill()
    mortal.server.restart()
    child.wake()
    assert keep_to_the_rules(site, child) == DONE, child.said
    site.check()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize(("layout", "point"), EVERYWHERE)
def test_a_broker_killed_in_an_epoch_and_back_at_once_ends_with_each_record_once(
    mortal, make_mortal_site, state, layout, point
):
    site = make_mortal_site(state, layout)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.kill()
    mortal.server.restart()
    child.wake()
    keep_to_the_rules(site, child)
    site.finish()


@one_store
@pytest.mark.parametrize("point", [*INSIDE, "decide.after", "commit.applied"])
def test_a_broker_that_stays_away_is_given_up_and_the_next_run_finishes(mortal, make_mortal_site, state, point):
    site = make_mortal_site(state, settings=QUICK, setup=IMPATIENT, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.kill()
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    assert "Traceback" not in child.said
    mortal.server.restart()
    site.check_whole_epochs()
    site.finish(setup="", tries=4)


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("point", [*INSIDE, "decide.after", "commit.applied", "commit.after"])
def test_a_broker_and_a_driver_killed_together_lose_nothing(mortal, make_mortal_site, state, point):
    """As with one power switch. All that is left is on the disks."""
    site = make_mortal_site(state)
    site.crash(Drill(point, epoch=MIDDLE))
    mortal.kill()
    mortal.server.restart()
    site.check_whole_epochs()
    site.finish()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("point", RECOVERY)
def test_a_broker_killed_while_a_driver_recovers_ends_with_each_record_once(mortal, make_mortal_site, state, point):
    site = make_mortal_site(state)
    site.crash(Drill("commit.kafka.ending", epoch=MIDDLE))
    child = site.freeze(Drill(point))
    mortal.kill()
    mortal.server.restart()
    child.wake()
    keep_to_the_rules(site, child)
    site.finish()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("point", ["commit.kafka.sending", "commit.kafka.ending"])
def test_a_broker_that_freezes_is_given_up(mortal, make_mortal_site, state, point):
    """It is there, and takes connections, and says nothing."""
    site = make_mortal_site(state, settings=QUICK, setup=IMPATIENT, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.server.signal(signal.SIGSTOP)
    try:
        child.wake()
        site.ends(child, (FAILED, UNKNOWN))
    finally:
        mortal.server.signal(signal.SIGCONT)
    site.check_whole_epochs()
    site.finish(setup="", tries=4)
