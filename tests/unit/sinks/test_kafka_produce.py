"""Records through a real broker: each arrives once, in order, where a Java producer would put it; or the transaction fails."""

import signal
import time
from collections import defaultdict
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pakka.sinks import _kafka_bulk, _kafka_produce
from pakka.sinks._kafka_bulk import Bulk
from pakka.sinks._kafka_produce import SETTINGS, Outbox
from pakka.sinks._kafka_record import HEADERS, TOPICS

pytestmark = pytest.mark.kafka

BINARY = pa.large_binary()


@pytest.fixture(params=["many at once", "one by one"])
def road(request, monkeypatch):
    """Both ways into the queue must be told apart by nothing but their speed."""
    if request.param == "one by one":
        monkeypatch.setattr(_kafka_bulk, "_library", None)
    return request.param


@pytest.fixture
def producer(kafka_topics):
    return made(kafka_topics)


def made(topics, **more):
    settings = {name.replace("_", "."): value for name, value in more.items()}
    own = {"bootstrap.servers": topics.bootstrap, "transactional.id": topics.name("outbox"), "log_level": 2}
    producer = Producer({**SETTINGS, **own, "allow.auto.create.topics": False, **settings})
    producer.init_transactions(30)
    return producer


def batch(keys, values, **more):
    return pa.record_batch({"key": pa.array(keys, BINARY), "value": pa.array(values, BINARY), **more})


def deliver(producer, topic, *batches):
    producer.begin_transaction()
    outbox = Outbox(producer, topic)
    for each in batches:
        outbox.send(each)
    outbox.settle()
    producer.commit_transaction(30)


