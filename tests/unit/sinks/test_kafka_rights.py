"""Kafka's sink and source on a broker that asks who comes: the rights that their pages name are enough, and what is missing is told by name."""

import json
import time
from contextlib import closing
from dataclasses import replace
from itertools import zip_longest

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from pakka.cli.check import settings_of
from pakka.contract.audit import Severity
from pakka.contract.pipeline import Pipeline
from pakka.errors import PakkaError, RefusedError, SchemaError, SinkError
from pakka.kafka_cluster import Cluster
from pakka.kafka_line import Address
from pakka.model.id import Binding
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_topic
from pakka.sinks._kafka_post import Post
from pakka.sinks.kafka import KafkaSink
from pakka.sources.kafka import KafkaSource
from pakka.sources.rate import RateSource
from tests.fixtures.kafka import Topics, forget_marker, need_kafka, relayed_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, values

pytestmark = pytest.mark.kafka

USER, PASSWORD = "shop", "s3cret"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:SASL_PLAINTEXT",
    "listener.name.relayed.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.relayed.plain.sasl.jaas.config": _LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who comes by the inner door has no name, and may do everything.
    "super.users": "User:ANONYMOUS",
}
DOOR = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
TOPIC, PREFIXED, LITERAL = ResourceType.TOPIC, ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
ENOUGH = {
    ("target", TOPIC, AclOperation.WRITE),
    ("target", TOPIC, AclOperation.DESCRIBE_CONFIGS),
    ("ledger", TOPIC, AclOperation.CREATE),
    ("ledger", TOPIC, AclOperation.READ),
    ("ledger", TOPIC, AclOperation.WRITE),
    ("ledger", TRANSACTIONAL_ID, AclOperation.WRITE),
}
"""As docs/reference/kafka-sink.md has it: on the target, and on all that begins with the prefix of the ledger."""

PLACE = Binding("refunds", "out", "")

TELLING = {("group", ResourceType.GROUP, AclOperation.READ), ("source", TOPIC, AclOperation.READ)}
"""For the offsets of a source in the same cluster."""


@pytest.fixture(scope="module")
def guarded():
    need_kafka()
    with relayed_kafka(settings=SETTINGS) as (kafka, proxy):
        yield kafka.bootstrap, f"127.0.0.1:{proxy.port}", kafka


@pytest.fixture
def topics(guarded):
    topics = Topics(guarded[0])
    yield topics
    forbid_all(guarded[0])
    topics.drop()
    _kafka_topic.forget()


EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def forbid_all(servers):
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for gone in admin.delete_acls([EVERYTHING], request_timeout=PATIENCE_S).values():
        gone.result(PATIENCE_S)
    await_acls(admin, lambda known: not known)


def await_acls(admin, is_so):
    """The controller has answered when it has decided; the broker that is asked for a right hears of it a moment later."""
    give_up = time.monotonic() + PATIENCE_S
    while not is_so(known := set(admin.describe_acls(EVERYTHING).result(PATIENCE_S))):
        assert time.monotonic() < give_up, known
        time.sleep(0.01)


