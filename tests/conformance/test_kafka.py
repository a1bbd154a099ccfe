"""The Kafka sink keeps the contract on a real broker, whatever becomes of its line."""

import pytest

from pakka.testing import SinkContract
from tests.conformance.kafka import Ground, KafkaHarness
from tests.fixtures.kafka import need_kafka, relayed_kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def ground():
    need_kafka()
    with relayed_kafka() as (kafka, proxy):
        yield Ground(kafka, proxy)


class TestKafka(SinkContract):
    harness = KafkaHarness

    @pytest.fixture(autouse=True)
    def _ground(self, ground, monkeypatch):
        monkeypatch.setattr(KafkaHarness, "ground", ground)