def read(topics, *names):
    """All that a stranger can read who takes only what is committed, by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": topics.name("reader"),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found = consumer.list_topics(timeout=30).topics
    left = {(name, number) for name in names for number in found[name].partitions}
    consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for name, number in left])
    records = []
    while left:
        message = consumer.poll(30)
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            left.discard((message.topic(), message.partition()))
        else:
            records.append(message)
    consumer.close()
    return records


def java_partition(key: bytes, partitions: int) -> int:
    """Murmur 2 as Kafka's own producer has it, written from its description and not from librdkafka."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    for at in range(0, len(key) & ~3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        h = (h * m ^ ((k ^ k >> 24) * m & mask)) & mask
    rest = key[len(key) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


def test_every_record_arrives_once_as_it_is(kafka_topics, producer, road):
    topic = kafka_topics.create("t", partitions=4)
    keys = [b"a", None, b"", b"\0\xff", None]
    values = [b"x", b"", None, bytes(range(256)) * 40, None]
    numbers = [b"%d" % n for n in range(25_000)]
    deliver(
        producer,
        topic,
        batch(keys, values),
        batch(numbers, numbers),
        batch(numbers, numbers).slice(7, 10_001).slice(1),
        batch([], []),
        batch([None], [None]),
    )
    found = sorted(((m.key(), m.value()) for m in read(kafka_topics, topic)), key=repr)
    sent = [
        *zip(keys, values, strict=True),
        *((n, n) for n in numbers),
        *((n, n) for n in numbers[8:10_008]),
        (None, None),
    ]
    assert found == sorted(sent, key=repr)


def test_a_key_lands_where_a_java_producer_puts_it(kafka_topics, producer, road):
    topic = kafka_topics.create("t", partitions=7)
    keys = [b"", b"a", b"abc", b"abcd", b"\xff" * 9, "चाय".encode(), *(b"RFD-%d" % n for n in range(200))]
    deliver(producer, topic, batch(keys, keys))
    found = {m.key(): m.partition() for m in read(kafka_topics, topic)}
    assert found == {key: java_partition(key, 7) for key in keys}
    # Known from Kafka's own tests.
    assert java_partition(b"21", 1 << 31) == -973932308 & 0x7FFFFFFF
    assert java_partition(b"foobar", 1 << 31) == -790332482 & 0x7FFFFFFF


def test_records_of_several_topics_go_each_to_its_own(kafka_topics, producer, road):
    names = [kafka_topics.create(name, partitions=2) for name in ("a", "b", "c")]
    topics = pa.array([names[n % 3] if n < 60 else names[0] for n in range(100)]).dictionary_encode().cast(TOPICS)
    values = [b"%d" % n for n in range(100)]
    whole = batch(values, values, topic=topics)
    deliver(producer, None, whole.slice(0, 50), whole.slice(50))
    found = defaultdict(set)
    for message in read(kafka_topics, *names):
        found[message.topic()].add(message.value())
    assert found == {name: {v for v, t in zip(values, topics.to_pylist(), strict=True) if t == name} for name in names}


def test_the_order_of_a_key_is_kept_over_batches_and_a_full_queue(kafka_topics, producer, road, monkeypatch):
    monkeypatch.setattr(_kafka_produce, "_SLICE_ROWS", 100)
    monkeypatch.setattr(_kafka_produce, "_QUEUE_ROWS", 300)
    topic = kafka_topics.create("t", partitions=3)
    keys = [b"%d" % (n % 10) for n in range(5000)]
    values = [b"%d" % n + b"x" * (n % 7 * 100) for n in range(5000)]
    deliver(producer, topic, *(batch(keys[n : n + 499], values[n : n + 499]) for n in range(0, 5000, 499)))
    found = defaultdict(list)
    for message in read(kafka_topics, topic):
        found[message.key()].append(message.value())
    wanted = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        wanted[key].append(value)
    assert found == wanted


@pytest.mark.parametrize("bound", ["_QUEUE_ROWS", "_QUEUE_BYTES"])
def test_a_full_queue_is_waited_for(kafka_topics, producer, road, monkeypatch, bound):
    monkeypatch.setattr(_kafka_produce, "_SLICE_ROWS", 10)
    monkeypatch.setattr(_kafka_produce, bound, 50 if bound == "_QUEUE_ROWS" else 60_000)
    topic = kafka_topics.create("t")
    # Nothing leaves the queue by itself for so long that the bound must be met.
    kept = made(kafka_topics, linger_ms=300)
    kept.begin_transaction()
    outbox, most = Outbox(kept, topic), 0
    values = [b"x" * 1000] * 200
    for start in range(0, 200, 10):
        outbox.send(batch([None] * 10, values[start : start + 10]))
        most = max(most, len(kept))
    outbox.settle()
    kept.commit_transaction(30)
    assert 10 < most <= 60
    assert len(read(kafka_topics, topic)) == 200


def test_headers_partitions_and_times_arrive(kafka_topics, producer, road):
    topic = kafka_topics.create("t", partitions=3)
    whole = batch(
        [b"a", b"b", None],
        [b"1", b"2", None],
        partition=pa.array([2, None, 0], pa.int32()),
        timestamp=pa.array([1769860800000, None, 1], pa.int64()),
        headers=pa.array([[{"key": "k", "value": b"\xff"}, {"key": "k", "value": None}], None, []], HEADERS),
    )
    deliver(producer, topic, whole)
    found = {m.value(): m for m in read(kafka_topics, topic)}
    assert [found[v].partition() for v in (b"1", b"2", None)] == [2, java_partition(b"b", 3), 0]
    assert found[b"1"].timestamp()[1] == 1769860800000
    assert found[None].timestamp()[1] == 1
    assert abs(found[b"2"].timestamp()[1] / 1000 - time.time()) < 600
    assert found[b"1"].headers() == [("k", b"\xff"), ("k", None)]
    assert found[b"2"].headers() is None


# --- What does not arrive


def failed(producer, topic, *batches):
    """Why a transaction could not be committed; it is aborted."""
    with pytest.raises(KafkaException) as caught:
        deliver(producer, topic, *batches)
    producer.abort_transaction(30)
    return caught.value.args[0]


def test_a_record_that_the_broker_refuses_fails_the_transaction_and_is_told_by_topic_and_partition(
    kafka_topics, producer, road
):
    topic = kafka_topics.create("t", max_message_bytes="1000")
    values = [b"%d" % n for n in range(500)]
    values[300] = b"x" * 5000
    error = failed(producer, topic, batch(values, values))
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert topic in error.str()
    assert "partition 0" in error.str() or "[0]" in error.str()
    assert read(kafka_topics, topic) == []
    # A new one: librdkafka counts the refused record, the broker does not, and the next transaction would pay for it.
    deliver(made(kafka_topics), topic, batch([b"k"], [b"after"]))
    assert [m.value() for m in read(kafka_topics, topic)] == [b"after"]


def test_a_topic_that_is_gone_fails_the_transaction_and_is_named(kafka_topics, road):
    there = kafka_topics.create("there")
    producer = made(kafka_topics, topic_metadata_propagation_max_ms=1000)
    topics = pa.array([there, kafka_topics.name("gone")] * 50).dictionary_encode().cast(TOPICS)
    error = failed(producer, None, batch([b"k"] * 100, [b"v"] * 100, topic=topics))
    assert error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert kafka_topics.name("gone") in error.str()
    assert read(kafka_topics, there) == []


def test_a_partition_that_is_not_there_fails_the_transaction(kafka_topics, producer, road):
    topic = kafka_topics.create("t", partitions=2)
    deliver(producer, topic, batch([b"k"], [b"before"]))
    error = failed(producer, topic, batch([None] * 2, [b"v"] * 2, partition=pa.array([0, 9], pa.int32())))
    assert error.code() == KafkaError._UNKNOWN_PARTITION
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before"]


def test_records_that_no_broker_takes_in_time_fail_the_transaction(kafka_topics, kafka_server, road):
    topic = kafka_topics.create("t")
    producer = made(kafka_topics, message_timeout_ms=2000, transaction_timeout_ms=60_000)
    deliver(producer, topic, batch([b"k"], [b"before"]))
    producer.begin_transaction()
    outbox = Outbox(producer, topic)
    kafka_server.signal(signal.SIGSTOP)
    try:
        outbox.send(batch([None] * 100, [b"v"] * 100))
        with pytest.raises(KafkaException) as caught:
            outbox.settle()
    finally:
        kafka_server.signal(signal.SIGCONT)
    assert caught.value.args[0].code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT)
    assert topic in caught.value.args[0].str()
    # It depends on how far the records came whether it can be aborted. Whoever asks for the id next ends it in any case.
    made(kafka_topics)
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before"]


