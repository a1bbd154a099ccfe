"""A broker killed right after it has answered to a commit: it may forget to tell the partitions, and then pakka does."""

import signal
from contextlib import closing

import pyarrow as pa
import pytest

from pakka import points
from pakka.sinks import _kafka_topic
from pakka.sinks._kafka_raw import Registry
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import Topics, need_kafka, running_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import Driver, values

TRIES = 96


class Died(BaseException):
    """The driver, together with its broker."""


@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.certify_only
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["spooled", "prepared"])
def test_a_commit_whose_markers_a_killed_broker_forgets_is_seen_once(way, tmp_path):
    """Taken out of its files, as in the unit tests of the mender, markers are missing for certain; this is how Kafka itself forgets them.

    It does so about every second time. Whatever it did, all rows are there once; at least once it has to have been the defect.
    """
    need_kafka()
    with running_kafka() as kafka:
        topic = Topics(kafka.bootstrap).create("refunds")
        sink = KafkaSink(kafka.bootstrap, topic=topic, way=way)

        def strike(point: str, _: int) -> None:
            if point == "commit.applied":
                kafka.nodes[0].signal(signal.SIGKILL)
                raise Died

        forgotten = epoch = 0
        while epoch < TRIES and not forgotten:
            driver = Driver(sink, tmp_path, fence=epoch + 1)
            records = driver.prepare(epoch, pa.record_batch({"id": [epoch]}))
            points.arm(strike)
            try:
                with pytest.raises(Died):
                    driver.commit(epoch, records)
            finally:
                points.arm(None)
            kafka.kill()
            kafka.restart()
            with closing(Onlooker(kafka.bootstrap)) as onlooker:
                onlooker.await_markers(sink.ledger)
            forgotten += len(_hanging(sink, driver, records[0]))
            heir = Driver(sink, tmp_path, fence=epoch + 2)
            assert heir.commit(epoch, records).is_final
            epoch += 2
        assert forgotten, f"the broker was killed {epoch // 2} times, and has forgotten nothing"
        assert sorted(value["id"] for value in values(kafka.bootstrap, topic, epoch // 2)) == list(range(0, epoch, 2))
    _kafka_topic.forget()


def _hanging(sink, driver, record):
    with closing(Registry("test", sink.address)) as registry:
        found = registry.described(record.detail.get("id", sink.transactional_id(driver.binding)))
        beside = sink.ledger_topic if sink.way == "spooled" else sink.slots_topic
        places = [(sink.topic, 0), (beside(driver.binding), 0)]
        return registry.opened(found.handle.producer_id, places)
