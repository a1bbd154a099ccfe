"""A driver is frozen, some of them with an open transaction; the next one takes over; the first wakes, and writes nothing."""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.kafka.outputs import OF_SHARDS
from tests.faults.watched import FENCED

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
INSIDE = ["commit.kafka.begun", "commit.kafka.sending", "commit.apply", "commit.kafka.offsets", "commit.kafka.ending"]
FREEZING = ["task.batch", "prepared", "decide.before", "decide.after", *INSIDE, "commit.applied", "commit.after"]
OF_SLOTS = [
    "task.kafka.begun",
    "task.kafka.sent",
    "task.kafka.prepared",
    "prepared",
    "decide.before",
    "decide.after",
    "commit.slot",
]
OF_SLOTS += ["commit.apply", "commit.applied", "commit.kafka.ending", "commit.after"]
MUST = ["commit.kafka.sending", "commit.kafka.ending"]


def wake_and_expect_fenced(zombie):
    zombie.wake()
    assert zombie.wait() == FENCED, zombie.said
    assert "lost to fence" in zombie.said


def outlive(site, point):
    """Frozen, overtaken by one that does it all, and woken."""
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    site.check_whole_epochs()
    site.finish()
    before = site.snapshot()
    wake_and_expect_fenced(zombie)
    # Not one record more, not even one that is never committed.
    assert site.snapshot() == before
    site.check()


@pytest.mark.every_case
@one_store
@pytest.mark.parametrize("point", MUST)
def test_a_driver_frozen_in_its_transaction_wakes_when_all_is_done_and_writes_nothing(make_kafka_site, state, point):
    outlive(make_kafka_site(state), point)


@one_store
@pytest.mark.parametrize("point", [p for p in [*FREEZING, "commit.kafka.sent"] if p not in MUST])
def test_a_driver_that_wakes_when_all_is_done_is_fenced_and_writes_nothing(make_kafka_site, state, point):
    outlive(make_kafka_site(state), point)


@one_store
@pytest.mark.parametrize("point", FREEZING)
def test_a_driver_of_several_sinks_that_wakes_when_all_is_done_writes_nothing(make_kafka_site, state, point):
    outlive(make_kafka_site(state, "mix"), point)


@one_store
@pytest.mark.parametrize("point", OF_SLOTS)
def test_a_driver_frozen_with_slots_open_in_kafka_wakes_when_all_is_done_and_changes_nothing(
    make_kafka_site, state, point
):
    site = make_kafka_site(state, "prepared")
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    site.check_whole_epochs()
    site.finish()
    wake_and_expect_fenced(zombie)
    site.check()


@one_store
@pytest.mark.parametrize(
    "point",
    ["decide.after", "commit.slot", *sorted(OF_SHARDS), "commit.applied", "commit.kafka.ending", "commit.after"],
)
def test_a_driver_frozen_while_its_epoch_is_sent_in_shards_wakes_when_all_is_done_and_changes_nothing(
    make_kafka_site, state, point
):
    outlive(make_kafka_site(state, "sharded"), point)


HALFWAY = ["recover.fenced", "recover.raised", "recover.committed", "begin", "decide.before", "decide.after", *INSIDE]
PAIRS = [pair for pair in itertools.product(FREEZING, HALFWAY) if pair[1] != "recover.fenced" or pair[0] not in INSIDE]


@one_store
@pytest.mark.parametrize(("point", "halfway"), PAIRS)
def test_a_driver_that_wakes_while_the_next_one_is_at_work_is_fenced(make_kafka_site, state, point, halfway):
    """Both stand at a chosen place. The old one goes first and must fail; the new one goes on, whatever it was disturbed by."""
    site = make_kafka_site(state)
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    heir = site.freeze(Drill(halfway))
    wake_and_expect_fenced(zombie)
    site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    site.check()


@one_store
@pytest.mark.parametrize("point", INSIDE)
def test_a_driver_that_wakes_before_the_next_one_has_the_id_may_end_its_epoch_and_no_more(
    make_kafka_site, state, point
):
    """The fence is taken in the state store, and Kafka does not know. What was decided is committed, by whichever of the two."""
    site = make_kafka_site(state)
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    heir = site.freeze(Drill("recover.fenced"))
    wake_and_expect_fenced(zombie)
    site.check_whole_epochs()
    heir.wake()
    assert heir.wait() == 0, heir.said
    site.check()


@one_store
def test_three_drivers_frozen_one_after_another_wake_together_and_write_nothing(make_kafka_site, state):
    site = make_kafka_site(state)
    zombies = [site.freeze(Drill("commit.kafka.sending", epoch=MIDDLE)) for _ in range(3)]
    site.finish()
    before = site.snapshot()
    for zombie in zombies:
        zombie.wake()
    for zombie in zombies:
        assert zombie.wait() == FENCED, zombie.said
    assert site.snapshot() == before
    site.check()
