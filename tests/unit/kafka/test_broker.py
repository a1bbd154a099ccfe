"""The brokers of the tests are real, come back with what they held, and are gone when their owner is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tools.kafka import broker
from tools.kafka.broker import BrokerError, count_brokers

from tests.fixtures.kafka import END_TXN, Kafka, Topics, need_kafka, relayed_kafka, request_mark, running_kafka
from tests.fixtures.onlooker import Onlooker

pytestmark = pytest.mark.kafka

LAUNCHER = Path(broker.__file__)


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[Kafka]:
    """Of this module alone, which kills and freezes it; with one property that differs from the default."""
    need_kafka()
    with running_kafka(settings={"message.max.bytes": "12345"}) as kafka:
        yield kafka


def deliver(bootstrap: str, topic: str, *values: bytes, commit: bool = True) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.id", "log_level": 3})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    return producer


def visible(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """What a reader of partition 0 sees, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}.reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            if message.error():
                return values
            values.append(message.value())
    finally:
        consumer.close()


def wait_until(is_so, seconds: float = 30) -> None:
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.05)


def test_a_transaction_is_seen_once_it_is_committed(kafka_topics):
    topic = kafka_topics.create("sales")
    producer = deliver(kafka_topics.bootstrap, topic, b"kaccha", commit=False)
    assert visible(kafka_topics.bootstrap, topic) == []
    assert visible(kafka_topics.bootstrap, topic, "read_uncommitted") == [b"kaccha"]
    producer.commit_transaction(30)
    wait_until(lambda: visible(kafka_topics.bootstrap, topic) == [b"kaccha"])


def test_topics_are_gone_after_their_test_and_others_are_not(kafka_server):
    first, second = Topics(kafka_server.bootstrap), Topics(kafka_server.bootstrap)
    first.create("sales", partitions=3, retention_ms="1000")
    kept = second.create("sales")
    first.drop()
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap})

    def names() -> list[str]:
        return list(admin.list_topics(timeout=30).topics)

    # The controller has answered when it has decided; the broker hears of it a moment later.
    wait_until(lambda: not [name for name in names() if name.startswith(first.prefix)])
    assert kept in names()
    second.drop()


def test_a_missing_topic_is_not_created_by_writing_to_it(kafka_topics):
    refused = []
    # librdkafka would wait half a minute for a topic that somebody may be creating.
    at_once = {"bootstrap.servers": kafka_topics.bootstrap, "topic.metadata.propagation.max.ms": 1}
    producer = Producer({**at_once, "on_delivery": lambda error, _: refused.append(error.code())})
    producer.produce(kafka_topics.name("missing"), b"x")
    producer.flush(30)
    assert refused == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_a_server_property_reaches_the_broker(own_kafka):
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    assert described.result(timeout=30)["message.max.bytes"].value == "12345"


def test_a_killed_broker_comes_back_on_its_port_with_what_it_held(own_kafka):
    topics, before = Topics(own_kafka.bootstrap), own_kafka.bootstrap
    topic = topics.create("sales")
    deliver(own_kafka.bootstrap, topic, b"one", b"two")
    with closing(Onlooker(own_kafka.bootstrap)) as onlooker:
        onlooker.await_markers(topic)  # killed between the two, Kafka may forget them for ever
    own_kafka.kill()
    assert count_brokers(own_kafka.nodes[0].port) == 0
    own_kafka.restart()
    assert own_kafka.bootstrap == before
    # For a moment it knows the topic, and not how far it may be read.
    wait_until(lambda: visible(own_kafka.bootstrap, topic) == [b"one", b"two"])


def test_a_frozen_broker_does_not_answer_until_it_goes_on(own_kafka):
    own_kafka.signal(signal.SIGSTOP)
    try:
        assert count_brokers(own_kafka.nodes[0].port) == 0
    finally:
        own_kafka.signal(signal.SIGCONT)
    own_kafka.await_nodes(own_kafka.nodes)


def test_a_commit_whose_answer_is_cut_off_was_done_and_is_repeated():
    need_kafka()
    with relayed_kafka() as (kafka, proxy):
        topic = Topics(kafka.bootstrap).create("sales")
        producer = deliver(f"127.0.0.1:{proxy.port}", topic, b"one", commit=False)
        proxy.cut_at(request_mark(END_TXN, 1), is_delivered=True)
        producer.commit_transaction(30)
        assert proxy.cuts == 1
        assert visible(kafka.bootstrap, topic) == [b"one"]


def test_a_broker_that_cannot_start_says_why():
    need_kafka()
    with (
        pytest.raises(BrokerError, match=r"broker\.session\.timeout\.ms"),
        running_kafka(settings={"broker.session.timeout.ms": "soon"}),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_launcher_prints_its_address_and_leaves_no_broker_behind(end, tmp_path):
    need_kafka()
    if end == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's death")
    command = [sys.executable, str(LAUNCHER), "--port", "0"]
    # Killed, it cannot remove the broker's data.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as launcher:
        try:
            said = launcher.stdout.readline()
            assert said.startswith("kafka: ready at 127.0.0.1:"), said
            port = int(said.split(":")[2].split(";")[0])
            wait_until(lambda: count_brokers(port) == 1)
            launcher.send_signal(end)
            assert launcher.wait(timeout=30) == (-signal.SIGKILL if end == signal.SIGKILL else 0)
        finally:
            with suppress(ProcessLookupError):
                launcher.kill()
    wait_until(lambda: count_brokers(port) == 0)


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_a_broker_tests_are_skipped_by_name_and_fail_under_ci(monkeypatch, ci, outcome):
    monkeypatch.setattr("tests.fixtures.kafka.find_jars", lambda: None)
    monkeypatch.setitem(os.environ, "CI", ci)
    with pytest.raises(outcome, match="make setup-kafka"):
        need_kafka()
