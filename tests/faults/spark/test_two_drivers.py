"""Two drivers of one pipeline: one frozen and woken again, or both started at once."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.site import DONE, FAILED, FENCED

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MIDDLE = 1
# SQLite's write lock is held by whoever is frozen inside a commit to it, so after the decision there is no such sink.
FILES = ("refunds",)


def wake_and_expect_fenced(site, zombie):
    before = site.snapshot()
    zombie.wake()
    assert zombie.wait() == FENCED, site.story()
    assert zombie.error["error"] == "FencedError"
    assert "fence 1 lost to fence 2" in zombie.error["message"]
    assert "pakka status refunds" in zombie.error["hint"]
    zombie.wait_until_alone()
    assert site.snapshot() == before
    site.check()


@pytest.mark.parametrize(
    ("point", "sinks"),
    [
        ("begin", ("refunds", "audit")),
        pytest.param("decide.before", ("refunds", "audit"), marks=pytest.mark.core),
        ("decide.after", FILES),
        ("commit.publish", FILES),
        ("commit.after", FILES),
        ("acknowledge.before", FILES),
    ],
)
def test_a_driver_that_wakes_after_another_took_over_is_fenced_and_changes_nothing(make_site, point, sinks):
    site = make_site(sinks=sinks)
    zombie = site.freeze(Drill(point, epoch=MIDDLE))
    site.finish()
    wake_and_expect_fenced(site, zombie)


def test_two_drivers_started_at_once_deliver_each_row_once(site):
    """Which of them goes on, chance decides; and Spark itself may stop one that finds the other in its checkpoint."""
    pair = [site.start(), site.start()]
    codes = [driver.wait() for driver in pair]
    assert set(codes) <= {DONE, FAILED, FENCED}, site.story()
    assert FENCED in codes or codes == [DONE, DONE], site.story()
    site.check_whole_epochs()
    site.finish()
