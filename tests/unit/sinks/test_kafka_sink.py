"""The Kafka sink on a real broker: what it writes, what it refuses before it is too late, and what it says when it cannot."""

import datetime as dt
import io
import json
import time
from contextlib import closing
from types import SimpleNamespace

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.protocol.producer import EndTxnRequest

from pakka.errors import ConfigError, FencedError, SchemaError, SinkError, UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_applier, _kafka_mender, _kafka_topic
from pakka.sinks._kafka_batch import CODECS
from pakka.sinks._kafka_facts import read_facts
from pakka.sinks._kafka_ledger import SETTINGS, LedgerTopic, Page
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_raw import Registry
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.spooled import Token
from tests.unit.sinks.kafka_kit import PATIENCE_S, SCHEMA, Driver, alter, maker_of, packed, read, refunds, values

SERVERS = "127.0.0.1:1"


def unread():
    raise UnavailableError("the ledger cannot be read")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"servers": "broker", "topic": "t"}, "host and port"),
            ({"servers": "broker:x", "topic": "t"}, "host and port"),
            ({"servers": SERVERS}, "one of `topic` and `topic_column`"),
            ({"servers": SERVERS, "topic": "t", "topic_column": "c"}, "one of `topic` and `topic_column`"),
            ({"servers": SERVERS, "topic": "__transaction_state"}, "of Kafka's or of pakka's own"),
            ({"servers": SERVERS, "topic": "pakka.ledger.refunds.out"}, "of Kafka's or of pakka's own"),
            ({"servers": SERVERS, "topic": "t", "partitions": 3}, "`create` is off"),
            ({"servers": SERVERS, "topic": "t", "max_record_bytes": 0}, "`max_record_bytes` is 0"),
            ({"servers": SERVERS, "topic": "t", "schema": '"long"'}, "`schema` is for `format: avro`"),
            ({"servers": SERVERS, "topic": "t", "format": "avro", "schema": "no/such.avsc"}, "cannot be read"),
            ({"servers": SERVERS, "topic": "t", "settings": {"queue.buffering.max.messages": 9}}, "a bound of its own"),
            ({"servers": SERVERS, "topic": "t", "settings": {"transactional.id": "x"}}, "it is the fence"),
            ({"servers": SERVERS, "topic": "t", "settings": {"acks": 1}}, "may not have `acks`"),
            ({"servers": SERVERS, "topic": "t", "settings": {"lingerms": 5}}, "No such configuration property"),
            ({"servers": SERVERS, "topic": "t", "settings": {"linger.ms": "soon"}}, "Invalid value"),
            ({"servers": SERVERS, "topic": "t", "settings": {"batch.size": "5e5"}}, "'5e5', which is no whole number"),
            ({"servers": SERVERS, "topic": "t", "settings": {"message.timeout.ms": "300s"}}, "no whole number"),
        ],
    )
    def test_what_cannot_be_right_is_refused_before_anything_is_started(self, options, told):
        with pytest.raises(ConfigError, match=told) as refused:
            KafkaSink(**options)
        assert refused.value.hint

    @pytest.mark.parametrize("name", ["LZ4", "Gzip", "snappy"])
    def test_a_codec_is_known_however_it_is_written(self, name):
        assert KafkaSink(SERVERS, topic="t", settings={"compression.type": name}).codec in CODECS

    def test_a_secret_is_in_no_text_of_the_sink(self):
        sink = KafkaSink(SERVERS, topic="t", settings={"sasl.password": "s3cret"})
        assert "s3cret" not in f"{sink!r} {sink.target()} {sink.address} {sink.address!r}"
        assert sink.address.scrub("login with s3cret failed\nbadly") == "login with *** failed; badly"

    def test_a_wrong_setting_is_told_without_the_secrets(self):
        with pytest.raises(ConfigError) as refused:
            KafkaSink(SERVERS, topic="t", settings={"sasl.password": "s3cret", "bogus": "s3cret"})
        assert "s3cret" not in str(refused.value)

    def test_a_url_names_servers_and_a_topic(self):
        sink = KafkaSink.from_url("kafka://one:9092,two:9092/refunds")
        assert (sink.servers, sink.topic) == ("one:9092,two:9092", "refunds")
        assert KafkaSink.from_url("kafka://one:9092").topic

    def test_names_are_made_of_the_prefix_the_pipeline_and_the_sink(self):
        sink, binding = KafkaSink(SERVERS, topic="t"), Binding("refunds", "out", "")
        assert sink.transactional_id(binding) == "pakka.refunds.out"
        assert sink.ledger_topic(binding) == "pakka.ledger.refunds.out"

    def test_brokers_that_are_not_there_are_told_with_the_reason(self, tmp_path, monkeypatch):
        monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 1.0)
        sink = KafkaSink(SERVERS, topic="t")
        with pytest.raises(UnavailableError, match=r"Connection refused.*nothing was changed") as told:
            sink.open_committer(Binding("refunds", "out", str(tmp_path)), 1).ledger()
        assert "`servers`" in told.value.hint

    @pytest.mark.parametrize(
        ("binding", "subject"), [(Binding("refunds", "out", ""), r"sink `refunds\.out`"), (None, "kafka")]
    )
    def test_a_look_at_the_settings_of_brokers_that_are_not_there_names_the_sink(self, monkeypatch, binding, subject):
        monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 1.0)
        with pytest.raises(UnavailableError, match=rf"^{subject}: kafka://.*Connection refused"):
            read_facts(KafkaSink(SERVERS, topic="t"), binding)


