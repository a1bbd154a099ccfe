"""Records through a real broker: each arrives once, in order, where a Java producer would put it; or the transaction fails."""

import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.errors import KafkaConnectionError, NoError, NotEnoughReplicasError

from pakka.errors import PakkaError, UnavailableError
from pakka.kafka_line import Address
from pakka.sinks import _kafka_parcel, _kafka_post, _kafka_produce, _kafka_wire
from pakka.sinks._kafka_batch import CODECS, SEQUENCES, Press
from pakka.sinks._kafka_limit import Limits
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_produce import Outbox, Seat
from pakka.sinks._kafka_raw import End
from pakka.sinks._kafka_record import HEADERS, TOPICS

pytestmark = pytest.mark.kafka

BINARY = pa.large_binary()
PRESS = Press(1_000_000)


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    """Requests are sent in pieces, as large ones are."""
    monkeypatch.setattr(_kafka_parcel, "_SMALL_BYTES", 100)


@pytest.fixture
def seat(kafka_topics):
    return made(kafka_topics)


def made(topics, patience_s=30.0):
    post = Post("test", Address.parse("test", topics.bootstrap))
    return Seat(post, post.take(topics.name("outbox")), patience_s)


@pytest.fixture
def wide(kafka_topics, monkeypatch):
    """A seat with two lines, over which requests go that are small enough to need both."""
    monkeypatch.setattr(_kafka_produce, "REQUEST_BYTES", 1000)
    seat = made(kafka_topics)
    seat.second = Post("test", seat.post.address)
    yield seat
    assert seat.second._admin is not None
    seat.second.close()


def batch(keys, values, **more):
    return pa.record_batch({"key": pa.array(keys, BINARY), "value": pa.array(values, BINARY), **more})


