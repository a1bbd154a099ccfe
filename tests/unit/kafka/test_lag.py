"""How far behind a reader of a real topic is, and what an open transaction keeps from it."""

import json
import time
import uuid
from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pakka import kafka_cluster
from pakka.contract.lag import Lag, Lagging, LaggingSink, Timed
from pakka.contract.pipeline import Pipeline
from pakka.errors import UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.kafka_line import Address
from pakka.kafka_transactions import CannotAskError
from pakka.observe import catalogue as c
from pakka.observe.figures import SOURCE, Figures, sink_part
from pakka.observe.sampler import Sampler
from pakka.sinks.kafka import KafkaSink
from pakka.sources import kafka
from pakka.sources.kafka import KafkaSource
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import Driver

ANSWERS_S = 30


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Whoever asks since when a transaction is open waits for the record that tells, also on a busy machine."""
    monkeypatch.setattr(kafka_cluster, "_RECORDS_S", ANSWERS_S)


@pytest.fixture
def topic(kafka_topics) -> str:
    """Two partitions; the second has five committed records."""
    name = kafka_topics.create("settlements", partitions=2)
    producer = Producer({"bootstrap.servers": kafka_topics.bootstrap})
    for number in range(5):
        producer.produce(name, value=str(number), partition=1)
    assert producer.flush(ANSWERS_S) == 0
    return name


def opened(servers: str, topic: str, records: int, age_s: float = 0) -> Producer:
    """A transaction with so many records in the first partition, of events so long ago, which is left open."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(ANSWERS_S)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, value=str(number), partition=0, timestamp=int((time.time() - age_s) * 1000))
    assert producer.flush(ANSWERS_S) == 0
    return producer


def position(topic: str, first: int, second: int) -> str:
    reached = {topic: {"0": first, "1": second}}
    return json.dumps({"kafka": {"cluster": "c", "group": "g", "offsets": reached}})


