"""Kill after kill, of driver, worker or server, at places and moments nobody chose.

A round is one pipeline. Its first drivers are killed, or lose a worker, or lose the server; the last one ends it. The seed in
a test's name repeats all but the exact moments::

    PAKKA_FAULTS_SEED=205 PAKKA_FAULTS_ROUNDS=1 make test PYTEST_ARGS='-s tests/faults/sql/test_random.py'
"""

import random
import threading
from collections import Counter

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import KILLED
from tests.faults.extent import SEED, count
from tests.faults.sql.outputs import points_of
from tests.faults.workload import Workload

pytestmark = [pytest.mark.faults, pytest.mark.slow]

KILLS = 4
"""Of a round: so many processes are really killed, however many drivers end before their time comes."""
ROUNDS = count(usual=2, whole=125)
"""Of each server; of both together 16 kills usually, and 1,000 in `make certify-sql`."""
LAYOUTS = ["prepared", "keyed", "mix", "mix", "upsert", "spooled"]
VICTIMS = ["driver", "driver at a point", "worker", "server", "server at a point"]
LONG = Workload(batches=8)
"""So long that it is seldom over before the last kill."""
PATIENCE_S = 1.5
"""So long does a run of a few epochs take; a kill may come at any moment of it."""


class Killer:
    """Kills in one round what chance says, and counts."""

    def __init__(self, site, base, ground, chance) -> None:
        self.site, self.base, self.ground, self.chance = site, base, ground, chance
        self.points = points_of(site.outlet.layout)
        self.kills: Counter[str] = Counter()
        self.story: list[str] = []

    def kill(self, number: int) -> None:
        victim = self.chance.choice(VICTIMS)
        self.story.append(victim)
        {
            "driver": self.driver,
            "driver at a point": self.driver_at_a_point,
            "worker": self.worker,
            "server": self.server,
            "server at a point": self.server_at_a_point,
        }[victim](number)

    def driver(self, number: int) -> None:
        """At any moment of its life."""
        child = self.site.start(is_parallel=True, has_workers=self.chance.random() < 0.5)
        timer = threading.Timer(self.chance.random() * PATIENCE_S, child.process.kill)
        timer.start()
        code = child.wait()
        timer.cancel()
        assert code in (0, KILLED), child.said
        self.kills["driver"] += code == KILLED

    def driver_at_a_point(self, number: int) -> None:
        child = self.site.start(self._drill(self.points), is_parallel=True)
        code = child.wait()
        assert code in (0, KILLED), child.said
        self.kills["driver"] += code == KILLED

    def worker(self, number: int) -> None:
        mark = self.ground / f"worker{number}"
        # Each slot has a worker of its own, which reaches a point once or a few times.
        points = [p for p in self.points if p.startswith("task.")]
        drill = Drill(self.chance.choice(points), epoch=self.chance.choice([None, 1, 2, 3]), mark=str(mark))
        child = self.site.start(drill, is_parallel=True, has_workers=True, attempts=self.chance.choice([1, 2]))
        self.site.ends(child)
        self.kills["worker"] += mark.exists()

    def server(self, number: int) -> None:
        """At any moment of a run, which then goes on with a server that has forgotten its lines, or gives up."""
        child = self.site.start(is_parallel=True, attempts=2, tries=3)
        dead = threading.Event()
        threading.Timer(self.chance.random() * PATIENCE_S, lambda: (self.base.server.kill(), dead.set())).start()
        assert dead.wait(60)
        self.base.server.restart()
        self.site.ends(child)
        self.kills["server"] += 1

    def server_at_a_point(self, number: int) -> None:
        mark = self.ground / f"server{number}"
        child = self.site.start(self._drill(self.points, do="stop", mark=str(mark)), is_parallel=True, tries=3)
        while not mark.exists() and not child.is_over():
            child.process.join(0.005)
        self.base.server.kill()
        self.base.server.restart()
        if not child.is_over():
            child.wait_until_frozen()
            child.wake()
        self.site.ends(child)
        self.kills["server"] += 1

    def _drill(self, points: list[str], **more) -> Drill:
        return Drill(self.chance.choice(points), nth=self.chance.choice([1, 1, 2, 3, 5]), **more)


@pytest.mark.every_case
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(SEED, SEED + ROUNDS), ids=lambda n: f"seed{n}")
def test_any_row_of_kills_ends_with_each_row_once(base, make_sql_site, ground, number):
    chance = random.Random(number)
    layout = chance.choice(LAYOUTS)
    site = make_sql_site(f"sqlite:///{ground}/state.db", layout, workload=LONG)
    killer = Killer(site, base, ground, chance)
    try:
        while killer.kills.total() < KILLS:
            killer.kill(len(killer.story))
            site.check_whole_epochs()
        site.finish()
    finally:
        print(f"seed {number}: {layout}, {', '.join(killer.story)}; killed {dict(killer.kills)}")
