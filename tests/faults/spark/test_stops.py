"""A driver that is asked to stop ends between two epochs."""

import signal

import pytest

from tests.faults.spark.site import DONE

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("how", ["SIGTERM", "ctrl-c"])
def test_a_driver_asked_to_stop_ends_between_two_epochs(make_site, how):
    site = make_site(batches=12)
    driver = site.start()
    driver.wait_until_delivered(1)
    if how == "SIGTERM":
        driver.send(signal.SIGTERM)
    else:
        driver.interrupt_as_a_terminal_does()
    assert driver.wait() == DONE, site.story()
    stopped = driver.events[-1]
    assert (stopped["event"], stopped["reason"]) == ("stopped", "asked")
    assert stopped["epochs"] < 12
    driver.wait_until_alone()
    site.check_whole_epochs()
    assert site.judge.litter() == []
    site.finish()
