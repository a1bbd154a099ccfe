"""A driver is killed at every crash point, and the next one finishes: each row once, nothing left behind."""

import ast

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.extent import IS_WHOLE
from tests.tidy.source import modules, tree

pytestmark = pytest.mark.faults

MIDDLE = 1
"""The epoch to strike in: others are done, and others are to come. It has an empty slot."""

RECOVERY = sorted(p for p in POINTS if p.startswith("recover."))
# Three slots and three sinks, one after another: the first slot is prepared in all sinks at the third.
SLOT_BY_SLOT = [("task.prepared", n) for n in (range(2, 10) if IS_WHOLE else (2, 3, 4, 9))]
DELIVERY = [
    *((point, 1) for point in POINTS if point not in RECOVERY),
    *SLOT_BY_SLOT,
    ("task.batch", 2),
    ("task.begin", 2),
    ("commit.sink", 2),
    ("commit.sink", 3),
    ("commit.slot", 2),
    ("commit.slot", 3),
    ("commit.move", 2),
    ("commit.publish", 2),
    ("commit.published", 2),
]


def needs_slips(point: str) -> bool:
    return point == "commit.slot"


def test_every_crash_point_has_a_case():
    assert {point for point, _ in DELIVERY} | set(RECOVERY) == set(POINTS)


def test_every_crash_point_in_the_code_is_in_the_table():
    """One that is not could never be drilled; one that is only in the table could never strike."""
    calls = [call for path in modules() for call in ast.walk(tree(path)) if isinstance(call, ast.Call)]
    reached = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "reach" and isinstance(call.args[0], ast.Constant)
    }
    assert reached == set(POINTS)


@pytest.mark.parametrize(("point", "nth"), DELIVERY)
def test_a_driver_killed_in_an_epoch_delivers_it_once(site, slips_site, point, nth):
    place = slips_site if needs_slips(point) else site
    place.crash(Drill(point, epoch=MIDDLE, nth=nth))
    place.check_whole_epochs()
    place.finish()


@pytest.mark.parametrize("point", ["begin", "task.batch", "decide.before", "decide.after", "acknowledge.before"])
@pytest.mark.parametrize("epoch", ["first", "last"])
def test_the_first_and_the_last_epoch_are_no_exception(site, point, epoch):
    number = 0 if epoch == "first" else site.spec.workload.batches - 1
    site.crash(Drill(point, epoch=number))
    site.check_whole_epochs()
    site.finish()


@pytest.mark.parametrize("point", RECOVERY)
@pytest.mark.parametrize(
    "before", ["nothing", "task.prepared", "decide.after", "commit.sink"], ids=lambda name: f"after-{name}"
)
def test_a_driver_killed_while_it_recovers_is_recovered(site, point, before):
    """With a new pipeline, with litter to abort, with a decision to commit, and with a decision half committed."""
    if before != "nothing":
        site.crash(Drill(before, epoch=MIDDLE, nth=2 if before == "commit.sink" else 1))
    site.crash(Drill(point))
    site.check_whole_epochs()
    site.finish()


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
