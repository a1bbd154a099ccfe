"""A driver is killed at every crash point, over topics of a broker: each record once, nothing open, nothing seen that was not decided."""

import itertools

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.extent import one_store
from tests.faults.kafka.outputs import EXPIRED, OF_SHARDS, points_of

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
RECOVERY = [p for p in POINTS if p.startswith("recover.")]
ALONE = [p for p in points_of("one") if p not in RECOVERY]
OWN = [p for p in ALONE if p.startswith("commit.kafka.")]
# Every point is struck in every run, over the first layout that reaches it; `EXPIRED` is in test_expiry.py.
ALWAYS = {p: layout for layout in ("mix", "sharded", "prepared", "one") for p in points_of(layout)}
# Of the second sink, when the first one is done.
LATER = [p for p in points_of("mix") if p.startswith("commit.kafka.")] + [
    "commit.sink",
    "commit.apply",
    "commit.applied",
]


def in_an_epoch(*layouts):
    """Each crash point of a delivery; those that no run leaves out are marked."""
    return [
        pytest.param(layout, p, marks=[pytest.mark.every_case] if ALWAYS[p] == layout else [])
        for layout in layouts
        for p in points_of(layout)
        if p not in RECOVERY
    ]


def test_every_crash_point_that_is_not_of_a_database_is_struck_in_every_run():
    assert {p for p in POINTS if p not in ALWAYS} == {"task.sql.loaded", "task.sql.prepared", EXPIRED}


@one_store
@pytest.mark.parametrize(("layout", "point"), in_an_epoch("one"))
def test_a_driver_killed_in_an_epoch_delivers_it_once(make_kafka_site, state, layout, point):
    site = make_kafka_site(state, layout)
    site.survive(Drill(point, epoch=MIDDLE))


@one_store
@pytest.mark.parametrize(("layout", "point"), in_an_epoch("prepared", "sharded"))
def test_a_driver_killed_with_a_transaction_a_slot_delivers_all_once(make_kafka_site, state, layout, point):
    site = make_kafka_site(state, layout)
    site.survive(Drill(point, epoch=MIDDLE))


@one_store
@pytest.mark.parametrize("point", ["task.kafka.prepared", "commit.slot", "commit.apply", "commit.applied"])
def test_a_driver_killed_when_some_of_its_slots_are_done_delivers_all_once(make_kafka_site, state, point):
    site = make_kafka_site(state, "prepared")
    site.survive(Drill(point, epoch=MIDDLE, nth=2))


@one_store
@pytest.mark.parametrize("point", [*sorted(OF_SHARDS), "commit.slot", "commit.applied"])
def test_a_driver_killed_when_some_of_its_shards_are_sent_delivers_all_once(make_kafka_site, state, point):
    site = make_kafka_site(state, "sharded")
    site.survive(Drill(point, epoch=MIDDLE, nth=2))


@one_store
@pytest.mark.parametrize(("layout", "point"), in_an_epoch("mix", "ways"))
def test_a_driver_of_several_sinks_killed_in_an_epoch_delivers_it_once(make_kafka_site, state, layout, point):
    site = make_kafka_site(state, layout)
    site.survive(Drill(point, epoch=MIDDLE))


@one_store
@pytest.mark.parametrize("point", LATER)
def test_a_driver_killed_between_two_sinks_delivers_to_both_once(make_kafka_site, state, point):
    site = make_kafka_site(state, "mix")
    site.survive(Drill(point, epoch=MIDDLE, nth=2))


@one_store
@pytest.mark.parametrize(
    ("layout", "before"),
    [
        pytest.param(*case, marks=[pytest.mark.every_case] if case == ("one", "commit.kafka.ending") else [])
        for case in itertools.product(
            ["one", "prepared", "sharded"], ["decide.after", "commit.kafka.ending", "commit.applied"]
        )
    ],
)
def test_a_driver_killed_in_every_recovery_is_recovered_in_the_end(make_kafka_site, state, before, layout):
    """With a decision; with all of it in a transaction that is open; with all of it done."""
    site = make_kafka_site(state, layout)
    site.crash(Drill(before, epoch=MIDDLE))
    for point in RECOVERY:
        site.crash(Drill(point))
        site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", OWN)
def test_a_driver_killed_in_the_transaction_of_its_recovery_is_recovered(make_kafka_site, state, point):
    """The same epoch is replayed twice in vain, and in full by the third."""
    site = make_kafka_site(state)
    for _ in range(2):
        site.crash(Drill(point, epoch=MIDDLE))
        site.check_whole_epochs()
    site.finish()


@one_store
def test_a_run_over_a_finished_pipeline_writes_no_record(make_kafka_site, state):
    site = make_kafka_site(state)
    site.finish()
    before = site.judge.seen()
    again = site.run()
    assert [e["event"] for e in again.events] == ["started"]
    assert site.judge.seen() == before
    site.check()
