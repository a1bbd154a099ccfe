"""A driver is killed at every crash point, over tables of a server: each row once, nothing in doubt, nothing torn."""

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.extent import IS_WHOLE, SEED, one_store
from tests.faults.sql.outputs import LAYOUTS, points_of

pytestmark = pytest.mark.faults

MIDDLE = 1
HERE = [p for p in POINTS if ".kafka." not in p]
RECOVERY = [p for p in HERE if p.startswith("recover.")]
DELIVERY = [p for p in HERE if p not in RECOVERY]
# Every point is struck in every run: on both servers in `make certify-sql`, else on one of them, and on the other one tomorrow.
SERVERS = [pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("mariadb", marks=pytest.mark.mysql)]
EACH = [
    pytest.param(*server.values, point, marks=server.marks)
    for n, point in enumerate(DELIVERY)
    for server in (SERVERS if IS_WHOLE else [SERVERS[(n + SEED) % 2]])
]
# Three slots a table: the second of each of these strikes between two of them.
LATER = [
    (point, nth)
    for point in ("task.sql.loaded", "task.sql.prepared", "commit.slot", "commit.apply", "commit.applied")
    for nth in (2, 3)
]
ONE_TABLE = [(layout, p) for layout in LAYOUTS if layout != "mix" for p in points_of(layout) if p not in RECOVERY]


def test_every_crash_point_is_reached():
    assert points_of("mix") == HERE


@pytest.mark.every_case
@one_store
@pytest.mark.parametrize(("base", "point"), EACH, indirect=["base"])
def test_a_driver_killed_in_an_epoch_delivers_it_once(mix, point):
    mix.crash(Drill(point, epoch=MIDDLE))
    mix.check_whole_epochs()
    mix.finish()


@one_store
@pytest.mark.parametrize(("point", "nth"), LATER)
def test_a_driver_killed_between_two_slots_delivers_both_once(mix, point, nth):
    mix.crash(Drill(point, epoch=MIDDLE, nth=nth))
    mix.check_whole_epochs()
    mix.finish()


@one_store
@pytest.mark.parametrize(("layout", "point"), ONE_TABLE)
def test_a_driver_of_one_table_killed_in_an_epoch_delivers_it_once(make_sql_site, state, layout, point):
    site = make_sql_site(state, layout)
    site.survive(Drill(point, epoch=MIDDLE))


BEFORE = ["task.sql.prepared", "decide.after", "commit.slot"]


@one_store
@pytest.mark.parametrize("before", BEFORE, ids=lambda name: f"after-{name}")
def test_a_driver_killed_in_every_recovery_is_recovered_in_the_end(mix, before):
    """With prepared transactions in the way of the fence that no decision names; with a decision; with half of it done."""
    mix.crash(Drill(before, epoch=MIDDLE, nth=1 if before == "decide.after" else 2))
    for point in RECOVERY:
        mix.crash(Drill(point))
        mix.check_whole_epochs()
    mix.finish()


@pytest.mark.certify_only
@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("point", RECOVERY)
@pytest.mark.parametrize("before", BEFORE, ids=lambda name: f"after-{name}")
def test_a_driver_killed_once_while_it_recovers_is_recovered(mix, before, point):
    mix.crash(Drill(before, epoch=MIDDLE, nth=1 if before == "decide.after" else 2))
    mix.crash(Drill(point))
    mix.check_whole_epochs()
    mix.finish()


def test_a_run_over_a_finished_pipeline_changes_no_row(mix):
    mix.finish()
    before = mix.judge.seen()
    again = mix.run()
    assert [e["event"] for e in again.events] == ["started"]
    assert mix.judge.seen() == before
    mix.check()
