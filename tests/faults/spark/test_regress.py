"""The regress guard, over what Spark really writes: refused with the command that helps, or recovered without loss."""

import re
import shutil

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.site import DONE, FAILED, KILLED

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MIDDLE = 1


def forget_state(site):
    for path in site.root.glob("state.db*"):
        path.unlink()


def test_a_deleted_checkpoint_is_refused_until_a_person_accepts_a_new_one(make_site):
    site = make_site(batches=2)
    site.finish()
    delivered = sorted((site.root / "in").iterdir())
    shutil.rmtree(site.root / ".pakka" / "checkpoints" / "refunds")
    before = site.snapshot()
    refused = site.run(FAILED)
    assert refused.error["error"] == "RegressError"
    assert "is new, but epochs up to 1 were delivered by query" in refused.error["message"]
    [command] = re.findall(r"`pakka (reset [^`]*)`", refused.error["hint"])
    assert command == "reset refunds --checkpoint"
    assert site.snapshot().outputs == before.outputs
    # What a person would do: take away what was delivered, see what the reset would do, and do it.
    archive = site.root / "archive"
    archive.mkdir()
    for path in delivered:
        path.rename(archive / path.name)
    site.inputs.write(first=2, count=1)
    dry = site.call(*command.split())
    assert dry.wait() == DONE, site.story()
    assert site.call(*command.split(), "--yes").wait() == DONE, site.story()
    run = site.run()
    assert [e["epoch"] for e in run.events if e["event"] == "delivered"] == [2]
    for path in archive.iterdir():
        path.rename(site.root / "in" / path.name)
    assert site.judge.rows() == [], site.story()
    assert site.judge.litter() == []


@pytest.mark.parametrize(
    "point", ["decide.before", "decide.after", "commit.publish", "commit.after", "acknowledge.before"]
)
def test_a_lost_state_store_is_adopted_from_the_sinks_whatever_the_last_driver_was_doing(site, point):
    site.strike(Drill(point, epoch=MIDDLE), KILLED)
    forget_state(site)
    site.finish()


def test_a_lost_state_store_of_a_finished_pipeline_is_adopted_and_new_rows_follow(make_site):
    site = make_site(batches=2)
    site.finish()
    forget_state(site)
    site.inputs.write(first=2, count=1)
    run = site.run()
    assert [e["epoch"] for e in run.events if e["event"] == "delivered"] == [2]
    assert site.judge.rows() == [], site.story()
    assert site.judge.litter() == []
