"""Tasks that fail: once, and Spark tries again; for good, and the epoch is aborted."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.site import DONE, FAILED

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MIDDLE = 1


@pytest.mark.parametrize("point", ["task.begin", "task.batch", "task.prepared"])
def test_a_task_that_fails_once_is_tried_again_and_its_rows_are_there_once(site, point):
    driver = site.strike(Drill(point, "fail", epoch=MIDDLE), DONE)
    assert [e["epoch"] for e in driver.events if e["event"] == "delivered"] == [0, 1, 2]
    site.check()


def test_a_task_that_fails_for_good_aborts_its_epoch_and_a_restart_goes_on(site):
    driver = site.start(Drill("task.prepared", "fail", epoch=MIDDLE))
    assert driver.wait() == FAILED, site.story()
    assert driver.error["error"] == "AbortedError"
    assert "epoch 1: a task failed for good" in driver.error["message"]
    assert "a drill struck at task.prepared" in driver.error["message"]
    assert "the epoch was aborted and nothing of it is visible" in driver.error["message"]
    assert "run again" in driver.error["hint"]
    site.check_whole_epochs()
    assert site.judge.litter() == []
    again = site.finish()
    assert [e["epoch"] for e in again.events if e["event"] == "delivered"] == [1, 2]


def test_a_run_after_a_run_that_finished_changes_nothing(site):
    site.finish()
    before = site.snapshot()
    again = site.run()
    assert [e["event"] for e in again.events] == ["started", "stopped"]
    assert site.snapshot().state["pakka_epoch"] == before.state["pakka_epoch"]
    site.check()