def test_a_long_epoch_stops_at_the_first_failure_and_does_not_send_the_rest(kafka_topics, producer, road, monkeypatch):
    monkeypatch.setattr(_kafka_produce, "_QUEUE_ROWS", 1000)
    monkeypatch.setattr(_kafka_produce, "_SLICE_ROWS", 100)
    topic = kafka_topics.create("t", max_message_bytes="1000")
    producer.begin_transaction()
    outbox = Outbox(producer, topic)
    outbox.send(batch([None], [b"x" * 5000]))
    sent = 0
    with suppress(KafkaException):
        for _ in range(1000):
            outbox.send(batch([None] * 100, [b"v"] * 100))
            sent += 1
    assert sent < 1000
    producer.abort_transaction(30)


def test_outside_of_a_transaction_nothing_is_sent(kafka_topics, producer, road):
    topic = kafka_topics.create("t")
    with pytest.raises(KafkaException) as caught:
        Outbox(producer, topic).send(batch([b"k"], [b"v"]))
    assert caught.value.args[0].code() == KafkaError._STATE
    assert read(kafka_topics, topic) == []


# --- The way of many at once


def test_many_at_once_is_the_way_with_the_library_that_is_locked(kafka_topics, producer):
    assert Bulk.of(producer) is not None


def test_a_library_that_is_not_known_from_inside_is_left_alone(monkeypatch):
    monkeypatch.setattr(_kafka_bulk.confluent_kafka, "version", lambda: "9.0.0")
    assert _kafka_bulk._load() is None


def test_a_transaction_that_has_failed_is_noticed_without_a_record(kafka_topics, producer):
    topic = kafka_topics.create("t")
    bulk = Bulk.of(producer)
    assert bulk.trouble(topic) == KafkaError._STATE
    producer.begin_transaction()
    assert bulk.trouble(topic) == 0
    assert len(producer) == 0
    producer.abort_transaction(30)
    assert bulk.trouble(topic) == KafkaError._STATE
