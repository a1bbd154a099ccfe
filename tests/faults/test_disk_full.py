"""No room: while staging, at the commit, and in the state store at the decision; on a small file system of its own."""

from pathlib import Path

import pytest

from pakka.testing.crash import Drill
from tests.faults.disk import fill, free

pytestmark = pytest.mark.faults

MIDDLE = 1
NO_ROOM = "No space left on device"


@pytest.fixture(params=["out", "spool"])
def small(request, ground, mount) -> Path:
    """A small file system under the outputs or under the spool of the first site."""
    return mount(ground / "site0" / request.param)


@pytest.fixture
def cramped(small, make_site, ground):
    return make_site(f"sqlite:///{ground}/state.db", tries=2)


@pytest.mark.parametrize(("point", "nth"), [("begin", 1), ("task.batch", 1), ("task.batch", 2), ("task.batch", 5)])
def test_a_disk_full_while_staging_aborts_the_epoch_and_names_the_place(cramped, small, point, nth):
    child = cramped.freeze(Drill(point, epoch=MIDDLE, nth=nth))
    fill(small)
    child.wake()
    assert child.wait() == 1, child.said
    assert NO_ROOM in child.said
    assert str(small) in child.said
    assert "make room" in child.said
    cramped.check_whole_epochs()
    free(small)
    assert cramped.judge.litter() == []
    cramped.finish()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_disk_full_at_the_commit_leaves_the_epoch_decided_and_the_next_run_finishes_it(make_site, mount, ground, nth):
    small = mount(ground / "site0" / "out")
    site = make_site(f"sqlite:///{ground}/state.db", tries=2)
    child = site.freeze(Drill("commit.sink", epoch=MIDDLE, nth=nth))
    fill(small)
    child.wake()
    assert child.wait() != 0, child.said
    assert f"epoch {MIDDLE} is decided" in child.said
    site.check_whole_epochs()
    free(small)
    site.finish()
    assert site.children[-1].events[0]["finished"] == 1


def test_a_disk_full_under_the_state_store_never_decides_half(make_site, mount, ground):
    """SQLite finds it out at COMMIT. Whether it was written is asked again, and while there is no room that stays open."""
    small = mount(ground / "state")
    site = make_site(f"sqlite:///{small}/state.db", tries=2)
    child = site.freeze(Drill("decide.before", epoch=MIDDLE))
    fill(small)
    child.wake()
    assert child.wait() in (1, 3), child.said
    assert "disk is full" in child.said or "disk I/O error" in child.said
    site.check_whole_epochs()
    free(small)
    site.finish()