@pytest.mark.kafka
class TestOnABroker:
    def test_a_reader_is_behind_by_what_is_committed_and_not_read(self, kafka_topics, topic):
        source = KafkaSource(kafka_topics.bootstrap, topic, format="raw")
        assert source.lags(position(topic, 0, 2)) == [Lag(topic, 0, 0, 0, 0.0), Lag(topic, 1, 3, 0, 0.0)]

    def test_without_a_position_it_is_not_known_how_far_behind_the_source_is(self, kafka_topics, topic):
        source = KafkaSource(kafka_topics.bootstrap, pattern=f"{topic}.*", format="raw")
        assert [lag.behind for lag in source.lags("")] == [None, None]

    def test_an_open_transaction_holds_its_records_back_until_it_ends(self, kafka_topics, topic):
        before = time.time()
        producer = opened(kafka_topics.bootstrap, topic, records=3)
        first, second = KafkaSource(kafka_topics.bootstrap, topic, format="raw").lags(position(topic, 0, 5))
        assert (first.behind, first.held) == (0, 3)
        # The record's time is in full milliseconds.
        assert 0 <= first.open_s <= time.time() - before + 0.001
        assert second == Lag(topic, 1, 0, 0, 0.0)
        producer.commit_transaction(ANSWERS_S)
        (first, _) = settled(
            lambda: KafkaSource(kafka_topics.bootstrap, topic, format="raw").lags(position(topic, 0, 5))
        )
        assert (first.behind, first.open_s) == (4, 0.0), "three records, and the marker of the transaction's end"

    def test_the_oldest_of_several_transactions_counts(self, kafka_topics, topic):
        older = opened(kafka_topics.bootstrap, topic, records=1)
        cluster = Cluster(Address.parse("kafka", kafka_topics.bootstrap))
        before = cluster.lags([topic])[0].open_s
        newer = opened(kafka_topics.bootstrap, topic, records=1)
        found = cluster.lags([topic])[0]
        assert found.held == 2
        assert found.open_s >= before
        older.abort_transaction(ANSWERS_S)
        newer.abort_transaction(ANSWERS_S)

    def test_a_transaction_of_old_events_is_open_since_it_was_begun(self, kafka_topics, topic, monkeypatch):
        before = time.time()
        producer = opened(kafka_topics.bootstrap, topic, records=1, age_s=7200)
        cluster = Cluster(Address.parse("kafka", kafka_topics.bootstrap))
        assert 0 <= cluster.lags([topic])[0].open_s <= time.time() - before + 0.001

        def silent(address: Address) -> None:
            raise CannotAskError("nobody tells")

        monkeypatch.setattr(kafka_cluster, "desk", silent)
        assert cluster.lags([topic])[0].open_s >= 7200, "it is not told, and so the record's time has to do"
        producer.abort_transaction(ANSWERS_S)

    def test_whoever_is_told_by_the_coordinator_reads_no_record(self, kafka_topics, topic, monkeypatch):
        """To read them takes longer, and an epoch waits for it when its sink is looked at."""
        producer = opened(kafka_topics.bootstrap, topic, records=1)

        def refuse(*_, **__):
            raise AssertionError("records were read")

        monkeypatch.setattr(Address, "consumer", refuse)
        assert Cluster(Address.parse("kafka", kafka_topics.bootstrap)).lags([topic])[0].open_s >= 0
        producer.abort_transaction(ANSWERS_S)

    def test_large_transactions_in_many_partitions_are_all_told_by_their_records(self, kafka_topics, monkeypatch):
        """A partition with many records must not keep the others from being read: their turn came once a second."""
        name = kafka_topics.create("large", partitions=16)
        producer = opened(kafka_topics.bootstrap, name, records=1)
        for number in range(16_000):
            producer.produce(name, value=b"x" * 100, partition=number % 16)
        assert producer.flush(ANSWERS_S) == 0
        cluster = Cluster(Address.parse("kafka", kafka_topics.bootstrap))
        monkeypatch.setattr(kafka_cluster, "_RECORDS_S", 5.0)
        assert cluster._by_records(cluster.held([name])).keys() == {(name, number) for number in range(16)}
        producer.abort_transaction(ANSWERS_S)

    def test_a_topic_that_is_not_there_has_no_lag(self, kafka_topics):
        cluster = Cluster(Address.parse("kafka", kafka_topics.bootstrap))
        assert cluster.lags([kafka_topics.name("nothing")]) == []

    def test_topics_that_rows_have_named_are_those_of_the_ledger(self, kafka_topics, topic, tmp_path):
        sink = KafkaSink(kafka_topics.bootstrap, topic_column="to", ledger=f"{kafka_topics.prefix}pakka")
        driver = Driver(sink, tmp_path)
        assert sink.lags(driver.binding) == [], "nothing was written yet"
        driver.deliver(0, pa.record_batch({"id": [1], "to": [topic]}))
        with closing(Onlooker(kafka_topics.bootstrap)) as onlooker:
            onlooker.await_markers(kafka_topics.prefix)
        producer = opened(kafka_topics.bootstrap, topic, records=3)
        # Two partitions, and where the one record is decides by how many the marker of its end comes on top.
        assert [(lag.topic, lag.partition) for lag in sink.lags(driver.binding)] == [(topic, 0), (topic, 1)]
        assert sink.lags(driver.binding)[0].held == 3
        producer.abort_transaction(ANSWERS_S)

    def test_the_sampler_brings_both_sides_into_the_metrics(self, kafka_topics, topic, tmp_path):
        out = kafka_topics.create("refunds")
        producer = opened(kafka_topics.bootstrap, topic, records=3)
        sink = KafkaSink(kafka_topics.bootstrap, topic=out)
        source = KafkaSource(kafka_topics.bootstrap, topic, format="raw")
        state = f"sqlite:///{tmp_path}/state.db"
        pipeline = Pipeline("refunds", source, {"out": sink}, state=state, spool=str(tmp_path / "spool"))
        figures = Figures("refunds", pipeline.outputs, time.time)
        Sampler(pipeline, figures).look()
        seen = {reading.metric: dict(reading.values) for reading in figures.read()}
        assert seen[c.HELD] == {
            (*SOURCE, topic, "0"): 3,
            (*SOURCE, topic, "1"): 0,
            (*sink_part("out"), out, "0"): 0,
        }
        assert seen[c.OPEN_S][*sink_part("out"), out, "0"] == 0
        assert seen[c.LOOKS_FAILED][SOURCE] == 0
        producer.abort_transaction(ANSWERS_S)


def settled(ask, patience_s: float = ANSWERS_S) -> list[Lag]:
    """The end of a transaction is shown a moment after it was answered."""
    give_up = time.monotonic() + patience_s
    found = ask()
    while any(lag.held for lag in found):
        assert time.monotonic() < give_up, found
        found = ask()
    return found


def test_both_sides_can_tell():
    assert isinstance(KafkaSink("127.0.0.1:1", topic_column="topic"), LaggingSink)
    assert isinstance(KafkaSource("127.0.0.1:1", "settlements", format="raw"), Lagging)


@pytest.mark.parametrize(
    ("options", "column"),
    [
        ({"format": "raw"}, "timestamp"),
        ({"format": "json", "schema": "id BIGINT", "metadata": True}, "_timestamp"),
        ({"format": "json", "schema": "id BIGINT"}, None),
    ],
)
def test_a_record_has_its_own_time_where_the_rows_keep_it(options, column):
    source = KafkaSource("127.0.0.1:1", "settlements", **options)
    assert isinstance(source, Timed)
    assert source.time_column == column


def test_a_cluster_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 0.5)
    with pytest.raises(UnavailableError, match="source kafka: "):
        KafkaSource("127.0.0.1:1", "settlements", format="raw").lags("")
    assert kafka.offsets_in("") == kafka.offsets_in('{"other": 1}') == {}
