"""One seed, from the plan to the verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from pakka import points
from pakka.testing.simulation.judge import Judge
from pakka.testing.simulation.operator import Operator
from pakka.testing.simulation.place import Place
from pakka.testing.simulation.plan import Plan, draw
from pakka.testing.simulation.world import Failure, World


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a seed."""

    seed: int
    plan: Plan
    failure: Failure | None
    """The first rule that was broken; None: all of them held."""
    counts: Counter[str]
    steps: int
    history: tuple[tuple[float, str, str, object], ...]

    def lines(self) -> list[str]:
        """The history, for a person: time, who, what."""
        return [f"{at:9.3f}  {who:<10}  {what}  {_words(detail)}".rstrip() for at, who, what, detail in self.history]


def simulate(seed: int) -> Result:
    """Run one seed to its end. The same seed gives the same result, history and all."""
    chance = Random(seed)
    plan = draw(chance)
    world = World(plan, chance)
    judge = Judge(world)
    judge.places = {name: Place(name, kind, judge) for name, kind in plan.sinks}
    operator = Operator(world, judge, judge.places)
    world.on_step, world.on_freeze, world.baton.on_idle = operator.on_step, operator.on_freeze, operator.on_idle
    before = points._strike
    points.arm(world.at_point)
    try:
        world.baton.run()
    finally:
        points.arm(before)
    return Result(seed, plan, world.failure, world.counts, world.baton.steps, tuple(world.history))


def _words(detail: object) -> str:
    if isinstance(detail, tuple | list):
        return ", ".join(_words(d) for d in detail)
    return str(detail)
