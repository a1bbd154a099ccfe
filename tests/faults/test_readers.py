"""Somebody reads each output all the time, while drivers work and die: never is a part of an epoch to be seen."""

from contextlib import contextmanager

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import Child, wait_until
from tests.faults.judge import STANDARD
from tests.faults.reader import watch
from tests.faults.workload import Workload

pytestmark = pytest.mark.faults

LONG = Workload(batches=8)


@contextmanager
def watching(site, ground, sinks):
    """A reader for each of these sinks; what they told comes back when the block has ended."""
    stop, told = ground / "stop", {}
    workload = site.spec.workload
    readers = {
        sink: Child(
            watch, (str(site.root), sink, workload.batches, workload.rows, str(stop)), ground / f"reader-{sink}", None
        )
        for sink in sinks
    }
    try:
        yield told
        stop.touch()
        for sink, reader in readers.items():
            assert reader.wait() == 0, reader.said
            told[sink] = reader.events[0]
    finally:
        for reader in readers.values():
            reader.clear_away()


def wait_for_a_look(ground, sink):
    """Until a look has ended that was begun after this call: the second one from now."""
    note = ground / f"stop.{sink}"
    for _ in range(2):
        note.unlink(missing_ok=True)
        wait_until(note.exists, "nobody looks")


def test_readers_never_see_part_of_an_epoch(make_site, state, ground):
    site = make_site(state, workload=LONG)
    with watching(site, ground, STANDARD) as told:
        for epoch, point in enumerate(
            ["commit.move", "commit.publish", "commit.published", "commit.apply", "commit.applied"]
        ):
            site.crash(Drill(point, epoch=epoch), is_parallel=True)
            for sink in STANDARD:
                wait_for_a_look(ground, sink)
        site.finish(is_parallel=True)
    for sink, story in told.items():
        assert story["findings"] == [], sink
        # One that never looked in between would prove nothing.
        assert len(story["pictures"]) > 3, sink


def test_a_reader_of_a_sink_that_commits_slot_by_slot_sees_it(make_site, state, ground):
    """The reader can find parts: of such a sink there are some to see, and the contract says so."""
    site = make_site(state, sinks="tests.faults.outputs:with_slips")
    with watching(site, ground, ["slips"]) as told:
        driver = site.freeze(Drill("commit.slot", epoch=0, nth=2))
        wait_for_a_look(ground, "slips")
        driver.kill()
        site.finish()
    assert any("of batch 0 are in sight" in finding for finding in told["slips"]["findings"])
