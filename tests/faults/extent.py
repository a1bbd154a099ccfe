"""How much of a large family of cases to run: all of it in `make certify`, a sample that moves with every commit else."""

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_WHOLE = os.environ.get("PAKKA_CERTIFY") == "1"

STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
one_store = pytest.mark.parametrize("state", STORES if IS_WHOLE else STORES[:1], indirect=True)
"""For cases that have little to do with the state store, and are many: over both stores only in `make certify`."""


def _seed() -> int:
    """PAKKA_FAULTS_SEED, or the number of commits: the same on every worker of a run, another one tomorrow."""
    if given := os.environ.get("PAKKA_FAULTS_SEED"):
        return int(given)
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(counted.stdout)


SEED = _seed()
"""It stands in the names of the tests that depend on it; PAKKA_FAULTS_SEED repeats them."""


def sample(cases: Sequence[T], size: int) -> list[T]:
    """The cases of this run, in their order."""
    if IS_WHOLE or size >= len(cases):
        return list(cases)
    kept = set(random.Random(SEED).sample(range(len(cases)), size))
    return [case for number, case in enumerate(cases) if number in kept]


def count(usual: int, whole: int) -> int:
    """How many rounds; PAKKA_FAULTS_ROUNDS overrules both."""
    return int(os.environ.get("PAKKA_FAULTS_ROUNDS", whole if IS_WHOLE else usual))
