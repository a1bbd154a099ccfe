"""What topics take: what the Kafka sink prepares is delivered on a real broker, and what would be refused there is refused before."""

import datetime as dt
import os
import time
from bisect import bisect_left

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from pakka.errors import SchemaError, UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_topic
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, alter, maker_of, read, refunds, values

pytestmark = pytest.mark.kafka

COMPRESSIONS = ["gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def make_sink(kafka_server, kafka_topics):
    """A sink on a fresh topic, whose ledger goes with it."""
    yield maker_of(kafka_server, kafka_topics)
    _kafka_topic.forget()


def await_partitions(admin, topic, count):
    give_up = time.monotonic() + PATIENCE_S
    while len(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions) != count:
        assert time.monotonic() < give_up


def aged(seconds):
    """A row of a time so long ago; None: of no time."""
    at = None if seconds is None else dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
    return pa.record_batch({"id": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})


class TestTopicsOfItsOwn:
    """Kafka writes there by itself, or the sink does: a record of a row would be believed, or never be written after the decision."""

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
    def test_a_row_for_a_topic_of_kafkas_own_is_refused(self, name, make_sink, tmp_path):
        driver = Driver(make_sink(topic_column="to"), tmp_path)
        with pytest.raises(SchemaError, match=f"a row is for topic `{name}`, which is one of Kafka's"):
            driver.prepare(0, pa.record_batch({"id": [1], "to": [name]}))

    @pytest.mark.parametrize("kind", ["ledger", "slots"])
    def test_a_row_for_the_memory_of_a_pipeline_is_refused(self, kind, make_sink, tmp_path):
        sink = make_sink(topic_column="to", way="sharded")
        driver = Driver(sink, tmp_path)
        with pytest.raises(SchemaError, match=r"or of pakka's own; nothing was written"):
            driver.prepare(0, pa.record_batch({"id": [1], "to": [f"{sink.ledger}.{kind}.refunds.out"]}))


class TestSizes:
    @pytest.mark.parametrize(
        ("limit", "ours", "theirs"),
        [
            (3000, "none", "producer"),
            *((1_000_000, ours, "producer") for ours in COMPRESSIONS),
            *((1_000_000, "none", theirs) for theirs in COMPRESSIONS),
        ],
    )
    def test_what_prepare_takes_the_commit_delivers_and_one_byte_more_is_refused(
        self, limit, ours, theirs, make_sink, tmp_path
    ):
        """The limit of a topic is kept: records that would be refused after the decision are refused before it. Random bytes only grow by
        compression, which a topic may have of its own.
        """
        config = {"max_message_bytes": str(limit), "compression_type": theirs}
        sink = make_sink(config=config, format="raw", settings={"compression.type": ours})
        driver = Driver(sink, tmp_path)
        sizes = range(limit - limit // 10, limit)
        refused = bisect_left(sizes, True, key=lambda size: not self._is_taken(driver, size))
        assert 10 < refused < len(sizes)
        taken = sizes[refused - 10 : refused]
        driver.deliver(0, *(pa.record_batch({"value": [os.urandom(size)]}) for size in taken))
        assert sorted(len(record.value()) for record in read(sink.servers, sink.topic, 10)) == list(taken)

    def test_many_records_of_a_topic_with_a_small_limit_are_sent_in_batches_that_fit(self, make_sink, tmp_path):
        sink = make_sink(config={"max_message_bytes": "3000"})
        Driver(sink, tmp_path).deliver(0, refunds(*range(2000)))
        assert len(read(sink.servers, sink.topic, 2000)) == 2000

    def test_large_records_are_taken_where_the_topic_takes_them(self, make_sink, tmp_path):
        sink = make_sink(config={"max_message_bytes": str(4 << 20)}, format="raw")
        Driver(sink, tmp_path).deliver(0, pa.record_batch({"value": [b"x" * (3 << 20)]}))
        assert len(read(sink.servers, sink.topic, 1)[0].value()) == 3 << 20

    def test_a_record_that_no_segment_of_its_topic_could_hold_is_refused_before_the_decision(self, make_sink, tmp_path):
        config = {"max_message_bytes": str(4 << 20), "segment_bytes": str(1 << 20)}
        driver = Driver(make_sink(config=config, format="raw"), tmp_path)
        assert not self._is_taken(driver, 1 << 20)
        driver.deliver(0, pa.record_batch({"value": [os.urandom((1 << 20) - 200)]}))

    def test_a_bound_of_the_sink_goes_before_the_topic_s(self, make_sink, tmp_path):
        driver = Driver(make_sink(format="raw", max_record_bytes=500), tmp_path)
        assert not self._is_taken(driver, 500)
        assert self._is_taken(driver, 300)

    def test_topics_of_one_epoch_are_sent_each_in_batches_that_fit(self, make_sink, kafka_topics, tmp_path):
        small, large = kafka_topics.create("small", max_message_bytes="3000"), kafka_topics.create("large")
        sink = make_sink(topic_column="to")
        batch = pa.record_batch({"id": list(range(2000)), "to": [small, large] * 1000})
        Driver(sink, tmp_path).deliver(0, batch)
        assert [len(read(sink.servers, topic, 1000)) for topic in (small, large)] == [1000, 1000]

    def test_a_topic_made_anew_with_fewer_partitions_is_told_and_takes_all_when_it_has_them_again(
        self, make_sink, tmp_path
    ):
        sink = make_sink(parts=4, key="id")
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(0))
        records = driver.prepare(1, refunds(*range(1, 100)))
        admin = AdminClient({"bootstrap.servers": sink.servers})
        admin.delete_topics([sink.topic])[sink.topic].result(PATIENCE_S)
        await_partitions(admin, sink.topic, 0)
        admin.create_topics([NewTopic(sink.topic, 1, 1)])[sink.topic].result(PATIENCE_S)
        await_partitions(admin, sink.topic, 1)
        driver.committer.applier.post.close()
        outcome = driver.commit(1, records)
        assert outcome.kind is Kind.RETRY
        assert f"partition 3 of topic `{sink.topic}`, which has 1" in outcome.reason
        assert read(sink.servers, sink.topic) == []
        admin.create_partitions([NewPartitions(sink.topic, 4)])[sink.topic].result(PATIENCE_S)
        await_partitions(admin, sink.topic, 4)
        assert driver.commit(1, records).kind is Kind.COMMITTED
        assert sorted(v["id"] for v in values(sink.servers, sink.topic, 99)) == list(range(1, 100))

    @staticmethod
    def _is_taken(driver, size):
        try:
            driver.committer.abort(driver.prepare(9, pa.record_batch({"value": [b"x" * size]})))
        except SchemaError as error:
            return "makes a record of" not in error.message
        return True


class TestTimes:
    def test_what_is_too_old_for_its_topic_is_refused_before_the_decision_and_what_is_taken_arrives(
        self, make_sink, tmp_path
    ):
        sink = make_sink(config={"message_timestamp_before_max_ms": "100000"}, timestamp="at")
        driver = Driver(sink, tmp_path)
        for age_s in (95, 200):
            with pytest.raises(SchemaError, match="further behind now") as refused:
                driver.prepare(0, aged(age_s))
            assert "message.timestamp.before.max.ms" in refused.value.hint
        driver.deliver(0, aged(80), aged(None))
        assert len(read(sink.servers, sink.topic, 2)) == 2

    def test_an_epoch_that_has_grown_too_old_is_delivered_when_the_bound_is_raised(self, make_sink, tmp_path):
        sink = make_sink(timestamp="at")
        driver = Driver(sink, tmp_path)
        records = driver.prepare(0, aged(80), aged(None))
        alter(sink, "message.timestamp.before.max.ms", "50000")
        outcome = driver.commit(0, records)
        assert outcome.kind is Kind.RETRY
        assert "nothing was changed" in outcome.reason
        alter(sink, "message.timestamp.before.max.ms", "500000")
        assert driver.commit(0, records).kind is Kind.COMMITTED
        assert len(read(sink.servers, sink.topic, 2)) == 2

    def test_a_topic_that_has_times_of_its_own_takes_any(self, make_sink, tmp_path):
        config = {"message_timestamp_before_max_ms": "1000", "message_timestamp_type": "LogAppendTime"}
        sink = make_sink(config=config, timestamp="at")
        Driver(sink, tmp_path).deliver(0, aged(100))
        assert len(read(sink.servers, sink.topic, 1)) == 1


class TestNoAnswer:
    """What could not be asked is not taken for what is usual: an answer may come later, and the epoch is decided by then."""

    @pytest.fixture
    def silence(self, monkeypatch):
        def silence():
            def silent(*_):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))

            for question in ("_settings", "broker_settings"):
                monkeypatch.setattr(f"pakka.kafka_cluster.Cluster.{question}", silent)

        return silence

    def test_a_topic_that_does_not_say_what_it_takes_is_asked_again(self, make_sink, tmp_path, silence, monkeypatch):
        sink = make_sink(config={"max_message_bytes": "3000"}, format="raw")
        driver = Driver(sink, tmp_path)
        _kafka_topic.forget()
        silence()
        with pytest.raises(UnavailableError, match="no answer"):
            driver.prepare(0, pa.record_batch({"value": [b"x" * 5000]}))
        monkeypatch.undo()
        with pytest.raises(SchemaError, match="takes 3000"):
            driver.prepare(0, pa.record_batch({"value": [b"x" * 5000]}))

    def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again(self, make_sink, monkeypatch):
        sink = make_sink()
        cluster = Cluster(sink.address)
        honest, asked = cluster.admin.describe_configs, []

        def late(resources, **options):
            asked.append(resources)
            unheard = [ConfigResource(ResourceType.TOPIC, f"{sink.topic}.unheard")]
            return honest(unheard if len(asked) == 1 else resources, **options)

        monkeypatch.setattr(cluster.admin, "describe_configs", late)
        assert cluster.topic_settings(sink.topic)["cleanup.policy"] == "delete"
        assert len(asked) == 2

    def test_how_long_a_transaction_may_last_is_not_guessed(self, make_sink, silence):
        sink = make_sink()
        silence()
        with pytest.raises(UnavailableError, match="no answer"):
            sink.transaction_ms(Cluster(sink.address))

    def test_a_ledger_of_unknown_policy_is_not_taken(self, make_sink, tmp_path, silence):
        sink = make_sink()
        Driver(sink, tmp_path)
        silence()
        with pytest.raises(UnavailableError, match="ledger topic"):
            Driver(sink, tmp_path, fence=2)
