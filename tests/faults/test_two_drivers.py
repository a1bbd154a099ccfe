"""Two drivers started at once on one pipeline: one goes on, the other stops, and each row is there once."""

import os
import signal
from collections.abc import Callable

import pytest

from pakka.model.epoch import Checkpoint
from pakka.spark import checkpoint
from pakka.testing.crash import Drill
from tests.faults.child import wait_until
from tests.faults.extent import count

pytestmark = pytest.mark.faults

DONE, FAILED, FENCED = 0, 1, 4
MULTIPLE = "Multiple streaming jobs detected"


@pytest.mark.parametrize("number", range(count(usual=10, whole=100)))
def test_of_two_drivers_started_at_once_one_goes_on(slips_site, ground, number):
    gate = ground / "gate"
    pair = [slips_site.start(gate=str(gate), is_parallel=True) for _ in range(2)]
    wait_until(lambda: all((ground / f"gate.{child.pid}").exists() for child in pair), "a driver does not start")
    gate.touch()
    loser, winner = sorted((child.wait() for child in pair), reverse=True)
    told = "\n".join(child.said for child in pair)
    slips_site.check_whole_epochs()
    if (loser, winner) == (DONE, DONE):
        # One was so late that the other had done it all.
        assert sorted(len(new_epochs(child)) for child in pair) == [0, slips_site.spec.workload.batches], told
    else:
        assert loser == FENCED, told
        # Spark stops the winner too, if the loser has written into the checkpoint before it was fenced.
        assert winner == DONE or (winner == FAILED and MULTIPLE in told), told
    slips_site.finish()


def new_epochs(child):
    return [event for event in child.events if event["event"] == "delivered" and event["is_new"]]


def test_an_owner_that_finds_an_older_driver_in_its_checkpoint_says_so_and_loses_nothing(site):
    """Both have delivered the same epoch. The old one acknowledges it first, so that Spark refuses to do it again."""
    old = site.freeze(Drill("acknowledge.before", epoch=1))
    owner = site.freeze(Drill("acknowledge.before", epoch=1))
    old.wake()
    assert old.wait() == FENCED, old.said
    owner.wake()
    assert owner.wait() == FAILED, owner.said
    assert MULTIPLE in owner.said
    site.check_whole_epochs()
    site.finish()


def test_a_driver_whose_query_finds_a_newer_one_in_its_checkpoint_is_fenced(site):
    """Spark only says that there are two. Which of them must stop, the state store knows."""
    old = site.freeze(Drill("recover.entered"))
    site.crash(Drill("begin", epoch=1))
    old.wake()
    assert old.wait() == FENCED, old.said
    site.finish()


def freeze_after_the_look() -> None:
    """In the driver: stand still between reading the checkpoint and all that follows from it."""
    read: Callable[[str], Checkpoint] = checkpoint.read

    def read_and_freeze(path: str) -> Checkpoint:
        seen = read(path)
        os.kill(os.getpid(), signal.SIGSTOP)
        return seen

    checkpoint.read = read_and_freeze


@pytest.mark.parametrize("point", ["task.batch", "decide.after", "acknowledge.before"])
def test_a_driver_that_was_overtaken_after_its_look_is_fenced_and_refuses_nothing(site, point):
    """It has seen an empty checkpoint. Had it looked before it took the fence, it would now take the fence away from a healthy
    driver, and then refuse to go on itself, because what it saw is older than what was delivered.
    """
    late = site.start(setup="tests.faults.test_two_drivers:freeze_after_the_look")
    late.wait_until_frozen()
    site.crash(Drill(point, epoch=1))
    late.wake()
    assert late.wait() == FENCED, late.said
    site.check_whole_epochs()
    site.finish()
