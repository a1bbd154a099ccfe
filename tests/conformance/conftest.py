"""A broker for all that a module asks of Kafka, behind a line that can be cut. A module that needs other settings has a `broker` of its own."""

from contextlib import closing

import pytest

from tests.conformance.kafka import Ground, KafkaHarness
from tests.fixtures.kafka import need_kafka, relayed_kafka


@pytest.fixture(scope="module")
def broker():
    need_kafka()
    with relayed_kafka() as (kafka, proxy), closing(Ground(kafka, proxy)) as ground:
        yield ground


@pytest.fixture
def ground(broker, monkeypatch):
    monkeypatch.setattr(KafkaHarness, "ground", broker)
    return broker
