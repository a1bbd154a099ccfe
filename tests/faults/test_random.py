"""Crash after crash, at places nobody chose: a seeded walk over points, epochs and counts, with threads as in earnest."""

import random

import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.child import KILLED
from tests.faults.extent import SEED, count

pytestmark = pytest.mark.faults

ROUNDS = count(usual=15, whole=150)
ABORTED = 1


def drills(chance: random.Random, batches: int) -> list[Drill]:
    points = sorted(POINTS)
    return [
        Drill(
            chance.choice(points),
            epoch=chance.choice([None, *range(batches)]),
            nth=chance.choice([1, 1, 2, 3, 5]),
        )
        for _ in range(chance.randint(2, 4))
    ]


@pytest.mark.parametrize("number", range(SEED, SEED + ROUNDS), ids=lambda n: f"seed{n}")
def test_any_row_of_crashes_ends_with_each_row_once(slips_site, number):
    chance = random.Random(number)
    planned = drills(chance, slips_site.spec.workload.batches)
    # Never one that cannot strike at all: the first epoch of a new pipeline always begins.
    planned.insert(0, Drill("begin", nth=chance.randint(1, 3)))
    has_workers = chance.random() < 0.3
    for drill in planned:
        child = slips_site.start(drill, is_parallel=True, has_workers=has_workers, attempts=chance.choice([1, 2]))
        code = child.wait()
        # With workers a drill may kill one of them alone: the epoch is then aborted, or the slot run again.
        assert code in ({0, KILLED, ABORTED} if has_workers else {0, KILLED}), f"{drill}: {child.said}"
        slips_site.check_whole_epochs()
    assert slips_site.children[0].process.exitcode == KILLED
    slips_site.finish()
