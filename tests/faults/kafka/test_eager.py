"""What was sent before the decision is there when processes die: the driver at every crash point, workers, the broker. Each record once."""

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.engine import Trouble
from tests.faults.extent import one_store
from tests.faults.kafka.outputs import EARLY, points_of
from tests.faults.kafka.setups import IMPATIENT
from tests.faults.kafka.test_zombies import outlive, wake_and_expect_fenced
from tests.faults.watched import DONE, FAILED, UNKNOWN

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
RECOVERY = [p for p in POINTS if p.startswith("recover.")]
EAGER = [p for p in points_of("eager") if p not in RECOVERY]
OPEN = [EARLY, "prepared", "decide.before", "decide.after", "commit.kafka.ending"]
"""Where a transaction is open that was begun early."""
SHORT = {"transaction.timeout.ms": 4000}


@pytest.fixture
def site(make_kafka_site, state):
    return make_kafka_site(state, "eager")


@one_store
@pytest.mark.parametrize("point", [pytest.param(p, marks=pytest.mark.every_case) if p in OPEN else p for p in EAGER])
def test_a_driver_killed_with_an_epoch_on_its_way_delivers_it_once(site, point):
    site.survive(Drill(point, epoch=MIDDLE))


@one_store
@pytest.mark.parametrize("nth", [2, 5])
def test_a_driver_killed_while_it_sends_early_delivers_the_epoch_once(site, nth):
    site.survive(Drill(EARLY, epoch=MIDDLE, nth=nth))


@one_store
@pytest.mark.parametrize("before", ["decide.before", "decide.after"])
def test_a_driver_killed_in_every_recovery_of_what_was_sent_early_is_recovered_in_the_end(site, before):
    site.crash(Drill(before, epoch=MIDDLE))
    for point in RECOVERY:
        site.crash(Drill(point))
        site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", OPEN)
def test_a_driver_frozen_with_an_epoch_on_its_way_wakes_when_all_is_done_and_writes_nothing(site, point):
    outlive(site, point)


@one_store
@pytest.mark.parametrize("point", [EARLY, "decide.after"])
@pytest.mark.parametrize("halfway", ["recover.fenced", "recover.raised", EARLY, "decide.after"])
def test_a_driver_that_wakes_with_its_epoch_on_its_way_while_the_next_is_at_work_is_fenced(site, point, halfway):
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    heir = site.freeze(Drill(halfway))
    wake_and_expect_fenced(zombie)
    site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == DONE, heir.said
    site.check()


def test_a_slot_that_fails_once_when_some_of_it_was_sent_is_delivered_once(site):
    site.finish(trouble=Trouble(batch=MIDDLE, slot=1, times=1), attempts=2)


def test_slots_that_are_run_twice_at_the_same_time_are_delivered_once(site):
    site.run(is_speculative=True, has_workers=True)
    site.check_whole_epochs()
    # What the losers staged is litter until the next sweep.
    site.finish()


@pytest.mark.parametrize("point", ["task.batch", "task.prepared"])
def test_a_worker_killed_when_its_slot_is_on_its_way_is_replaced(site, ground, point):
    mark = ground / "struck"
    child = site.start(Drill(point, epoch=MIDDLE, mark=str(mark)), has_workers=True, attempts=2)
    assert child.wait() == DONE, child.said
    assert mark.exists(), "the drill did not strike"
    site.check()


def test_an_epoch_that_fails_for_good_shows_nothing_of_what_was_sent(site):
    child = site.run(code=FAILED, trouble=Trouble(batch=MIDDLE, slot=1, times=9), attempts=1)
    assert "AbortedError" in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", ["decide.before", "decide.after", "commit.kafka.ending"])
def test_an_epoch_sent_early_that_expires_while_its_driver_is_frozen_is_sent_again(make_kafka_site, state, point):
    site = make_kafka_site(state, "eager", settings=SHORT)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    site.wait_until_expired()
    child.wake()
    assert site.ends(child) == DONE, child.said
    site.check()


@pytest.mark.every_case
@one_store
@pytest.mark.parametrize("point", [EARLY, "decide.before", "decide.after"])
def test_a_broker_killed_with_an_epoch_on_its_way_and_back_at_once_ends_with_each_record_once(
    mortal, make_mortal_site, state, point
):
    site = make_mortal_site(state, "eager")
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.kill()
    mortal.server.restart()
    child.wake()
    site.ends(child)
    assert "Traceback" not in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", [EARLY, "decide.after"])
def test_a_broker_that_stays_away_with_an_epoch_on_its_way_is_given_up(mortal, make_mortal_site, state, point):
    site = make_mortal_site(state, "eager", settings=SHORT, setup=IMPATIENT, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    mortal.kill()
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    assert "Traceback" not in child.said
    mortal.server.restart()
    site.check_whole_epochs()
    site.finish(setup="", tries=4)


@pytest.mark.every_case
@pytest.mark.parametrize("twin", ["careless", "forgetful"])
def test_a_broken_twin_is_caught(make_kafka_site, ground, twin):
    """One ends what it has sent with whatever was decided; one leaves it to the next transaction."""
    site = make_kafka_site(
        f"sqlite:///{ground}/state.db", "eager", sinks=f"tests.faults.kafka.outputs:{twin}", position=""
    )
    site.start(is_speculative=True, has_workers=True).wait()
    assert any("rows twice" in finding for finding in site.judge.final())
