"""The Kafka sink on three brokers: the ledger has a copy on each, and one of them may be killed at any time."""

import pyarrow as pa
import pytest

from pakka.kafka_cluster import Cluster
from pakka.sinks import _kafka_topic
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import Topics, need_kafka, running_kafka
from tests.unit.sinks.kafka_kit import Driver, values

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ATTEMPTS = 10


def test_one_of_three_brokers_may_die_and_come_back(tmp_path):
    need_kafka()
    with running_kafka(nodes=3) as kafka:
        topic = Topics(kafka.bootstrap).create("refunds", partitions=6, copies=3)
        sink = KafkaSink(kafka.bootstrap, topic=topic)
        driver = Driver(sink, tmp_path)
        ledger = Cluster(sink.address).topic(sink.ledger_topic(driver.binding))
        assert ledger is not None
        assert ledger.replicas == 3
        assert Cluster(sink.address).topic_settings(ledger.name)["min.insync.replicas"] == "2"
        for epoch, node in enumerate(kafka.nodes):
            # One of them leads the ledger, and one coordinates the transaction.
            node.kill()
            records = driver.prepare(epoch, pa.record_batch({"id": [epoch]}))
            outcomes = [driver.commit(epoch, records)]
            while not outcomes[-1].is_final and len(outcomes) < ATTEMPTS:
                outcomes.append(driver.commit(epoch, records))
            assert outcomes[-1].is_final, outcomes
            kafka.restart()
        found = values(kafka.bootstrap, topic, len(kafka.nodes))
        assert sorted(value["id"] for value in found) == [0, 1, 2]
    _kafka_topic.forget()
