"""Kills in one round of a pipeline what chance says: a driver, a worker or the server, at a point or at any moment."""

import threading
from collections import Counter

from pakka.testing.crash import Drill
from tests.faults.child import KILLED
from tests.faults.workload import Workload

VICTIMS = ["driver", "driver at a point", "worker", "server", "server at a point"]
LONG = Workload(batches=8)
"""So long that it is seldom over before the last kill."""
PATIENCE_S = 1.5
"""So long does a run of a few epochs take; a kill may come at any moment of it."""


class Killer:
    """Kills in one round what chance says, and counts."""

    def __init__(self, site, server, ground, chance, points, victims=VICTIMS) -> None:
        self.site, self.server_process, self.ground, self.chance = site, server, ground, chance
        self.points, self.victims = points, victims
        self.kills: Counter[str] = Counter()
        self.story: list[str] = []

    def kill(self, number: int) -> None:
        victim = self.chance.choice(self.victims)
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
        child = self.site.start(is_parallel=True, has_workers="worker" in self.victims and self.chance.random() < 0.5)
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
        threading.Timer(self.chance.random() * PATIENCE_S, lambda: (self.server_process.kill(), dead.set())).start()
        assert dead.wait(60)
        self.server_process.restart()
        self.site.ends(child)
        self.kills["server"] += 1

    def server_at_a_point(self, number: int) -> None:
        mark = self.ground / f"server{number}"
        child = self.site.start(self._drill(self.points, do="stop", mark=str(mark)), is_parallel=True, tries=3)
        while not mark.exists() and not child.is_over():
            child.process.join(0.005)
        self.server_process.kill()
        self.server_process.restart()
        if not child.is_over():
            child.wait_until_frozen()
            child.wake()
        self.site.ends(child)
        self.kills["server"] += 1

    def _drill(self, points: list[str], **more) -> Drill:
        return Drill(self.chance.choice(points), nth=self.chance.choice([1, 1, 2, 3, 5]), **more)

    def row(self, kills: int) -> None:
        """Kill so many, look after each, and let the last driver end it."""
        while self.kills.total() < kills:
            self.kill(len(self.story))
            self.site.check_whole_epochs()
        self.site.finish()
