"""The protocol holds in a simulated world, and that world is as bad as it claims to be."""

import os
import re
import subprocess
import sys

import pytest

from pakka.testing.simulation import simulate
from pakka.testing.simulation.__main__ import main
from pakka.testing.simulation.plan import Fault
from pakka.testing.simulation.report import REACHABLE, Tally, failure_lines
from pakka.testing.simulation.source import Batch, rows_of

SEEDS = 400


@pytest.fixture(scope="module")
def tally() -> Tally:
    tally = Tally()
    for seed in range(SEEDS):
        tally.add(simulate(seed))
    return tally


def test_every_rule_holds_for_every_seed(tally):
    told = [
        line for result in tally.failures[:2] for line in failure_lines(result, f"make simulate SEED={result.seed}")
    ]
    assert not tally.failures, "\n".join(told)


def test_the_seeds_reach_every_kind_of_fault(tally):
    assert [fault.value for fault in Fault if not tally.counts[fault.value]] == []


def test_the_seeds_reach_every_crash_point(tally):
    assert [point for point in REACHABLE if not tally.counts[f"reach {point}"]] == []
    crashed = [point for point in REACHABLE if tally.counts[f"crash at {point}"]]
    assert len(crashed) > len(REACHABLE) * 2 // 3


@pytest.mark.parametrize(
    "seen",
    [
        "recoveries",
        "decisions finished by recovery",
        "records aborted by recovery",
        "epochs adopted",
        "epochs reopened",
        "sinks that held an epoch",
        "refusals mended",
        "refusals of other slots",
        "late task refused",
        "driver: FencedError",
        "driver: RegressError",
        "driver: UnknownOutcomeError",
        "driver: AbortedError",
        "driver: done",
    ],
)
def test_the_seeds_make_the_protocol_show(tally, seen):
    assert tally.counts[seen] > 0


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_the_same_seed_gives_the_same_history(seed):
    first, again = simulate(seed), simulate(seed)
    assert first.lines() == again.lines()
    assert first.counts == again.counts


def test_the_same_seed_gives_the_same_history_in_every_process():
    """Python orders sets of strings anew in every process; nothing here may depend on it."""
    command = [sys.executable, "-m", "pakka.testing.simulation", "--seed", "42"]
    shown = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, timeout=60, check=True)
        for salt in ("1", "2")
    ]
    assert shown[0].stdout == shown[1].stdout


def test_other_seeds_give_other_histories():
    assert len({tuple(simulate(seed).lines()) for seed in range(10)}) == 10


def test_a_seed_is_shown_with_its_history():
    told: list[str] = []
    assert main(["--seed", "5"], told.append) == 0
    lines = "".join(told).splitlines()
    assert lines[-1] == "seed 5: every rule held"
    assert all(
        re.match(r" +\d+\.\d{3}  (driver \d+|operator|network|executor|world|sink)", line) for line in lines[:-1]
    )


def test_many_seeds_end_in_a_summary(capsys):
    told: list[str] = []
    assert main(["--first", "7", "--seeds", "3"], told.append) == 0
    text = "".join(told)
    assert text.startswith("3 seeds, ")
    for part in ("driver crashed", "crashes at each point", "recoveries"):
        assert part in text
    assert "3/3 seeds" in capsys.readouterr().err


def test_every_row_has_its_place():
    batch = Batch(0, 35, partitions=3).on(cores=3)
    sinks = ("lake", "audit", "dead_letters")
    lake, audit, dead = (rows_of(batch, sink) for sink in sinks)
    count = batch.count()
    assert (len(lake), len(dead)) == (count.good, count.dead)
    assert set(audit) < set(lake)
    assert count.adds_up
    assert count.dropped == 5
    slots = [row for number in range(3) for row in rows_of(batch, "lake", number)]
    assert sorted(slots) == sorted(lake)


def test_more_cores_split_a_batch_into_more_slots_of_which_some_are_the_same():
    batch = Batch(0, 6, partitions=3)
    fewer, more = batch.on(cores=2), batch.on(cores=8)
    assert [fewer.slot(number) for number in range(fewer.slots)] == [(0, 3), (1, 2, 4, 5)]
    assert [more.slot(number) for number in range(more.slots)] == [(0, 3), (1, 4), (2, 5)]
    assert fewer.digest == more.digest
