"""What becomes of the topic that a loop on Spark reads, while it runs: nothing of it is passed over in silence.

From Kafka to Kafka, read all the time by a consumer of committed records: each settlement has its effect once, or stops the pipeline.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.loop import GOOD, LoopSite, is_dead, reading
from tests.faults.spark.process import Driver
from tests.faults.spark.site import DONE, FAILED
from tests.integration.kafka_kit import Clients

pytestmark = [
    pytest.mark.faults,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

ASKED_AHEAD_S = 5.0
"""A consumer asks for the next records before anybody wants them, and a broker keeps that question for half a second."""


class RunningSite(LoopSite):
    """A loop that goes on for ever, and what it reads comes while it runs: the first batch is there."""

    environment: ClassVar[Mapping[str, str]] = {"PAKKA_IMPATIENT": "1"}
    is_ready = False

    def _pipeline(self) -> dict[str, Any]:
        return {**super()._pipeline(), "trigger": {"interval": "200ms"}}

    @property
    def clients(self) -> Clients:
        return Clients(self.topics.bootstrap)

    @property
    def settlements(self) -> str:
        return self.topics.name("settlements")

    def wait_until_told(self, driver: Driver, batch: int) -> None:
        """Until it has told that all is delivered, up to the last record of a batch."""
        lines = [line for line in self.inputs.read() if line.batch <= batch]
        wanted = sum(1 if is_dead(line) else len(GOOD) for line in lines)

        def told() -> int:
            return sum(sum(e["rows_out"].values()) for e in driver.events if e["event"] == "delivered")

        driver.wait_for(lambda: told() >= wanted, f"batch {batch} was delivered")

    def stop(self, driver: Driver) -> None:
        """Then each record must be there once. How many epochs it took, time decides."""
        driver.send(signal.SIGTERM)
        assert driver.wait() == DONE, self.story()
        findings = [*self.judge.rows(), *self.judge.litter()]
        assert findings == [], self.story(findings)

    def in_sight(self) -> Counter[int]:
        """How many records of each batch are in the outputs."""
        values = [value for topic in GOOD for _, value in self.onlooker.read(self.topics.name(topic))]
        return Counter(json.loads(value)["batch"] for value in values)


@pytest.fixture
def loop(make_loop) -> RunningSite:
    return make_loop(RunningSite)


def notices(driver: Driver, about: str) -> list[str]:
    return [e["message"] for e in driver.events if e["event"] == "noticed" and e["about"] == about]


def test_records_that_retention_takes_from_a_running_loop_stop_it(loop):
    """Between two epochs, so that nobody has read them. No run after it goes on without them either."""
    with reading(loop) as findings:
        driver = loop.freeze(Drill("acknowledge.before", epoch=0))
        time.sleep(ASKED_AHEAD_S)
        loop.send(1)
        loop.send(2)
        loop.clients.forget(loop.settlements, 1, before=180)
        driver.wake()
        for run in (driver, loop.start()):
            assert run.wait() == FAILED, loop.story()
            assert run.error["error"] == "RegressError"
            assert (
                "partition 1: the records from offset 120 to 179 are gone before they were read" in run.error["message"]
            )
    assert findings == []
    assert {*loop.in_sight()} == {0}


def test_partitions_that_a_running_loop_gets_are_told_of_and_read(loop):
    with reading(loop) as findings:
        driver = loop.start()
        loop.wait_until_told(driver, 0)
        loop.clients.grow(loop.settlements, 4)
        loop.send(1, (2, 3))
        loop.wait_until_told(driver, 1)
        [notice] = notices(driver, "partitions")
        loop.send(2, range(4))
        loop.wait_until_told(driver, 2)
        loop.stop(driver)
    assert findings == []
    assert "had 2 partitions and has 4; the new ones are read from their beginning" in notice


def test_a_transaction_that_hangs_upstream_of_a_running_loop_is_told_of(loop):
    """The partition beside it is read on; what is behind it comes when it has ended, and nothing of itself."""
    theirs = [{"id": -1, "batch": 1, "merchant": "nobody", "amount": 1}]
    with reading(loop) as findings:
        driver = loop.start()
        loop.wait_until_told(driver, 0)
        with loop.clients.transaction(loop.settlements, theirs, "hanging", partition=0) as hanging:
            loop.send(1)
            driver.wait_for(lambda: notices(driver, "stalled") != [], "it told what holds it back")
            driver.wait_until_delivered(1)
            held = loop.in_sight()[1]
            hanging.abort_transaction(30)
        loop.wait_until_told(driver, 1)
        loop.send(2)
        loop.wait_until_told(driver, 2)
        loop.stop(driver)
    assert findings == []
    assert 0 < held < loop.in_sight()[1]
    [notice] = notices(driver, "stalled")
    assert (
        "partition 0: a transaction that some producer has left open holds back everything from offset 120 on" in notice
    )