def pack(records, topic, partitions=1, press=PRESS):
    return press.pack(records, topic, lambda _: Limits(partitions, 1 << 30), time.time_ns() // 1_000_000)


def deliver(seat, topic, *batches, partitions=1, press=PRESS):
    outbox = seat.outbox(topic or "", set())
    for each in batches:
        outbox.send(pack(each, topic, partitions, press))
    outbox.settle()
    commit(seat)


def commit(seat):
    assert seat.post.end(seat.handle, is_commit=True) is End.DONE
    # Partitions hear of it a moment later.
    give_up = time.monotonic() + 30
    while seat.post.opened(seat.handle.producer_id, seat.sent):
        assert time.monotonic() < give_up


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


def test_every_record_arrives_once_as_it_is(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=4)
    keys = [b"a", None, b"", b"\0\xff", None]
    values = [b"x", b"", None, bytes(range(256)) * 40, None]
    numbers = [b"%d" % n for n in range(25_000)]
    deliver(
        seat,
        topic,
        batch(keys, values),
        batch(numbers, numbers),
        batch(numbers, numbers).slice(7, 10_001).slice(1),
        batch([None], [None]),
        partitions=4,
    )
    found = sorted(((m.key(), m.value()) for m in read(kafka_topics, topic)), key=repr)
    sent = [
        *zip(keys, values, strict=True),
        *((n, n) for n in numbers),
        *((n, n) for n in numbers[8:10_008]),
        (None, None),
    ]
    assert len(found) == len(sent)
    assert found == sorted(sent, key=repr)


def test_a_key_lands_where_a_java_producer_puts_it(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=7)
    keys = [b"", b"a", b"abc", b"abcd", b"\xff" * 9, "चाय".encode(), *(b"RFD-%d" % n for n in range(200))]
    deliver(seat, topic, batch(keys, keys), partitions=7)
    found = {m.key(): m.partition() for m in read(kafka_topics, topic)}
    assert found == {key: java_partition(key, 7) for key in keys}
    # Known from Kafka's own tests.
    assert java_partition(b"21", 1 << 31) == -973932308 & 0x7FFFFFFF
    assert java_partition(b"foobar", 1 << 31) == -790332482 & 0x7FFFFFFF


def test_records_of_several_topics_go_each_to_its_own(kafka_topics, seat):
    names = [kafka_topics.create(name, partitions=2) for name in ("a", "b", "c")]
    topics = pa.array([names[n % 3] if n < 60 else names[0] for n in range(100)]).dictionary_encode().cast(TOPICS)
    values = [b"%d" % n for n in range(100)]
    whole = batch(values, values, topic=topics)
    deliver(seat, None, whole.slice(0, 50), whole.slice(50), partitions=2)
    found = defaultdict(set)
    for message in read(kafka_topics, *names):
        found[message.topic()].add(message.value())
    assert found == {name: {v for v, t in zip(values, topics.to_pylist(), strict=True) if t == name} for name in names}


def test_the_order_of_a_key_is_kept_over_batches_and_packs(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=3)
    keys = [b"%d" % (n % 10) for n in range(5000)]
    values = [b"%d" % n + b"x" * (n % 7 * 100) for n in range(5000)]
    parts = (batch(keys[n : n + 499], values[n : n + 499]) for n in range(0, 5000, 499))
    deliver(seat, topic, *parts, partitions=3, press=Press(5000))
    found = defaultdict(list)
    for message in read(kafka_topics, topic):
        found[message.key()].append(message.value())
    wanted = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        wanted[key].append(value)
    assert found == wanted


def test_several_transactions_of_one_producer_are_counted_on(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=2)
    for number in range(3):
        deliver(seat, topic, batch([b"a", b"b", b"c"], [b"%d" % number] * 3), partitions=2)
    assert sorted(m.value() for m in read(kafka_topics, topic)) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
    assert sum(seat.sent.values()) == 9


def test_numbers_of_records_begin_again_where_brokers_begin_again(kafka_topics, seat):
    topic = kafka_topics.create("t")
    seat.sent[topic, 0] = SEQUENCES - 2
    deliver(seat, topic, batch([b"k"] * 5, [b"%d" % n for n in range(5)]))
    deliver(seat, topic, batch([b"k"], [b"5"]))
    assert [m.value() for m in read(kafka_topics, topic)] == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_stranger_reads_every_compression(kafka_topics, seat, codec):
    topic = kafka_topics.create("t", partitions=2)
    values = [b"%d" % n * (n % 50) for n in range(3000)]
    deliver(seat, topic, batch(values, values), partitions=2, press=Press(1_000_000, codec))
    assert sorted(m.value() for m in read(kafka_topics, topic)) == sorted(values)


def test_a_batch_whose_answer_is_lost_is_sent_again_and_kept_once(kafka_topics, seat, monkeypatch):
    topic = kafka_topics.create("t", partitions=3)
    honest, lost = Post._waited, []

    def deaf(post, answer):
        said = honest(post, answer)
        if len(lost) < 4:
            lost.append(said)
            raise KafkaConnectionError("cut")
        return said

    monkeypatch.setattr(Post, "_waited", deaf)
    values = [b"%d" % n for n in range(1000)]
    parts = (batch(values[n : n + 100], values[n : n + 100]) for n in range(0, 1000, 100))
    deliver(seat, topic, *parts, partitions=3)
    assert len(lost) == 4
    assert sorted(m.value() for m in read(kafka_topics, topic)) == sorted(values)


SMALL = Press(2000)
"""Several batches a partition."""


def numbered(count, keys=40):
    return batch([b"%d" % (n % keys) for n in range(count)], [b"%d" % n for n in range(count)])


def in_order(records):
    """The values of each key, in the order of a reader."""
    found = defaultdict(list)
    for message in records:
        found[message.key()].append(int(message.value()))
    return found


def test_over_two_lines_every_record_arrives_once_and_in_the_order_of_its_key(kafka_topics, wide):
    topic = kafka_topics.create("t", partitions=8)
    for _ in range(2):
        deliver(wide, topic, numbered(20_000), partitions=8, press=SMALL)
    assert in_order(read(kafka_topics, topic)) == {b"%d" % key: [*range(key, 20_000, 40)] * 2 for key in range(40)}


@pytest.mark.parametrize("is_first", [True, False])
def test_when_one_of_two_lines_is_cut_every_record_arrives_once_and_in_order(kafka_topics, wide, monkeypatch, is_first):
    topic = kafka_topics.create("t", partitions=8)
    cut = wide.post if is_first else wide.second
    honest, lost = Post._waited, []

    def deaf(post, answer):
        said = honest(post, answer)
        if post is cut and len(lost) < 4:
            lost.append(said)
            post.close()
            raise KafkaConnectionError("cut")
        return said

    monkeypatch.setattr(Post, "_waited", deaf)
    deliver(wide, topic, numbered(20_000), partitions=8, press=SMALL)
    assert len(lost) == 4
    assert in_order(read(kafka_topics, topic)) == {b"%d" % key: [*range(key, 20_000, 40)] for key in range(40)}


def test_what_the_second_line_cannot_send_goes_over_the_first(kafka_topics, wide, monkeypatch):
    topic = kafka_topics.create("t", partitions=8)
    honest, refused = Post._posted, []

    def shut(post, handle, batches):
        if post is wide.second:
            post._open()
            refused.append(batches)
            raise KafkaConnectionError("refused")
        return honest(post, handle, batches)

    monkeypatch.setattr(Post, "_posted", shut)
    deliver(wide, topic, numbered(5000), partitions=8, press=SMALL)
    assert refused
    assert in_order(read(kafka_topics, topic)) == {b"%d" % key: [*range(key, 5000, 40)] for key in range(40)}


def test_whoever_was_shut_out_sends_nothing_more_over_either_line(kafka_topics, wide):
    topic = kafka_topics.create("t", partitions=8)
    deliver(wide, topic, numbered(5000), partitions=8, press=SMALL)
    outbox, late = wide.outbox(topic, set()), pack(numbered(5000), topic, 8, SMALL)
    outbox.send(late)
    outbox.settle()
    newer = made(kafka_topics)
    with pytest.raises(KafkaException) as caught:
        outbox.send(late)
    assert caught.value.args[0].code() in (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    outbox.drop()
    deliver(newer, topic, batch([b"0"], [b"5000"]), partitions=8)
    assert len(read(kafka_topics, topic)) == 5001


class Deaf(Outbox):
    """Takes silence for an answer."""

    def _await(self, patience_s=None):
        with suppress(UnavailableError):
            return super()._await(0.0)
        return {}


class CutError(KafkaConnectionError):
    """An answer that a test has lost."""


class Renumbering(Outbox):
    """Sends what had no answer again under new numbers, as what was never sent."""

    lost: ClassVar[type[KafkaConnectionError]] = KafkaConnectionError

    def __init__(self, *args):
        super().__init__(*args)
        self._batches = {}

    def _signed(self, batch):
        head, records = super()._signed(batch)
        self._batches[head] = batch
        return head, records

    def _await(self, patience_s=None):
        line, posted = self._posted[0]
        try:
            if posted.answer is not None:
                line._waited(posted.answer)
        except KafkaConnectionError as error:
            if not isinstance(error, self.lost):
                return super()._await(patience_s)
            self._posted.pop(0)
            again = {place: self._signed(self._batches[head]) for place, (head, _) in posted.batches.items()}
            return self.seat.post.settle(self.seat.post.post(posted.handle, again), self.seat.patience_s)
        else:
            return super()._await(patience_s)


class RenumberingArrived(Renumbering):
    """On a busy machine a line is made anew by itself too, and what has not arrived is refused under a new number."""

    lost = CutError


class Hasty(Outbox):
    """Has the first batches go over both lines, too."""

    def _free(self, some):
        self._opened |= some.keys()
        return super()._free(some)


@pytest.mark.parametrize(("kind", "is_refused"), [(Outbox, False), (Hasty, True)])
def test_no_broker_refuses_a_batch_because_another_line_asks_it_too(kafka_topics, wide, monkeypatch, kind, is_refused):
    topic = kafka_topics.create("t", partitions=8)
    # Its leaders may not know of a new topic yet.
    deliver(wide, topic, numbered(2000), partitions=8, press=SMALL)
    honest, refused, transactions = _kafka_post._taken, [], 0

    def taken(answers):
        for place, error, words, offset in honest(answers):
            if error is NotEnoughReplicasError and "Unable to verify" in words:
                refused.append(words)
            yield place, error, words, offset

    monkeypatch.setattr(_kafka_post, "_taken", taken)
    while transactions < 20 and not refused:
        outbox = kind(wide, topic, set())
        outbox.send(pack(numbered(2000), topic, 8, SMALL))
        outbox.settle()
        commit(wide)
        transactions += 1
    assert bool(refused) is is_refused
    # Nothing is lost by it: what was refused is sent again.
    assert len(read(kafka_topics, topic)) == 2000 * (transactions + 1)


@pytest.mark.parametrize(("kind", "is_once"), [(Outbox, True), (RenumberingArrived, False)])
def test_what_arrived_on_the_second_line_that_was_cut_is_kept_once(kafka_topics, wide, monkeypatch, kind, is_once):
    topic = kafka_topics.create("t", partitions=8)
    # Its leaders may not know of a new topic yet.
    deliver(wide, topic, numbered(2000), partitions=8, press=SMALL)
    posting, waiting, first, lost = Post.post, Post._waited, [], []

    def post(line, *args):
        posted = posting(line, *args)
        first.append(posted.answer)
        return posted

    def deaf(line, answer):
        said = waiting(line, answer)
        # A broker may refuse a batch at first, because it cannot ask its coordinator. That one has not arrived, and the answer to its
        # second sending reaches no twin.
        has_arrived = all(error is NoError for _, error, _, _ in _kafka_post._taken(said))
        if line is wide.second and has_arrived and any(answer is each for each in first) and not lost:
            lost.append(said)
            raise CutError("cut")
        return said

    monkeypatch.setattr(Post, "post", post)
    monkeypatch.setattr(Post, "_waited", deaf)
    epochs = 1
    while not lost:
        assert epochs < 20
        outbox = kind(wide, topic, set())
        outbox.send(pack(numbered(2000), topic, 8, SMALL))
        outbox.settle()
        commit(wide)
        epochs += 1
    assert (len(read(kafka_topics, topic)) == 2000 * epochs) is is_once


@pytest.mark.parametrize(("kind", "wanted"), [(Outbox, [b"v"]), (Renumbering, [b"v", b"v"])])
def test_what_arrived_on_a_line_that_was_cut_before_the_answer_is_kept_once(kafka_topics, seat, kind, wanted):
    topic = kafka_topics.create("t")
    # Its leader may not know of a new topic yet.
    deliver(seat, topic, batch([b"k"], [b"before"]))
    outbox = kind(seat, topic, set())
    outbox.send(pack(batch([b"k"], [b"v"]), topic))
    give_up = time.monotonic() + 30
    while not seat.post.opened(seat.handle.producer_id, [(topic, 0)]):
        assert time.monotonic() < give_up
    seat.post.close()
    outbox.settle()
    commit(seat)
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before", *wanted]


@pytest.mark.parametrize(("kind", "wanted"), [(Outbox, [b"v"]), (Deaf, [])])
def test_what_a_killed_broker_never_got_is_sent_to_it_when_it_is_back(kafka_topics, kafka_server, seat, kind, wanted):
    topic, other = kafka_topics.create("t"), kafka_topics.create("other")
    outbox = kind(seat, topic, set())
    # The transaction is begun, and the broker has been heard of.
    outbox.send_one(other, b"v", b"k", 0)
    outbox.settle()
    seat.post.find([(topic, 0)])
    seat.post.begin_in(seat.handle, [(topic, 0)])
    outbox._begun.add((topic, 0))
    kafka_server.kill()
    outbox.send(pack(batch([b"k"], [b"v"]), topic))
    with ThreadPoolExecutor() as pool:
        settled = pool.submit(outbox.settle)
        time.sleep(1)
        # Here, and not in the thread: a server ends with the thread that has started it.
        kafka_server.restart()
        settled.result()
    commit(seat)
    assert [m.value() for m in read(kafka_topics, topic)] == wanted


def test_partitions_that_are_added_meanwhile_are_no_trouble(kafka_topics, seat):
    topic = kafka_topics.create("t")
    keys = [b"%d" % n for n in range(100)]
    deliver(seat, topic, batch(keys, keys))
    admin = AdminClient({"bootstrap.servers": kafka_topics.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    give_up = time.monotonic() + 30
    while len(admin.list_topics(topic, timeout=30).topics[topic].partitions) < 3:
        assert time.monotonic() < give_up
    # What was packed before goes where it was packed for.
    deliver(seat, topic, batch(keys, keys))
    assert {m.partition() for m in read(kafka_topics, topic)} == {0}
    assert len(read(kafka_topics, topic)) == 200


def test_headers_partitions_and_times_arrive(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=3)
    whole = batch(
        [b"a", b"b", None],
        [b"1", b"2", None],
        partition=pa.array([2, None, 0], pa.int32()),
        timestamp=pa.array([1769860800000, None, 1], pa.int64()),
        headers=pa.array([[{"key": "k", "value": b"\xff"}, {"key": "k", "value": None}], None, []], HEADERS),
    )
    deliver(seat, topic, whole, partitions=3)
    found = {m.value(): m for m in read(kafka_topics, topic)}
    assert [found[v].partition() for v in (b"1", b"2", None)] == [2, java_partition(b"b", 3), 0]
    assert found[b"1"].timestamp()[1] == 1769860800000
    assert found[None].timestamp()[1] == 1
    assert abs(found[b"2"].timestamp()[1] / 1000 - time.time()) < 600
    assert found[b"1"].headers() == [("k", b"\xff"), ("k", None)]
    assert found[b"2"].headers() is None


# --- What does not arrive


def failed(seat, topic, *batches):
    """Why a transaction could not be committed; it is aborted."""
    with pytest.raises((KafkaException, PakkaError)) as caught:
        deliver(seat, topic, *batches)
    seat.post.end(seat.handle, is_commit=False)
    return caught.value if isinstance(caught.value, PakkaError) else caught.value.args[0]


def test_a_record_that_the_broker_refuses_fails_the_transaction_and_is_told_by_topic_and_partition(kafka_topics, seat):
    topic = kafka_topics.create("t", max_message_bytes="1000")
    values = [b"%d" % n for n in range(500)]
    values[300] = b"x" * 5000
    error = failed(seat, topic, batch(values, values))
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert f"topic `{topic}`, partition 0" in error.str()
    assert read(kafka_topics, topic) == []
    deliver(made(kafka_topics), topic, batch([b"k"], [b"after"]))
    assert [m.value() for m in read(kafka_topics, topic)] == [b"after"]


def test_a_topic_that_is_gone_fails_the_transaction_and_is_named(kafka_topics, seat, monkeypatch):
    monkeypatch.setattr(_kafka_wire, "PATIENCE_S", 1.0)
    there = kafka_topics.create("there")
    topics = pa.array([there, kafka_topics.name("gone")] * 50).dictionary_encode().cast(TOPICS)
    error = failed(seat, None, batch([b"k"] * 100, [b"v"] * 100, topic=topics))
    assert kafka_topics.name("gone") in error.message
    assert "create: true" in error.hint
    assert read(kafka_topics, there) == []


def test_a_partition_that_is_not_there_fails_the_transaction(kafka_topics, seat):
    topic = kafka_topics.create("t", partitions=2)
    deliver(seat, topic, batch([b"k"], [b"before"]))
    error = failed(seat, topic, batch([None] * 2, [b"v"] * 2, partition=pa.array([0, 9], pa.int32())))
    assert f"partition 9 of topic `{topic}`, which has 2" in error.message
    assert "at least 10" in error.hint
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before"]


def test_records_that_no_broker_takes_in_time_fail_the_transaction(kafka_topics, kafka_server, monkeypatch):
    topic = kafka_topics.create("t")
    seat = made(kafka_topics)
    deliver(seat, topic, batch([b"k"], [b"before"]))
    outbox, packed = seat.outbox(topic, set()), pack(batch([None] * 100, [b"v"] * 100), topic)
    outbox.send(packed)
    outbox.settle()
    monkeypatch.setattr(_kafka_post, "_PRODUCE_S", 1.0)
    seat.patience_s = 2.0
    kafka_server.signal(signal.SIGSTOP)
    try:
        outbox.send(packed)
        with pytest.raises(UnavailableError, match="no answer for 2 s"):
            outbox.settle()
    finally:
        kafka_server.signal(signal.SIGCONT)
    # Whoever asks for the id next ends it.
    made(kafka_topics)
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before"]


def test_a_broker_that_stands_still_for_a_while_is_waited_for(kafka_topics, kafka_server, seat, monkeypatch):
    monkeypatch.setattr(_kafka_post, "_PRODUCE_S", 1.0)
    topic = kafka_topics.create("t")
    values = [b"%d" % n for n in range(100)]
    kafka_server.signal(signal.SIGSTOP)
    # No longer than the controller takes to give it up: a broker that it has fenced off may forget markers.
    waker = threading.Timer(1.7, kafka_server.signal, [signal.SIGCONT])
    waker.start()
    try:
        deliver(seat, topic, batch(values, values))
    finally:
        waker.join()
    assert sorted(m.value() for m in read(kafka_topics, topic)) == sorted(values)


def test_a_long_epoch_stops_at_the_first_failure_and_does_not_send_the_rest(kafka_topics, seat):
    topic = kafka_topics.create("t", max_message_bytes="1000")
    outbox = seat.outbox(topic, set())
    outbox.send(pack(batch([None], [b"x" * 5000]), topic))
    sent = 0
    with suppress(KafkaException):
        for _ in range(1000):
            outbox.send(pack(batch([None] * 100, [b"v"] * 100), topic))
            sent += 1
    assert sent < 10
    seat.post.end(seat.handle, is_commit=False)


def test_whoever_was_shut_out_sends_nothing_more(kafka_topics, seat):
    topic = kafka_topics.create("t")
    deliver(seat, topic, batch([b"k"], [b"before"]))
    newer = made(kafka_topics)
    with pytest.raises(KafkaException) as caught:
        deliver(seat, topic, batch([b"k"], [b"late"]))
    assert caught.value.args[0].code() in (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    deliver(newer, topic, batch([b"k"], [b"after"]))
    assert [m.value() for m in read(kafka_topics, topic)] == [b"before", b"after"]