class TestPage:
    @pytest.mark.parametrize("topics", [(), ("paid", "refunds")])
    def test_a_page_comes_back_as_it_was(self, topics):
        page = Page(7, 412, '{"v":1}', topics)
        assert Page.from_bytes("sink", "ledger", page.to_bytes()) == page

    def test_a_page_that_names_no_topics_is_as_older_releases_wrote_it(self):
        assert Page(7, 412, "x").to_bytes() == b'{"v":1,"fence":7,"epoch":412,"entry":"x"}'

    def test_a_page_of_a_newer_pakka_is_refused(self):
        with pytest.raises(SinkError, match="newer pakka"):
            Page.from_bytes("sink", "ledger", b'{"v":2}')

    @pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'"x"', b'{"v":1}', b"\xff"])
    def test_what_pakka_did_not_write_is_refused(self, raw):
        with pytest.raises(SinkError, match="did not write"):
            Page.from_bytes("sink", "ledger", raw)


@pytest.fixture
def make_sink(kafka_server, kafka_topics):
    """A sink on a fresh topic, whose ledger goes with it."""
    yield maker_of(kafka_server, kafka_topics)
    _kafka_topic.forget()


@pytest.mark.kafka
class TestRecords:
    def test_every_part_of_a_record_arrives(self, make_sink, tmp_path):
        sink = make_sink(parts=3, key="id", headers="h", partition="p", timestamp="at")
        at = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
        rows = {"id": ["a", "b"], "amount": [1, 2], "h": [[("h1", b"x")], None], "p": [2, 0], "at": [at, None]}
        schema = pa.schema(
            [
                ("id", pa.string()),
                ("amount", pa.int64()),
                ("h", pa.map_(pa.string(), pa.binary())),
                ("p", pa.int32()),
                ("at", pa.timestamp("us", "UTC")),
            ]
        )
        Driver(sink, tmp_path).deliver(0, pa.RecordBatch.from_pydict(rows, schema=schema))
        first, second = sorted(read(sink.servers, sink.topic, 2), key=lambda record: record.key())
        assert (first.key(), json.loads(first.value())) == (b"a", {"id": "a", "amount": 1})
        assert (first.partition(), first.headers()) == (2, [("h1", b"x")])
        assert first.timestamp()[1] == int(at.timestamp() * 1000)
        assert (second.key(), second.partition(), second.headers()) == (b"b", 0, None)

    def test_avro_is_read_back_by_the_schema_of_a_file(self, make_sink, tmp_path):
        schema = {"type": "record", "name": "Refund", "fields": [{"name": "id", "type": "long"}]}
        path = tmp_path / "refund.avsc"
        path.write_text(json.dumps(schema))
        sink = make_sink(format="avro", schema=str(path))
        path.unlink()  # the executors never see the file
        Driver(sink, tmp_path).deliver(0, pa.record_batch({"id": [7]}))
        (record,) = read(sink.servers, sink.topic, 1)
        assert fastavro.schemaless_reader(io.BytesIO(record.value()), schema, None) == {"id": 7}

    def test_topics_of_a_column_change_in_one_transaction(self, make_sink, kafka_topics, tmp_path):
        one, two = (kafka_topics.create(name) for name in ("one", "two"))
        sink = make_sink(topic_column="to")
        batch = pa.record_batch({"id": [1, 2, 3], "to": [one, two, one]})
        driver = Driver(sink, tmp_path)
        driver.deliver(0, batch)
        assert sorted(v["id"] for v in values(sink.servers, one, 2)) == [1, 3]
        assert values(sink.servers, two, 1) == [{"id": 2}]
        assert driver.committer.applier.book.read(is_settled=True).topics == tuple(sorted([one, two]))
        with pytest.raises(SchemaError, match="no such topic"):
            driver.prepare(1, pa.record_batch({"id": [4], "to": [f"{two}-missing"]}))

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    def test_topics_of_a_column_that_are_gone_leave_the_ledger(
        self, way, make_sink, kafka_topics, tmp_path, monkeypatch
    ):
        """It would grow for ever. Those that are there stay, also if no row names them any more."""
        monkeypatch.setattr(_kafka_applier, "FEW_TOPICS", 0)
        one, two, *days = (kafka_topics.create(name) for name in ("one", "two", "mon", "tue", "wed", "thu"))
        sink = make_sink(topic_column="to", way=way)
        driver = Driver(sink, tmp_path)
        driver.deliver(0, pa.record_batch({"id": [1, 2], "to": [one, two]}))
        for number, day in enumerate(days, start=1):
            driver.deliver(number, pa.record_batch({"id": [1, 2], "to": [one, day]}))
            kafka_topics.delete(day)
        with closing(sink.open_book(driver.binding)) as book:
            known = set(book.read(is_settled=True).topics) - {sink.slots_topic(driver.binding)}
            # Of those that were new when it was asked last, a broker may not have heard yet.
            assert known == {one, two, *days[{"spooled": -2, "prepared": -1, "sharded": -1}[way] :]}
            driver.committer.close()
            Driver(sink, tmp_path, fence=2)
            known = set(book.read(is_settled=True).topics) - {sink.slots_topic(driver.binding)}
            assert known == {one, two}

    @pytest.mark.parametrize("way", ["prepared", "sharded"])
    def test_topics_of_slots_that_are_committed_later_stand_in_the_ledger_before_they_are(
        self, way, make_sink, kafka_topics, tmp_path
    ):
        """What is left open in a topic is looked for where the ledger names it."""
        one, two = kafka_topics.create("one"), kafka_topics.create("two")
        sink = make_sink(topic_column="to", way=way)
        driver = Driver(sink, tmp_path)
        batches = [pa.record_batch({"id": [1], "to": [topic]}) for topic in (one, two)]
        epoch = Epoch("refunds", 0, Origin("query", 0, "offsets-0"))
        with closing(sink.open_book(driver.binding)) as book:
            named = []
            for record in driver.prepare(0, *batches):
                (outcome,) = driver.committer.commit(epoch, [record])
                assert outcome.is_final
                named.append({one, two} & set(book.read(is_settled=True).topics))
        assert named == [{one}, {one, two}]

    def test_a_missing_topic_is_made_if_that_is_wanted(self, make_sink, kafka_topics, tmp_path):
        sink = make_sink(create=True, partitions=3, topic=kafka_topics.name("new"))
        Driver(sink, tmp_path).deliver(0, refunds(1, 2))
        assert len(values(sink.servers, sink.topic, 2)) == 2
        topic = Cluster(sink.address).topic(sink.topic)
        assert topic is not None
        assert len(topic.partitions) == 3

    def test_a_missing_topic_is_refused_at_the_start(self, make_sink, kafka_topics, tmp_path):
        with pytest.raises(SinkError, match=r"there is no topic `.*missing`; nothing was changed") as refused:
            Driver(make_sink(topic=kafka_topics.name("missing")), tmp_path)
        assert "create: true" in refused.value.hint

    def test_a_topic_that_goes_missing_is_refused_before_anything_is_staged(self, make_sink, kafka_topics, tmp_path):
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        kafka_topics.delete(sink.topic)
        _kafka_topic.forget()
        with pytest.raises(SchemaError, match="no such topic"):
            driver.prepare(0, refunds(1))
        assert not driver.committer.pending()


