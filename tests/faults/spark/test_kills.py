"""SIGKILL at every crash point, to each process there is: the next driver finishes, and each row is there once."""

from dataclasses import dataclass

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.spark.reader import watching
from tests.faults.spark.site import DONE, FAILED, KILLED

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MIDDLE = 1
"""The epoch to strike in: one is done, and one is to come."""


@dataclass(frozen=True)
class Victim:
    """Which process is killed, and how the driver ends by it."""

    deed: str
    code: int


DRIVER = Victim("kill", KILLED)
DRIVER_BY_TASK = Victim("kill-driver", KILLED)
JVM = Victim("kill-jvm", FAILED)
# Spark runs the slot again, and the driver does not notice.
WORKER = Victim("kill", DONE)

# These are struck where there is a server: in tests/faults/sql and tests/faults/kafka.
ON_SERVERS = [point for point in POINTS if ".sql." in point or ".kafka." in point]
TASK = [point for point in POINTS if point.startswith("task.") and point not in ON_SERVERS]
RECOVERY = [point for point in POINTS if point.startswith("recover.")]
DELIVERY = [point for point in POINTS if point not in (*TASK, *ON_SERVERS, *RECOVERY)]

CASES = {
    **{f"driver-{point}": (point, DRIVER) for point in DELIVERY},
    **{f"driver-{point}": (point, DRIVER_BY_TASK) for point in TASK},
    **{f"jvm-{point}": (point, JVM) for point in (*DELIVERY, *TASK)},
    **{f"worker-{point}": (point, WORKER) for point in TASK},
}
CORE = {"jvm-decide.after", "worker-task.batch"}
RECOVERIES = {
    **{f"driver-{point}": (point, DRIVER) for point in RECOVERY},
    **{f"jvm-{point}": (point, JVM) for point in RECOVERY},
}


def params(cases: dict[str, tuple[str, Victim]]) -> list:
    return [
        pytest.param(*case, id=name, marks=[pytest.mark.core] if name in CORE else []) for name, case in cases.items()
    ]


def test_every_crash_point_has_a_driver_and_a_jvm_to_kill():
    for victim in ("driver", "jvm"):
        assert {p for n, (p, _) in {**CASES, **RECOVERIES}.items() if n.startswith(victim)} == {*POINTS} - {*ON_SERVERS}


@pytest.mark.parametrize(("point", "victim"), params(CASES))
def test_a_process_killed_in_an_epoch_leaves_each_row_once(make_site, point, victim):
    sinks = ("refunds", "audit", "slips") if point == "commit.slot" else ("refunds", "audit")
    site = make_site(sinks=sinks)
    killed = site.strike(Drill(point, victim.deed, epoch=MIDDLE), victim.code)
    site.check_whole_epochs()
    site.finish()
    killed.wait_until_alone()
    site.check()


@pytest.mark.core
def test_a_driver_killed_before_an_epoch_is_in_sight_never_shows_a_part_of_it(site):
    """All the time somebody reads the outputs: before the kill, after it, and while the next driver recovers."""
    with watching(site) as sights:
        site.strike(Drill("commit.publish", epoch=MIDDLE), KILLED)
        site.run()
    assert sights.partial == []
    assert sights.count > 10
    site.check()


@pytest.mark.parametrize(("point", "victim"), params(RECOVERIES))
def test_a_process_killed_while_it_recovers_leaves_each_row_once(crashed, point, victim):
    crashed.strike(Drill(point, victim.deed), victim.code)
    crashed.check_whole_epochs()
    crashed.finish()