@pytest.fixture
def allow(guarded, topics):
    admin = AdminClient({"bootstrap.servers": guarded[0], "log_level": 2})

    def allow(rights):
        names = {name: (topics.name(name), LITERAL) for name in ("group", "source")}
        names |= {"target": (topics.name("refunds"), LITERAL), "ledger": (f"{topics.prefix}pakka", PREFIXED)}
        bindings = [
            AclBinding(kind, *names[what], f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
            for what, kind, operation in rights
        ]
        for made in admin.create_acls(bindings, request_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)
        await_acls(admin, lambda known: known >= set(bindings))

    return allow


@pytest.fixture
def sink(guarded, topics):
    topics.create("refunds")
    return _sink(guarded[1], topics, PASSWORD)


def _sink(servers, topics, password, **options):
    settings = {**DOOR, "sasl.password": password}
    named = {"topic": topics.name("refunds"), **options}
    return KafkaSink(servers, ledger=f"{topics.prefix}pakka", settings=settings, **named)


@pytest.fixture
def source(guarded, topics):
    return KafkaSource(guarded[1], topics.create("refunds"), format="raw", settings={**DOOR, "sasl.password": PASSWORD})


@pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
def test_the_rights_that_the_page_names_are_enough(sink, allow, guarded, tmp_path, way):
    sink = replace(sink, way=way)
    allow(ENOUGH)
    Driver(sink, tmp_path).deliver(0, pa.record_batch({"id": [1]}))
    Driver(sink, tmp_path, fence=2).deliver(1, pa.record_batch({"id": [2]}))
    assert sorted(v["id"] for v in values(guarded[0], sink.topic, 2)) == [1, 2]


def test_who_may_not_ask_whose_a_transaction_is_ends_what_kafka_forgot_all_the_same(sink, allow, guarded, tmp_path):
    """It takes READ on the target to ask. An end without records does no harm where nothing of ours is open."""
    allow(ENOUGH)
    servers, _, kafka = guarded
    Driver(sink, tmp_path).deliver(0, pa.record_batch({"id": [1]}))
    with closing(Onlooker(servers)) as onlooker:
        onlooker.await_markers("test-")
    kafka.kill()
    forget_marker(kafka, sink.topic)
    kafka.restart()
    assert values(servers, sink.topic) == []
    Driver(sink, tmp_path, fence=2)
    assert [v["id"] for v in values(servers, sink.topic, 1)] == [1]


def test_who_may_not_ask_goes_on_beside_a_stranger_s_transaction(sink, allow, guarded, tmp_path):
    allow(ENOUGH)
    own = {"transactional.id": f"{sink.topic}.stranger", "transaction.timeout.ms": 600_000}
    stranger = Producer({"bootstrap.servers": guarded[0], **own})
    stranger.init_transactions(PATIENCE_S)
    stranger.begin_transaction()
    stranger.produce(sink.topic, b'{"id":99}')
    stranger.flush(PATIENCE_S)
    driver = Driver(sink, tmp_path)
    driver.deliver(0, pa.record_batch({"id": [1]}))
    driver.deliver(1, pa.record_batch({"id": [2]}))
    stranger.commit_transaction(PATIENCE_S)
    assert sorted(v["id"] for v in values(guarded[0], sink.topic, 3)) == [1, 2, 99]


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (("target", TOPIC, AclOperation.WRITE), "topic"),
        (("target", TOPIC, AclOperation.DESCRIBE_CONFIGS), "topic"),
        (("ledger", TOPIC, AclOperation.CREATE), "topic"),
        (("ledger", TOPIC, AclOperation.READ), "topic"),
        (("ledger", TOPIC, AclOperation.WRITE), "topic"),
        (("ledger", TRANSACTIONAL_ID, AclOperation.WRITE), "transactional-id"),
    ],
    ids=lambda given: f"{given[0]}-{given[1].name}-{given[2].name}" if isinstance(given, tuple) else given,
)
def test_a_right_that_is_missing_is_named_at_the_start_and_nothing_is_written(
    missing, told, sink, allow, guarded, tmp_path
):
    allow(ENOUGH - {missing})
    with pytest.raises(PakkaError) as refused:
        Driver(sink, tmp_path)
    assert isinstance(refused.value, SinkError), refused.value
    assert f"--{told}" in refused.value.hint or "--cluster" in refused.value.hint, refused.value
    assert values(guarded[0], sink.topic) == []


def await_rights(sink, value, binding=PLACE):
    """What the probe finds, when it is this: a broker takes rights into use a moment after it was told."""
    probing = sink.probing(binding) if binding else sink
    (probe,) = [probe for probe in probing.probes() if probe.name == "rights"]
    give_up = time.monotonic() + PATIENCE_S
    while (finding := probe.look()).value != value:
        assert time.monotonic() < give_up, finding
        time.sleep(0.05)
    return finding


