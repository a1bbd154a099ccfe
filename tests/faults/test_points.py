"""A driver is killed at every crash point, and the next one finishes: each row once, nothing left behind."""

import ast
import itertools

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.extent import IS_WHOLE, one_store, sample
from tests.faults.workload import Workload
from tests.tidy.source import modules, tree

pytestmark = pytest.mark.faults

MIDDLE = 1
"""The epoch to strike in: others are done, and others are to come. It has an empty slot."""

RECOVERY = [p for p in POINTS if p.startswith("recover.")]
# Those of SQL sinks and of Kafka's are struck where there is a server: in tests/faults/sql and tests/faults/kafka.
ON_SERVERS = [p for p in POINTS if ".sql." in p or ".kafka." in p]
DELIVERY = [p for p in POINTS if p not in (*RECOVERY, *ON_SERVERS)]
# Three slots and three sinks, one after another: the first slot is prepared in all sinks at the third.
LATER = [
    *(("task.prepared", n) for n in (range(2, 10) if IS_WHOLE else (2, 3, 4, 9))),
    ("task.begin", 2),
    ("task.batch", 2),
    ("commit.sink", 2),
    ("commit.sink", 3),
    ("commit.slot", 2),
    ("commit.slot", 3),
    ("commit.move", 2),
    ("commit.publish", 2),
    ("commit.published", 2),
]
ENDS = list(itertools.product(["first", "last"], DELIVERY))


def kill_and_finish(make_site, state, drill):
    # No embedded sink commits slot by slot.
    site = make_site(
        state, sinks=f"tests.faults.outputs:{'with_slips' if drill.point == 'commit.slot' else 'standard'}"
    )
    site.crash(drill)
    site.check_whole_epochs()
    site.finish()


def test_every_crash_point_has_a_case():
    assert {*DELIVERY, *RECOVERY, *ON_SERVERS} == set(POINTS)


def test_every_crash_point_in_the_code_is_in_the_table():
    """One that is not could never be drilled; one that is only in the table could never strike."""
    calls = [call for path in modules() for call in ast.walk(tree(path)) if isinstance(call, ast.Call)]
    reached = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "reach" and isinstance(call.args[0], ast.Constant)
    }
    assert reached == set(POINTS)


@pytest.mark.parametrize("point", DELIVERY)
def test_a_driver_killed_in_an_epoch_delivers_it_once(make_site, state, point):
    kill_and_finish(make_site, state, Drill(point, epoch=MIDDLE))


@one_store
@pytest.mark.parametrize(("point", "nth"), LATER)
def test_a_driver_killed_further_into_an_epoch_delivers_it_once(make_site, state, point, nth):
    kill_and_finish(make_site, state, Drill(point, epoch=MIDDLE, nth=nth))


@one_store
@pytest.mark.parametrize(("end", "point"), sample(ENDS, 6))
def test_the_first_and_the_last_epoch_are_no_exception(make_site, state, end, point):
    kill_and_finish(make_site, state, Drill(point, epoch=0 if end == "first" else Workload().batches - 1))


def recover_and_finish(site, before, point):
    if before != "nothing":
        site.crash(Drill(before, epoch=MIDDLE, nth=2 if before == "commit.sink" else 1))
    site.survive(Drill(point))


@pytest.mark.parametrize("point", RECOVERY)
@pytest.mark.parametrize("before", ["task.prepared", "decide.after"], ids=lambda name: f"after-{name}")
def test_a_driver_killed_while_it_recovers_is_recovered(site, point, before):
    """With litter to abort, and with a decision to commit."""
    recover_and_finish(site, before, point)


@one_store
@pytest.mark.parametrize("point", RECOVERY)
@pytest.mark.parametrize("before", ["nothing", "commit.sink"], ids=lambda name: f"after-{name}")
def test_a_driver_killed_while_it_recovers_little_or_much_is_recovered(site, point, before):
    """A new pipeline, and a decision that one sink has committed and the others have not."""
    recover_and_finish(site, before, point)


@one_store
def test_a_driver_killed_in_every_recovery_is_recovered_in_the_end(slips_site):
    slips_site.crash(Drill("commit.slot", epoch=MIDDLE, nth=2))
    for point in RECOVERY:
        slips_site.crash(Drill(point))
        slips_site.check_whole_epochs()
    slips_site.finish()


def test_a_run_over_a_finished_pipeline_changes_nothing(site):
    site.finish()
    before = site.snapshot()
    again = site.run()
    assert [e["event"] for e in again.events] == ["started"]
    after = site.snapshot()
    assert after.state["pakka_epoch"] == before.state["pakka_epoch"]
    site.check()
