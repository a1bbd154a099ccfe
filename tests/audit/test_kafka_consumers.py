"""`pakka audit --consumers GROUP... --servers`: what a live broker knows of groups and of transactional ids."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pakka.audit import consumer_group
from pakka.audit.consumers import lint
from pakka.contract.audit import Severity
from pakka.errors import ConfigError, UnavailableError
from tests.fixtures.kafka import Kafka, need_kafka, running_kafka
from tests.unit.sinks.kafka_kit import PATIENCE_S

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_server() -> Iterator[Kafka]:
    """Of this module alone: of all the transactional ids of a cluster, the report names the most frequent form."""
    need_kafka()
    with running_kafka() as kafka:
        yield kafka


def producer_of(topics, name):
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topics.name(name)})
    producer.init_transactions(PATIENCE_S)
    return producer


def commit_offset(topics, topic, offset):
    """As a group does that has read so far."""
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": topics.name("group"), "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


def test_a_group_that_reads_further_than_what_is_committed_is_caught(kafka_topics):
    topic, group = kafka_topics.create("refunds"), kafka_topics.name("group")
    producer = producer_of(kafka_topics, "writer")
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"x")
    producer.flush(PATIENCE_S)
    commit_offset(kafka_topics, topic, 3)
    report = lint([group], kafka_topics.bootstrap, None)
    assert report.failed == [f"isolation.level of {group}"]
    assert report.findings[0].value == f"read_uncommitted: at offset 3 of partition 0 of {topic}"
    assert "what is committed ends at 0" in report.findings[0].why
    producer.abort_transaction(PATIENCE_S)
    commit_offset(kafka_topics, topic, 0)
    found = lint([group], kafka_topics.bootstrap, None).findings[0]
    assert (found.severity, found.value) == (Severity.WARNS, "not known")
    assert "a broker does not know it" in found.why


def test_servers_may_be_named_as_a_url(kafka_topics):
    report = lint([], f"kafka://{kafka_topics.bootstrap}", None)
    assert report.target == f"kafka://{kafka_topics.bootstrap}"


def test_a_group_that_is_not_there_is_told(kafka_topics):
    found = lint(["nobody"], kafka_topics.bootstrap, None).findings[0]
    assert (found.severity, found.value) == (Severity.WARNS, "no group")


def test_many_ids_of_one_form_are_named_and_those_of_audits_are_not(kafka_topics, monkeypatch):
    monkeypatch.setattr(consumer_group, "MANY", 3)
    for number in range(3):
        producer_of(kafka_topics, f"pakka.audit.6a_{number}.audit-6a_{number}.audit")
        producer_of(kafka_topics, f"out-{number}{number}{'ab' * number}")
    (found,) = [f for f in lint([], kafka_topics.bootstrap, None).findings if f.name == "transactional ids"]
    assert found.severity is Severity.WARNS
    assert found.value.startswith("3 like ")
    assert found.value.endswith("out-*")


def test_parts_of_a_program_that_are_counted_are_fine(kafka_topics, monkeypatch):
    monkeypatch.setattr(consumer_group, "MANY", 3)
    for number in range(3):
        producer_of(kafka_topics, f"pakka.refunds.out.{number}.0")
    found = [f.value for f in lint([], kafka_topics.bootstrap, None).findings if f.name == "transactional ids"]
    assert "pakka.refunds.out" not in found[0]


def test_what_a_file_and_a_cluster_say_is_one_report(kafka_topics, tmp_path):
    (tmp_path / "c.properties").write_text("acks=1\n")
    (tmp_path / "way-in.properties").write_text("security.protocol=plaintext\n")
    report = lint([str(tmp_path / "c.properties")], kafka_topics.bootstrap, str(tmp_path / "way-in.properties"))
    assert report.failed == [f"acks in {tmp_path / 'c.properties'}"]
    assert report.findings[-1].name == "transactional ids"


def test_a_way_in_that_is_wrong_is_told(kafka_topics, tmp_path):
    (tmp_path / "way-in.properties").write_text("sasl.nonsense=hunter22\n")
    with pytest.raises(ConfigError, match=r"sasl\.nonsense") as caught:
        lint(["g"], kafka_topics.bootstrap, str(tmp_path / "way-in.properties"))
    assert "hunter22" not in str(caught.value)


def test_a_cluster_that_cannot_be_reached_is_told(monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 1.0)
    with pytest.raises(UnavailableError, match=r"kafka://127\.0\.0\.1:1"):
        lint(["g"], "127.0.0.1:1", None)
