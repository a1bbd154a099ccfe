"""Two drivers started at once on one pipeline: one goes on, the other stops, and each row is there once."""

import pytest

from tests.faults.child import wait_until
from tests.faults.extent import count

pytestmark = pytest.mark.faults

FENCED = 4


@pytest.mark.parametrize("number", range(count(usual=10, whole=100)))
def test_of_two_drivers_started_at_once_one_goes_on(slips_site, ground, number):
    gate = ground / "gate"
    pair = [slips_site.start(gate=str(gate), is_parallel=True) for _ in range(2)]
    wait_until(lambda: all((ground / f"gate.{child.pid}").exists() for child in pair), "a driver does not start")
    gate.touch()
    codes = sorted(child.wait() for child in pair)
    assert codes == [0, FENCED], "\n".join(child.said for child in pair)
    slips_site.check()
    slips_site.finish()
