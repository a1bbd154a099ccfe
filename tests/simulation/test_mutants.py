"""The simulation catches every mutant of the protocol, by a seed that the protocol itself passes."""

import re

import pytest

from pakka.testing.simulation import simulate
from tests.simulation.mutants import MUTANTS

SEEDS_MOST = 1500
"""The rarest mutants show themselves in about one of a hundred seeds, and most in one of the first ten."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: re.sub(r"\W+", "-", str(m)))
def test_a_mutant_is_caught(mutant, record_property):
    with mutant.applied():
        for seed in range(SEEDS_MOST):
            result = simulate(seed)
            if result.failure is not None:
                record_property("caught", f"by seed {seed}: {result.failure.rule}")
                print(f"{mutant}: caught by seed {seed}: {result.failure.rule}: {result.failure.what}")
                break
    assert result.failure is not None, f"{mutant}: not caught by {SEEDS_MOST} seeds"
    assert simulate(seed).failure is None


def test_every_step_has_a_mutant():
    steps = {"S1", "S2", "S3", "S4", "E1", "E2", "E3", "E4", "E5", "E6", "K"}
    assert {mutant.step for mutant in MUTANTS} == steps
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_leaves_nothing_behind():
    before = simulate(11).lines()
    for mutant in MUTANTS:
        with mutant.applied():
            pass
    assert simulate(11).lines() == before
