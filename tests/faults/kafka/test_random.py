"""Kill after kill, of driver, worker or broker, at places and moments nobody chose. The seed in a test's name repeats all but the moments."""

import random

import pytest

from tests.faults.extent import SEED, count
from tests.faults.kafka.outputs import points_of
from tests.faults.killer import LONG, Killer

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.slow]

KILLS = 4
ROUNDS = count(usual=2, whole=250)
"""8 kills usually, and 1,000 in `make certify-kafka`."""
VICTIMS = [
    "driver",
    "driver",
    "driver at a point",
    "driver at a point",
    "worker",
    "worker",
    "server",
    "server at a point",
]


@pytest.mark.every_case
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(SEED, SEED + ROUNDS), ids=lambda n: f"seed{n}")
def test_any_row_of_kills_ends_with_each_record_once(mortal, make_mortal_site, ground, number):
    chance = random.Random(number)
    layout = chance.choice(["one", "mix", "prepared", "sharded", "ways"])
    site = make_mortal_site(f"sqlite:///{ground}/state.db", layout, workload=LONG)
    killer = Killer(site, mortal.server, ground, chance, points_of(layout), VICTIMS)
    try:
        killer.row(KILLS)
    finally:
        print(f"seed {number}: {layout}, {', '.join(killer.story)}; killed {dict(killer.kills)}")