@pytest.mark.kafka
class TestLedger:
    def test_it_is_made_to_last_and_to_stay_small(self, make_sink, tmp_path):
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        name = sink.ledger_topic(driver.binding)
        cluster = Cluster(sink.address)
        settings = cluster.topic_settings(name)
        assert {key: settings[key] for key in SETTINGS} == SETTINGS
        topic = cluster.topic(name)
        assert topic is not None
        assert topic.partitions == (0,)

    @pytest.mark.parametrize(
        ("partitions", "policy", "told"), [(2, "compact", "has 2 partitions"), (1, "delete", "cleanup.policy=delete")]
    )
    def test_one_that_would_forget_is_refused(self, partitions, policy, told, make_sink, tmp_path):
        sink = make_sink()
        name = sink.ledger_topic(Binding("refunds", "out", ""))
        Cluster(sink.address).create(name, partitions, 1, {"cleanup.policy": policy})
        with pytest.raises(SinkError, match=told):
            Driver(sink, tmp_path)

    def test_the_newest_page_is_found_behind_many_aborted_ones(self, make_sink, tmp_path):
        """More of them than are looked at first."""
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(1))
        name, key = sink.ledger_topic(driver.binding), b"refunds.out"
        other = Producer({"bootstrap.servers": sink.servers, "transactional.id": f"{name}-other"})
        other.init_transactions(PATIENCE_S)
        for _ in range(60):
            other.begin_transaction()
            other.produce(name, Page(99, 99).to_bytes(), key)
            other.flush(PATIENCE_S)
            other.abort_transaction(PATIENCE_S)
        page = LedgerTopic("sink", sink.address, name, key.decode()).read(is_settled=True)
        assert (page.fence, page.epoch) == (1, 0)

    def test_records_of_another_key_are_passed_over(self, make_sink, tmp_path):
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        name = sink.ledger_topic(driver.binding)
        other = Producer({"bootstrap.servers": sink.servers})
        other.produce(name, b"what is this", b"other")
        other.flush(PATIENCE_S)
        assert LedgerTopic("sink", sink.address, name, "refunds.out").read(is_settled=True).fence == 1

    def test_a_sink_that_was_never_used_has_an_empty_page(self, make_sink, tmp_path):
        committer = make_sink().open_committer(Binding("refunds", "out", str(tmp_path)), 1)
        assert (committer.ledger().fence, committer.ledger().last) == (0, None)


