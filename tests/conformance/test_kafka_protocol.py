"""Brokers that are older than those of the other tests, as far as one can be made to look so: what still works there, and what is told."""

import struct
from contextlib import closing

import pytest
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.broker_version_data import BrokerVersionData

from pakka.errors import RefusedError, SinkError
from pakka.kafka_transactions import desk
from pakka.sinks._kafka_probes import OLDEST
from pakka.sources.kafka import KafkaSource
from pakka.testing.contract import CASES
from pakka.testing.contract.trial import Trial
from tests.conformance.kafka import Ground, KafkaHarness, PreparedKafkaHarness
from tests.fixtures.kafka import need_kafka, relayed_kafka

pytestmark = pytest.mark.kafka

METADATA, NEWEST = 3, 13
NO_IDS = 9
"""The last version of Metadata without topic ids, which brokers before 2.8 have."""


@pytest.fixture(scope="module")
def broker():
    """Its transactions are those of brokers before 4.0, whose end does not raise the producer's epoch."""
    need_kafka()
    with (
        relayed_kafka(features={"transaction.version": 0}) as (kafka, proxy),
        closing(Ground(kafka, proxy)) as ground,
    ):
        yield ground


@pytest.fixture
def old_metadata(ground):
    """Clients that come in by the proxy are told that the broker knows no newer Metadata than those of 2.7."""

    def entry(newest: int) -> bytes:
        """Of a kind of request, its oldest and its newest version; no tags."""
        return struct.pack(">hhhb", METADATA, 0, newest, 0)

    ground.proxy.answer(entry(NEWEST), entry(NO_IDS))
    yield
    ground.proxy.answer(b"")


@pytest.mark.parametrize("harness", [KafkaHarness, PreparedKafkaHarness], ids=lambda harness: harness.name)
@pytest.mark.parametrize(
    "case",
    [
        "an_old_fence_cannot_commit",
        "another_process_commits_a_prepared",
        "abort_leaves_nothing",
        "commit_twice_leaves_one_copy",
        "a_lost_answer_is_unknown_and_ends_in_one_copy",
        "a_lost_request_is_not_called_committed",
    ],
)
def test_the_contract_is_kept_by_the_older_protocol_of_transactions(case, harness, ground, tmp_path):
    """Every case that ends transactions, or has them ended: what else the contract asks does not depend on the protocol."""
    own = harness(tmp_path)
    with desk(own.sink().address) as there:
        assert there.transaction_version() != 2
    CASES[case].run(own)


@pytest.mark.parametrize(
    "request_",
    [DescribeTransactionsRequest, ListTransactionsRequest, DescribeProducersRequest],
    ids=lambda r: r.__name__,
)
def test_the_oldest_brokers_that_are_taken_know_what_is_asked(request_):
    assert BrokerVersionData(broker_version=OLDEST).api_version(request_) == 0


def test_the_version_before_the_oldest_does_not_know_all_that_is_asked():
    before = BrokerVersionData(broker_version=(2, 8))
    with pytest.raises(IncompatibleBrokerVersion):
        before.api_version(DescribeTransactionsRequest)


@pytest.mark.usefixtures("old_metadata")
def test_a_source_topic_without_an_id_is_refused(ground):
    ground.create("no-ids")
    source = KafkaSource(ground.servers, "no-ids", format="raw")
    with pytest.raises(
        RefusedError, match="topic `no-ids` has no id: if it is deleted and made again, nobody can tell"
    ) as told:
        source._found()
    assert "too old, or work as older ones" in told.value.hint
    assert "a source 2.8" in told.value.hint


@pytest.mark.usefixtures("old_metadata")
def test_a_sink_refuses_a_topic_without_an_id_before_it_writes(ground, tmp_path):
    with Trial(KafkaHarness(tmp_path)) as trial:
        with pytest.raises(SinkError, match="has no id"):
            trial.driver(1)
        assert ground.read(trial.harness.topic) == []