def give(servers, kind, name, operation, pattern=LITERAL, permission=AclPermissionType.ALLOW):
    """One right; or take it away, by DENY."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    made = AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, permission)
    for done in admin.create_acls([made], request_timeout=PATIENCE_S).values():
        done.result(PATIENCE_S)


def mend(servers, sink, finding):
    """Do what the fix says: one command or several."""
    for command in finding.fix.split("; "):
        words = command.split()
        assert words[:4] == ["kafka-acls.sh", "--bootstrap-server", sink.servers, "--add"]
        said = dict(zip(words[4::2], words[5::2], strict=True))
        assert said.pop("--allow-principal") == f"User:{USER}"
        operation = AclOperation[said.pop("--operation")]
        pattern = PREFIXED if said.pop("--resource-pattern-type", "") == "prefixed" else LITERAL
        ((kind, name),) = said.items()
        give(servers, {"--topic": TOPIC, "--transactional-id": TRANSACTIONAL_ID}[kind], name, operation, pattern)


class TestProbe:
    """The probe asks for each right, to what is there and to what is not yet, and changes nothing by it."""

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    @pytest.mark.parametrize("is_there", [False, True], ids=["first run", "later run"])
    @pytest.mark.parametrize(
        ("missing", "told"),
        [
            (("target", TOPIC, AclOperation.WRITE), "no WRITE on topic {target}"),
            (("target", TOPIC, AclOperation.DESCRIBE_CONFIGS), "no DESCRIBE_CONFIGS on topic {target}"),
            (("ledger", TOPIC, AclOperation.READ), "no READ on topic {book}"),
            (("ledger", TOPIC, AclOperation.WRITE), "no WRITE on topic {book}"),
            (("ledger", TRANSACTIONAL_ID, AclOperation.WRITE), "no WRITE on {id}"),
        ],
        ids=lambda given: f"{given[0]}-{given[1].name}-{given[2].name}" if isinstance(given, tuple) else "",
    )
    def test_a_right_that_is_missing_is_named_and_its_fix_gives_it(
        self, missing, told, is_there, way, sink, allow, guarded, topics
    ):
        sink = replace(sink, way=way)
        ident, is_prepared = sink.transactional_id(PLACE), way != "spooled"
        books = [sink.ledger_topic(PLACE), *([sink.slots_topic(PLACE)] if is_prepared else [])]
        ids = [f"transactional id {ident}", *([f"transactional ids that begin with {ident}."] if is_prepared else [])]
        for book in books if is_there else ():
            topics.create(book.removeprefix(topics.prefix), cleanup_policy="compact")
        allow(ENOUGH)
        await_rights(sink, "enough")
        forbid_all(guarded[0])
        allow(ENOUGH - {missing})
        named = [told.format(target=sink.topic, book=b, id=i) for b, i in zip_longest(books, ids)]
        finding = await_rights(sink, ", ".join(dict.fromkeys(named)))
        assert finding.severity is Severity.BREAKS
        mend(guarded[0], sink, finding)
        assert await_rights(sink, "enough").severity is Severity.FINE

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    def test_the_right_to_make_the_ledger_is_needed_until_it_is_there(self, way, sink, allow, guarded, topics):
        sink = replace(sink, way=way)
        books = [sink.ledger_topic(PLACE), *([sink.slots_topic(PLACE)] if way != "spooled" else [])]
        allow(ENOUGH - {("ledger", TOPIC, AclOperation.CREATE)})
        finding = await_rights(sink, ", ".join(f"no CREATE on topic {book}" for book in books))
        assert finding.severity is Severity.BREAKS
        for book in books:
            topics.create(book.removeprefix(topics.prefix), cleanup_policy="compact")
        await_rights(sink, "enough")

    def test_the_right_to_make_the_target_is_needed_if_the_sink_is_to_make_it(self, guarded, topics, allow):
        sink = _sink(guarded[1], topics, PASSWORD, create=True)
        allow(ENOUGH)
        finding = await_rights(sink, f"no CREATE on topic {sink.topic}")
        assert finding.severity is Severity.BREAKS
        mend(guarded[0], sink, finding)
        await_rights(sink, "enough")
        assert sink.topic not in Cluster(Address.parse("test", guarded[0])).names(), "it was only asked for"

    def test_a_right_to_the_pipeline_s_id_alone_is_not_enough_for_its_slots(self, sink, allow, guarded):
        allow(ENOUGH - {("ledger", TRANSACTIONAL_ID, AclOperation.WRITE)})
        ident = sink.transactional_id(PLACE)
        give(guarded[0], TRANSACTIONAL_ID, ident, AclOperation.WRITE)
        await_rights(sink, "enough")
        await_rights(replace(sink, way="prepared"), f"no WRITE on transactional ids that begin with {ident}.")

    def test_an_id_that_may_be_written_under_and_not_described_is_named(self, sink, allow, guarded):
        allow(ENOUGH)
        ident = sink.transactional_id(PLACE)
        give(guarded[0], TRANSACTIONAL_ID, ident, AclOperation.DESCRIBE, permission=AclPermissionType.DENY)
        await_rights(sink, f"no DESCRIBE on transactional id {ident}")

    def test_without_a_pipeline_s_name_it_is_not_known_whether_its_id_may_be_used(self, sink, allow, guarded):
        allow(ENOUGH - {("ledger", TRANSACTIONAL_ID, AclOperation.WRITE)})
        give(guarded[0], TRANSACTIONAL_ID, sink.transactional_id(PLACE), AclOperation.WRITE)
        begin = f"no WRITE on transactional ids that begin with {sink.ledger}."
        finding = await_rights(sink, f"not known; {begin}", None)
        assert finding.severity is Severity.WARNS
        assert "`pakka check FILE`" in finding.why
        mend(guarded[0], sink, finding)
        await_rights(sink, "enough", None)

    def test_to_ask_changes_nothing(self, sink, allow, guarded, tmp_path):
        """Neither for a driver in the middle of its work, nor for a transaction that is open under the very id."""
        allow(ENOUGH)
        driver = Driver(sink, tmp_path)
        driver.deliver(0, pa.record_batch({"id": [1]}))
        ident = sink.transactional_id(PLACE)
        with closing(Post("test", Address.parse("test", guarded[0]))) as post:
            records = driver.prepare(1, pa.record_batch({"id": [2]}))
            before = post.described(ident)
            await_rights(sink, "enough")
            assert post.described(ident) == before
            assert driver.commit(1, records).kind is Kind.COMMITTED
            slot = post.take(f"{ident}.0.0")
            post.begin_in(slot, [(sink.topic, 0)])
            opened = post.described(slot.id)
            assert opened.is_open
            await_rights(replace(sink, way="prepared"), "enough")
            assert post.described(slot.id) == opened
            assert post.end(slot, is_commit=True).is_done
        assert sorted(v["id"] for v in values(guarded[0], sink.topic, 2)) == [1, 2]


def test_a_topic_that_may_not_be_seen_any_more_is_not_taken_for_gone(guarded, topics, allow, tmp_path):
    """The ledger names the topics in which something may hang, and forgets those that are gone."""
    hidden, gone, there = (topics.create(name) for name in ("hidden", "gone", "refunds"))
    sink = _sink(guarded[1], topics, PASSWORD, topic="", topic_column="to")
    allow(ENOUGH)
    for name in (hidden, gone):
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS):
            give(guarded[0], TOPIC, name, operation)
    Driver(sink, tmp_path).deliver(0, pa.record_batch({"id": [1, 2, 3], "to": [hidden, gone, there]}))
    topics.delete(gone)
    give(guarded[0], TOPIC, hidden, AclOperation.DESCRIBE, permission=AclPermissionType.DENY)
    await_hidden(sink, hidden)
    Driver(sink, tmp_path, fence=2)
    with closing(sink.open_book(PLACE)) as book:
        assert book.read(is_settled=True).topics == tuple(sorted([hidden, there]))


def await_hidden(sink, topic):
    cluster = Cluster(sink.address)
    give_up = time.monotonic() + PATIENCE_S
    while topic in cluster.names():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_who_may_only_look_at_a_topic_is_refused_at_the_start(sink, allow, tmp_path):
    allow(ENOUGH - {("target", TOPIC, AclOperation.WRITE)} | {("target", TOPIC, AclOperation.DESCRIBE)})
    with pytest.raises(SinkError, match="may not write"):
        Driver(sink, tmp_path)


def position_of(sink, topics):
    where = {"cluster": Cluster(sink.address).id, "group": topics.name("group")}
    return json.dumps({"kafka": {**where, "offsets": {topics.create("source"): {"0": 42}}}})


def of_group(sink, position):
    (probe,) = [p for p in sink.probing(PLACE, position=lambda: position).probes() if p.name == "group of the source"]
    return probe.look()


def test_who_checks_a_pipeline_hears_whether_its_sink_may_tell_the_source_s_group(
    sink, allow, guarded, topics, tmp_path
):
    """The source comes in by the door where nobody is asked for a right; it is the sink that tells."""
    allow(ENOUGH | {("source", TOPIC, AclOperation.READ)})
    topic = topics.create("source", partitions=2)
    source = KafkaSource(guarded[0], topic, format="raw", group=topics.name("group"))
    pipeline = Pipeline("refunds", source, {"out": sink}, state=f"sqlite:///{tmp_path}/s.db", spool=str(tmp_path))

    def group_of(pipeline):
        (told,) = [s for s in settings_of(pipeline) if s.finding.name == "group of the source"]
        return told

    told = group_of(pipeline)
    assert (told.of, told.is_breaking) == ("sink `out`", True)
    assert told.finding.value == f"no READ on group {topics.name('group')}"
    allow(TELLING)
    assert not group_of(pipeline).is_breaking
    assert group_of(replace(pipeline, source=RateSource())).finding.value == "none"
    named = replace(pipeline, source=replace(source, group=None))
    assert group_of(named).finding.value == "no READ on group pakka.refunds"


def test_a_group_of_another_cluster_is_told_nothing(sink, allow, topics):
    allow(ENOUGH)
    elsewhere = json.dumps({"kafka": {"cluster": "another", "group": "g", "offsets": {"source": {"0": 0}}}})
    finding = of_group(sink, elsewhere)
    assert (finding.severity, finding.value) == (Severity.FINE, "none")
    assert "another cluster" in finding.why


def test_who_may_read_the_source_and_its_group_may_tell_how_far_it_is(sink, allow, guarded, topics, tmp_path):
    allow(ENOUGH | TELLING)
    driver, position = Driver(sink, tmp_path), position_of(sink, topics)
    told = of_group(sink, position)
    assert (told.severity, told.value) == (Severity.FINE, topics.name("group"))
    driver.committer.check_position(position)
    driver.deliver(0, pa.record_batch({"id": [1]}), position=position)
    reader = Consumer({"bootstrap.servers": guarded[0], "group.id": topics.name("group")})
    with closing(reader):
        (told,) = reader.committed([TopicPartition(topics.name("source"), 0)], PATIENCE_S)
    assert told.offset == 42


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        ({("source", TOPIC, AclOperation.READ)}, "group"),
        ({("group", ResourceType.GROUP, AclOperation.READ)}, "topic"),
        (TELLING - {("source", TOPIC, AclOperation.READ)} | {("source", TOPIC, AclOperation.DESCRIBE)}, "topic"),
        (
            TELLING - {("group", ResourceType.GROUP, AclOperation.READ)}
            | {("group", ResourceType.GROUP, AclOperation.DESCRIBE)},
            "group",
        ),
    ],
    ids=["no group", "no topic", "topic described", "group described"],
)
def test_who_may_not_tell_how_far_the_source_is_hears_so_before_the_decision(
    left, wanted, sink, allow, guarded, topics, tmp_path
):
    allow(ENOUGH | left)
    driver, position = Driver(sink, tmp_path), position_of(sink, topics)
    name = {"group": topics.name("group"), "topic": topics.name("source")}[wanted]
    with pytest.raises(SinkError, match=f"it takes READ on {wanted} `{name}`; nothing") as refused:
        driver.committer.check_position(position)
    assert f"--operation READ --{wanted} {name}" in refused.value.hint
    finding = of_group(sink, position)
    assert (finding.severity, finding.value) == (Severity.BREAKS, f"no READ on {wanted} {name}")
    assert finding.fix.endswith(f"--add --allow-principal User:{USER} --operation READ --{wanted} {name}")
    # A right that is taken away later stops the epoch, and does no harm.
    records = driver.prepare(0, pa.record_batch({"id": [1]}))
    outcome = driver.commit(0, records, position)
    assert (outcome.kind, values(guarded[0], sink.topic)) == (Kind.RETRY, [])
    allow(TELLING)
    assert driver.commit(0, records, position).kind is Kind.COMMITTED


def test_who_may_not_ask_what_a_topic_takes_can_say_it_and_batches_keep_to_it(guarded, topics, allow, tmp_path):
    topic = topics.create("refunds", max_message_bytes="3000")
    allow(ENOUGH - {("target", TOPIC, AclOperation.DESCRIBE_CONFIGS)})
    with pytest.raises(SinkError, match="may not ask what topic") as refused:
        Driver(_sink(guarded[1], topics, PASSWORD), tmp_path)
    assert "`max_record_bytes`" in refused.value.hint
    driver = Driver(_sink(guarded[1], topics, PASSWORD, max_record_bytes=3000), tmp_path)
    driver.deliver(0, pa.record_batch({"id": list(range(2000))}))
    with pytest.raises(SchemaError, match="takes 3000"):
        driver.prepare(1, pa.record_batch({"id": ["x" * 3000]}))
    assert len(values(guarded[0], topic, 2000)) == 2000


def test_a_source_needs_to_read_its_topic_and_no_more(source, allow):
    allow({("target", TOPIC, AclOperation.READ)})
    assert list(source._found()) == [source.topics]


@pytest.mark.parametrize("right", [AclOperation.DESCRIBE, AclOperation.WRITE, None])
def test_a_source_that_may_not_read_its_topic_is_refused_before_spark_is_asked(right, source, allow):
    if right is not None:
        allow({("target", TOPIC, right)})
    with pytest.raises(RefusedError, match=f"`?{source.topics}`?.*nothing was started") as refused:
        source.read(None, "notes", is_strict=False)
    assert not isinstance(refused.value, SinkError)
    assert refused.value.hint.endswith("--operation READ --topic NAME`")


def test_a_wrong_password_is_told_as_such(guarded, topics, tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 3.0)
    topics.create("refunds")
    sink = _sink(guarded[1], topics, "wr0ng")
    with pytest.raises(SinkError, match="uthentication") as refused:
        Driver(sink, tmp_path)
    assert "sasl.password" in refused.value.hint
    assert "wr0ng" not in str(refused.value)


def test_a_plain_client_at_a_guarded_door_is_told_what_to_set(guarded, topics, tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 3.0)
    sink = KafkaSink(guarded[1], topic=topics.create("refunds"), ledger=f"{topics.prefix}pakka")
    with pytest.raises(PakkaError) as refused:
        Driver(sink, tmp_path)
    assert "security.protocol" in str(refused.value), refused.value