@pytest.mark.kafka
class TestTransaction:
    def test_the_source_s_offsets_are_committed_with_the_records(self, make_sink, kafka_topics, tmp_path):
        sink, group = make_sink(), kafka_topics.name("group")
        source = kafka_topics.create("source", 2)
        cluster = Cluster(sink.address).id
        driver = Driver(sink, tmp_path)
        self._deliver(driver, 0, cluster, group, {source: {"0": 42, "1": 7}})
        assert self._offsets(sink, group, source) == [42, 7]
        # Offsets of another cluster are none of this one's, even if a topic of that name is here.
        self._deliver(driver, 1, "another", group, {source: {"0": 99, "1": 99}})
        for epoch, position in enumerate(["file 7 of 9", "[]", '{"lsn": "0/1"}'], start=2):
            driver.deliver(epoch, refunds(epoch), position=position)
        assert self._offsets(sink, group, source) == [42, 7]

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    def test_a_source_topic_that_is_gone_keeps_no_decided_epoch_back(
        self, way, make_sink, kafka_topics, tmp_path, caplog
    ):
        sink, group, gone = make_sink(way=way), kafka_topics.name("group"), kafka_topics.name("gone")
        source = kafka_topics.create("source", 2)
        offsets = {source: {"0": 42, "1": 7, "2": 5}, gone: {"0": 9}}
        self._deliver(Driver(sink, tmp_path), 0, Cluster(sink.address).id, group, offsets)
        assert self._offsets(sink, group, source) == [42, 7]
        assert len(values(sink.servers, sink.topic, 1)) == 1
        assert f"not there any more: partition 0 of topic `{gone}`, partition 2 of topic `{source}`" in caplog.text

    def test_the_first_group_of_a_cluster_is_asked_for_until_its_coordinator_is_there(self, make_sink, monkeypatch):
        cluster = Cluster(make_sink().address)
        moving = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError._DESTROY_BROKER]
        wait = cluster._wait

        def waited(future):
            if moving:
                raise KafkaException(KafkaError(moving.pop()))
            return wait(future)

        monkeypatch.setattr(cluster, "_wait", waited)
        assert "READ" in cluster.group_operations("nobody-s")
        assert not moving

    @pytest.mark.parametrize(
        ("code", "words"),
        [(KafkaError._TRANSPORT, "transport failure"), (KafkaError._DESTROY_BROKER, "Broker handle destroyed")],
    )
    def test_a_broker_that_dies_while_it_is_asked_for_its_cluster_is_told_as_one_that_is_away(
        self, make_sink, tmp_path, monkeypatch, code, words
    ):
        """Before the decision, so that the epoch is aborted and runs again."""
        driver = Driver(make_sink(), tmp_path)

        def dying(_):
            raise KafkaException(KafkaError(code))

        monkeypatch.setattr(Cluster, "id", property(dying))
        position = {"kafka": {"cluster": "c", "group": "g", "offsets": {"source": {"0": 5}}}}
        with pytest.raises(UnavailableError, match=rf"sink `refunds.out`.*{words}"):
            driver.committer.check_position(json.dumps(position))

    def test_offsets_of_an_epoch_that_fails_are_not_committed(self, make_sink, kafka_topics, tmp_path):
        sink, group, source = make_sink(), kafka_topics.name("group"), kafka_topics.create("source", 2)
        applier = Driver(sink, tmp_path).committer.applier
        position = {"kafka": {"cluster": Cluster(sink.address).id, "group": group, "offsets": {source: {"0": 5}}}}

        def broken():
            yield packed(sink.topic, b"x")
            raise SinkError("the spool is gone")

        with pytest.raises(SinkError, match="the spool is gone"):
            applier.apply(Token("refunds.out", 1, 0, 2, "", "entry", json.dumps(position)), broken())
        assert self._offsets(sink, group, source) == [-1001, -1001]
        assert read(sink.servers, sink.topic) == []

    def test_a_driver_that_was_disturbed_repeats_and_goes_on(self, make_sink, tmp_path, caplog, monkeypatch):
        """An older driver that wakes up asks for the id, finds the newer fence and goes. It has disturbed, and written nothing."""
        # Without an answer in time the driver would take the id anew, and not notice.
        monkeypatch.setattr(_kafka_mender, "_MARKERS_S", PATIENCE_S)
        sink = make_sink()
        driver = Driver(sink, tmp_path, fence=2)
        driver.deliver(0, refunds(1))
        zombie = Registry("zombie", sink.address)
        zombie.take(sink.transactional_id(driver.binding))
        zombie.close()
        records = driver.prepare(1, refunds(2))
        outcome = driver.commit(1, records)
        assert outcome.kind is Kind.RETRY
        assert "somebody else has asked" in outcome.reason
        assert [(r.about, r.sink) for r in caplog.records if r.name == "pakka"] == [("aborted", "out")]
        assert driver.commit(1, records).kind is Kind.COMMITTED
        assert [v["id"] for v in values(sink.servers, sink.topic, 2)] in ([1, 2], [2, 1])

    def test_a_yes_of_a_broker_that_did_not_grant_the_transaction_is_not_believed(
        self, make_sink, tmp_path, monkeypatch
    ):
        """One that was overtaken knows the transaction before, which had the same handle, as committed, and says so alone."""
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(1))
        send, begin, unheard = Post._send, Post.begin_in, [1]

        def send_all_but_the_end(post, request, node):
            if unheard and isinstance(request, EndTxnRequest) and request.committed:
                unheard.pop()
                return SimpleNamespace(error_code=0)
            return send(post, request, node)

        monkeypatch.setattr(Post, "_send", send_all_but_the_end)
        monkeypatch.setattr(Post, "begin_in", lambda *args: begin(*args) + len(unheard))
        records = driver.prepare(1, refunds(2))
        outcome = driver.commit(1, records)
        assert outcome.kind is Kind.UNKNOWN, outcome
        assert "may be the one before" in outcome.reason
        assert driver.commit(1, records).kind is Kind.COMMITTED
        assert sorted(v["id"] for v in values(sink.servers, sink.topic, 2)) == [1, 2]

    def test_a_ledger_that_a_broker_reads_short_is_not_written_on(self, make_sink, tmp_path, monkeypatch):
        """A leader that was overtaken and still answers has an end of its own. What it lacks would be delivered again."""
        sink = make_sink()
        first = Driver(sink, tmp_path)
        first.deliver(0, refunds(1))
        short = LedgerTopic("short", sink.address, sink.ledger_topic(first.binding), "refunds.out").read_to_end(
            is_settled=True
        )
        records = first.prepare(1, refunds(2))
        assert first.commit(1, records).kind is Kind.COMMITTED
        read, answers = LedgerTopic.read_to_end, [short]

        def read_short(book, *, is_settled):
            return answers.pop() if is_settled and answers else read(book, is_settled=is_settled)

        monkeypatch.setattr(LedgerTopic, "read_to_end", read_short)
        committer = sink.open_committer(first.binding, 2)
        with pytest.raises(UnavailableError, match="what is between them may be committed epochs"):
            committer.raise_fence()
        assert not answers
        assert committer.raise_fence()
        named = Epoch("refunds", 1, Origin("query", 1, "offsets-1", ""))
        assert committer.commit_epoch(named, records).kind is Kind.ALREADY_COMMITTED
        assert sorted(v["id"] for v in values(sink.servers, sink.topic, 2)) == [1, 2]

    def test_an_epoch_that_was_committed_and_is_not_in_the_ledger_any_more_stops_the_driver(
        self, make_sink, tmp_path, monkeypatch
    ):
        sink = make_sink()
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(1))
        applier = driver.committer.applier
        older, end = applier.book.read_to_end(is_settled=True)
        driver.deliver(1, refunds(2))
        applier._drop()
        monkeypatch.setattr(LedgerTopic, "read_to_end", lambda *_, **__: (older, end))
        outcome = driver.commit(2, driver.prepare(2, refunds(3)))
        assert outcome.kind is Kind.RETRY, outcome
        assert "epoch 0 as its newest, and this driver was told that epoch 1 is committed" in outcome.reason
        assert sorted(v["id"] for v in values(sink.servers, sink.topic, 2)) == [1, 2]

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    def test_the_ledger_names_the_topic_of_the_sink(self, make_sink, tmp_path, way):
        """If another one is named tomorrow, whoever has the id then looks for what is open in this one, too."""
        sink = make_sink(way=way)
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(1))
        assert sink.topic in sink.open_book(driver.binding).read(is_settled=True).topics

    def test_an_older_driver_in_the_middle_of_an_epoch_is_shut_out(self, make_sink, tmp_path):
        sink = make_sink()
        old = Driver(sink, tmp_path, fence=1)
        applier = old.committer.applier

        def overtaken():
            Driver(sink, tmp_path, fence=2)
            yield packed(sink.topic, b"x")

        with pytest.raises(FencedError, match="fence 1 lost to fence 2"):
            applier.apply(Token("refunds.out", 1, 0, 1, "", "entry"), overtaken())
        assert read(sink.servers, sink.topic) == []

    def test_a_writer_that_cannot_ask_who_overtook_it_holds_nothing_open(self, make_sink, tmp_path, monkeypatch):
        sink = make_sink(way="prepared")
        driver = Driver(sink, tmp_path)
        writer = sink.open_writer(driver.binding, Slot("refunds", "out", 0, 1, 0, 0), SCHEMA)
        writer.write(refunds(1))
        zombie = Registry("zombie", sink.address)
        zombie.take(writer.id)
        zombie.close()
        monkeypatch.setattr(writer.control.book, "read", unread)
        with pytest.raises(UnavailableError, match="cannot be read"):
            writer.prepare("0" * 16)
        assert (writer._outbox, writer._handle) == (None, None)

    def test_a_transaction_that_takes_too_long_is_told_as_such_and_may_be_repeated(
        self, make_sink, tmp_path, monkeypatch
    ):
        sink = make_sink(settings={"transaction.timeout.ms": 4000, "message.timeout.ms": 4000})
        driver = Driver(sink, tmp_path)

        def slow():
            for _ in range(60):
                time.sleep(0.2)
                yield packed(sink.topic, b"x")

        with pytest.raises(UnavailableError, match=r"took \d+ s, and the brokers end it after 4 s") as told:
            driver.committer.applier.apply(Token("refunds.out", 1, 0, 60, "", "entry"), slow())
        assert "transaction.timeout.ms" in told.value.hint
        driver.deliver(0, refunds(1))
        assert values(sink.servers, sink.topic, 1) == [{"id": 1, "merchant": "chai corner"}]

    def test_a_transaction_may_last_as_long_as_the_brokers_allow(self, make_sink):
        sink = make_sink()
        assert sink.transaction_ms(Cluster(sink.address)) == 900_000

    def test_a_longer_transaction_than_the_brokers_allow_is_refused_with_the_setting(self, make_sink, tmp_path):
        sink = make_sink(settings={"transaction.timeout.ms": 3_600_000})
        with pytest.raises(SinkError) as refused:
            Driver(sink, tmp_path)
        assert "transaction.max.timeout.ms" in refused.value.hint

    def test_a_topic_that_is_deleted_after_the_decision_stops_the_pipeline_and_loses_nothing(
        self, make_sink, kafka_topics, tmp_path
    ):
        sink = make_sink(settings={"message.timeout.ms": 3000})
        driver = Driver(sink, tmp_path)
        records = driver.prepare(0, refunds(1))
        cluster = Cluster(sink.address)
        kafka_topics.delete(sink.topic)
        outcome = driver.commit(0, records)
        assert outcome.kind is Kind.RETRY
        assert "nothing was changed" in outcome.reason
        cluster.create(sink.topic, 2, 1, {})
        cluster.await_topic(sink.topic)
        outcome = self._repeated(driver, records)
        assert outcome.kind is Kind.COMMITTED, outcome.reason
        assert len(values(sink.servers, sink.topic, 1)) == 1

    def test_after_records_were_refused_the_next_transaction_is_taken(self, make_sink, tmp_path):
        sink = make_sink(parts=1)
        driver = Driver(sink, tmp_path)
        records = driver.prepare(0, refunds(1, merchant="x" * 10_000))
        alter(sink, "max.message.bytes", "1000")
        outcome = driver.commit(0, records)
        assert outcome.kind is Kind.RETRY
        assert "Message size too large" in outcome.reason
        assert "raise `max.message.bytes`" in outcome.hint
        alter(sink, "max.message.bytes", "1000000")
        assert driver.commit(0, records).kind is Kind.COMMITTED
        assert len(values(sink.servers, sink.topic, 1)) == 1

    @staticmethod
    def _repeated(driver, records):
        outcome = driver.commit(0, records)
        for _ in range(10):
            if outcome.is_final:
                break
            outcome = driver.commit(0, records)
        return outcome

    @staticmethod
    def _deliver(driver, epoch, cluster, group, offsets):
        position = {"kafka": {"cluster": cluster, "group": group, "offsets": offsets}}
        driver.deliver(epoch, refunds(epoch), position=json.dumps(position))

    @staticmethod
    def _offsets(sink, group, topic):
        reader = Consumer({"bootstrap.servers": sink.servers, "group.id": group})
        try:
            return [p.offset for p in reader.committed([TopicPartition(topic, n) for n in (0, 1)], PATIENCE_S)]
        finally:
            reader.close()
