"""Somebody resolves what is in doubt, in the simulated world: beside drivers that run, crash and wake up, and over lost answers.

Every other start is no driver but a person at the desk, who takes over whatever runs. All rules must hold as they do
without: a twin that resolves by guess breaks them.
"""

from collections import Counter
from random import Random

import pytest

from pakka.contract.state import Owner
from pakka.coordinator import recovery
from pakka.coordinator.doubt import Desk
from pakka.coordinator.resolve import Do, Resolve
from pakka.errors import UnavailableError
from pakka.testing.simulation import simulate
from pakka.testing.simulation.driver import Driver, SeededPool
from pakka.testing.simulation.judge import FINAL, LITTER, UNDECIDED
from pakka.testing.simulation.spark import PIPELINE
from pakka.testing.simulation.world import STORE, World
from tests.simulation.mutants import _presume_commit, _sweep_all

SEEDS = 150
SEEDS_OF_TWINS = 1500
"""A person has to come after a decision and before its commit, which about one of a hundred seeds shows."""


_abort_undecided = recovery.abort_undecided


def is_at_desk(name: str, world: World) -> bool:
    """Every other start, but not once faults have stopped, when a pipeline has to come to its end."""
    return not world.is_calm and int(name.rpartition(" ")[2]) % 2 == 0


def resolving(seen: Counter[str]):
    """Instead of a driver's run: resolve, and leave."""
    drive = Driver._run

    def run(self: Driver) -> None:
        world, coordinator = self.world, self.coordinator
        if not is_at_desk(self.name, world):
            drive(self)
            return
        chance = Random(f"{self.name} {world.plan}")
        desk = Desk(
            PIPELINE, coordinator.sinks, None, "spool", world.clock, lambda _: chance.choice((True, False, None))
        )
        owner = Owner(self.name, len(self.name), world.now_s)
        pool = SeededPool(world.chance)
        at_desk = Resolve(desk, coordinator.store, owner, world.sleep, pool, coordinator.retry)
        done = at_desk.resolve(self.spark.look, take_over=True)
        seen.update({str(deed.do): deed.records or 1 for deed in done.deeds})
        seen["resolved" if done.fence else "nothing in doubt"] += 1
        if done.fence is not None:
            self.spark.judge.starts(done.fence, self.name)
            if self.store_life == world.lives[STORE]:
                self.spark.judge.recovers(done.fence)
        raise UnavailableError("the desk is left; a driver has to be started")

    return run


@pytest.fixture
def desk(monkeypatch) -> Counter[str]:
    seen: Counter[str] = Counter()
    monkeypatch.setattr(Driver, "_run", resolving(seen))
    return seen


def test_every_rule_holds_when_somebody_resolves_beside_the_drivers(desk):
    for seed in range(SEEDS):
        result = simulate(seed)
        assert result.failure is None, "\n".join([f"seed {seed}: {result.failure}", *result.lines()])
    counted = {str(do) for do in Do} | {"resolved", "nothing in doubt"}
    assert counted - set(desk) == set(), desk


def guessing(guess):
    """Drivers recover as they should; only the person guesses."""

    def settle(stations, decided, fence):
        world = stations[0].committer.world
        is_guessed = is_at_desk(world.baton.current.name, world)
        return (guess if is_guessed else _abort_undecided)(stations, decided, fence)

    return settle


GUESSES = {
    "what is prepared is committed": (_presume_commit, UNDECIDED),
    "what is undecided is left": (lambda *_: (), LITTER),
    "what is decided is aborted": (_sweep_all, FINAL),
}


@pytest.mark.parametrize(("guess", "rule"), GUESSES.values(), ids=GUESSES)
def test_a_twin_that_resolves_by_guess_breaks_a_rule(desk, monkeypatch, guess, rule):
    monkeypatch.setattr(recovery, "abort_undecided", guessing(guess))
    failures = (simulate(seed).failure for seed in range(SEEDS_OF_TWINS))
    assert any(failure is not None and failure.rule == rule for failure in failures)
