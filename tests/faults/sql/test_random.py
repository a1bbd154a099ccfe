"""Kill after kill, of driver, worker or server, at places and moments nobody chose.

A round is one pipeline. Its first drivers are killed, or lose a worker, or lose the server; the last one ends it. The seed in
a test's name repeats all but the exact moments::

    PAKKA_FAULTS_SEED=205 PAKKA_FAULTS_ROUNDS=1 make test PYTEST_ARGS='-s tests/faults/sql/test_random.py'
"""

import random

import pytest

from tests.faults.extent import SEED, count
from tests.faults.killer import LONG, Killer
from tests.faults.sql.outputs import points_of

pytestmark = [pytest.mark.faults, pytest.mark.slow]

KILLS = 4
"""Of a round: so many processes are really killed, however many drivers end before their time comes."""
ROUNDS = count(usual=2, whole=125)
"""Of each server; of both together 16 kills usually, and 1,000 in `make certify-sql`."""
LAYOUTS = ["prepared", "keyed", "mix", "mix", "upsert", "spooled"]


@pytest.mark.every_case
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(SEED, SEED + ROUNDS), ids=lambda n: f"seed{n}")
def test_any_row_of_kills_ends_with_each_row_once(base, make_sql_site, ground, number):
    chance = random.Random(number)
    layout = chance.choice(LAYOUTS)
    site = make_sql_site(f"sqlite:///{ground}/state.db", layout, workload=LONG)
    killer = Killer(site, base.server, ground, chance, points_of(layout))
    try:
        killer.row(KILLS)
    finally:
        print(f"seed {number}: {layout}, {', '.join(killer.story)}; killed {dict(killer.kills)}")
