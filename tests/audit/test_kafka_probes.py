"""Settings of a live Kafka cluster that weaken the sink are named, with what mends them; a right one is left in peace.

Three brokers, because what a second copy is worth is only seen where there are some; beside them one that is set up badly, and
asks who comes.
"""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from pakka import points
from pakka.audit.run import audit
from pakka.cli.check import guarantee_of, settings_of
from pakka.contract.audit import Severity, Took
from pakka.contract.pipeline import Pipeline
from pakka.coordinator.epoch import Harvest
from pakka.coordinator.watch import source_of
from pakka.errors import RefusedError, SinkError
from pakka.kafka_cluster import Cluster
from pakka.kafka_transactions import CannotAskError
from pakka.model.epoch import Count
from pakka.model.event import Noticed
from pakka.model.guarantee import Level
from pakka.model.id import Binding, Slot
from pakka.model.prepared import SlotReport
from pakka.sinks import _kafka_probes, _kafka_timeout, _kafka_topic
from pakka.sinks._kafka_facts import read_facts
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.memory import MemorySink
from pakka.sources.kafka import KafkaSource
from pakka.sources.rate import RateSource
from tests.fixtures.kafka import (
    Topics,
    await_heard,
    await_known,
    forget_marker,
    need_kafka,
    relayed_kafka,
    running_kafka,
)
from tests.fixtures.onlooker import Onlooker
from tests.unit.coordinator.stage import Stage
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, values
from tests.unit.sinks.test_kafka_rights import DOOR, PASSWORD, PLACE, SETTINGS, USER, await_acls

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS
SHORT_MS = 2000
LOGIN = {**DOOR, "sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def cluster():
    need_kafka()
    with running_kafka(nodes=3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def lax():
    """One broker whose transactions are short, and are not ended when their time is over; who comes is asked for at its second
    door.
    """
    need_kafka()
    short = {
        "transaction.max.timeout.ms": str(SHORT_MS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
    }
    with relayed_kafka(settings={**SETTINGS, **short}) as (kafka, proxy):
        yield kafka.bootstrap, f"127.0.0.1:{proxy.port}"


@pytest.fixture(scope="module")
def patient_broker():
    """It lets transactions be open for two hours."""
    need_kafka()
    with running_kafka(
        settings={"transaction.max.timeout.ms": "7200000", "socket.request.max.bytes": "2162688"}
    ) as kafka:
        yield kafka.bootstrap


class KnownTopics(Topics):
    """Topics that every broker knows of: a probe asks any."""

    def create(self, topic, partitions=1, copies=-1, **config):
        made = super().create(topic, partitions, copies, **config)
        await_known(self.bootstrap, made)
        return made


@pytest.fixture
def topics(cluster):
    topics = KnownTopics(cluster.bootstrap)
    yield topics
    topics.drop()


@pytest.fixture
def lax_topics(lax):
    topics = Topics(lax[0])
    yield topics
    topics.drop()


def sink_on(topics, topic="refunds", servers="", copies=-1, **options):
    name = topics.name(topic)
    if "create" not in options:
        topics.create(topic, copies=copies)
    return KafkaSink(servers or topics.bootstrap, topic=name, ledger=topics.name("pakka"), **options)


def found(sink):
    findings = {probe.name: probe.look() for probe in sink.probes()}
    assert all(finding.name == name for name, finding in findings.items())
    assert all(finding.fix for finding in findings.values() if finding.severity is not FINE)
    return findings


def weak(sink):
    return {name: (f.value, f.severity) for name, f in found(sink).items() if f.severity is not FINE}


def alter(servers, name, kind=ResourceType.TOPIC, **settings):
    """As `kafka-configs.sh --alter --add-config` does; None takes a setting back. In force at every broker when this returns."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE,
        )
        for key, value in settings.items()
    ]
    (done,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    done.result(PATIENCE_S)
    await_heard(servers)


def await_finding(sink, name, severity):
    """A broker takes settings into use a moment after it was told."""
    (probe,) = [p for p in sink.probes() if p.name == name]
    give_up = time.monotonic() + PATIENCE_S
    while (finding := probe.look()).severity is not severity:
        assert time.monotonic() < give_up, finding
        time.sleep(0.05)
    return finding


def mended(sink, finding):
    """Do what the fix says, for one that is `kafka-configs.sh --alter --topic`."""
    words = finding.fix.split()
    assert words[:4] == ["kafka-configs.sh", "--bootstrap-server", sink.servers, "--alter"]
    topic, setting = words[words.index("--topic") + 1], words[words.index("--add-config") + 1]
    name, _, value = setting.partition("=")
    alter(sink.servers, topic, **{name.replace(".", "_"): value})
    return await_finding(sink, finding.name, FINE)


def test_a_cluster_as_it_should_be_is_left_in_peace(topics):
    sink = sink_on(topics)
    topics.create("pakka.ledger.refunds.out", cleanup_policy="compact")
    assert weak(sink) == {}
    seen = found(sink)
    assert seen["server version"].value.endswith(", transaction.version 2")
    assert seen["transaction log"].value == "3 replicas, 2 in sync"
    assert seen["message.timestamp.before.max.ms"].value == "any"
    assert seen["ledger topic"].value == f"compact, {topics.name('pakka.ledger.refunds.out')}"


@pytest.mark.parametrize(
    ("name", "settings", "severity", "value", "why"),
    [
        ("min.insync.replicas", {"min_insync_replicas": "1"}, BREAKS, "1 of 3", "one broker alone acknowledges"),
        ("min.insync.replicas", {"min_insync_replicas": "4"}, BREAKS, "4 of 3", "every write is refused"),
        (
            "unclean.leader.election.enable",
            {"unclean_leader_election_enable": "true"},
            BREAKS,
            "true",
            "that is behind",
        ),
        ("retention", {"cleanup_policy": "compact"}, WARNS, "compact", "only the newest record stays"),
        ("retention", {"retention_ms": "7200000"}, WARNS, "2 hours", "never sees what was committed"),
        ("retention", {"retention_bytes": "1000000"}, WARNS, "1000000 bytes a partition", "however new it is"),
        ("message.timestamp.type", {"message_timestamp_type": "LogAppendTime"}, WARNS, "LogAppendTime", "column `at`"),
        ("max.message.bytes", {"max_message_bytes": "5000"}, WARNS, "5000", "`max_record_bytes` is 9000"),
        (
            "message.timestamp.before.max.ms",
            {"message_timestamp_before_max_ms": "7200000"},
            WARNS,
            "2 hours",
            "a row whose `at` is older is refused",
        ),
        (
            "message.timestamp.after.max.ms",
            {"message_timestamp_after_max_ms": "5000"},
            WARNS,
            "5 seconds",
            "clock is further ahead",
        ),
    ],
)
def test_a_target_topic_that_is_weakened_is_named_and_its_fix_mends_it(topics, name, settings, severity, value, why):
    sink = sink_on(topics, timestamp="at", max_record_bytes=9000)
    assert weak(sink) == {}
    alter(sink.servers, sink.topic, **settings)
    finding = await_finding(sink, name, severity)
    assert finding.value.startswith(value)
    assert why in finding.why
    assert mended(sink, finding).severity is FINE
    assert weak(sink) == {}


def test_as_many_in_sync_as_there_are_is_told_to_stop_with_one_broker(topics):
    sink = sink_on(topics)
    alter(sink.servers, sink.topic, min_insync_replicas="3")
    assert "while a single broker is down" in await_finding(sink, "min.insync.replicas", WARNS).why


@pytest.mark.parametrize("what", ["refunds", "pakka.ledger.refunds.out"])
def test_a_topic_on_one_of_three_brokers_is_named(topics, what):
    sink = sink_on(topics, copies=1 if what == "refunds" else 3)
    if what != "refunds":
        topics.create(what, copies=1, cleanup_policy="compact", min_insync_replicas="1")
    else:
        alter(sink.servers, sink.topic, min_insync_replicas="1")
        await_finding(sink, "min.insync.replicas", FINE)
    assert weak(sink) == {"replication factor": (f"1 of {topics.name(what)}", BREAKS)}
    assert f"with 3 replicas of {topics.name(what)}" in found(sink)["replication factor"].fix


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_that_forgets_is_named_and_its_fix_mends_it(topics, policy):
    sink = sink_on(topics)
    ledger = topics.create("pakka.ledger.refunds.out", cleanup_policy="compact")
    alter(sink.servers, ledger, cleanup_policy=policy, retention_ms="7200000")
    finding = await_finding(sink, "ledger topic", BREAKS)
    assert finding.value == f"{policy} of {ledger}"
    assert "after 2 hours the ledger forgets" in finding.why
    assert mended(sink, finding).severity is FINE


def test_a_ledger_of_several_partitions_is_named(topics):
    sink = sink_on(topics)
    ledger = topics.create("pakka.ledger.refunds.out", partitions=2, cleanup_policy="compact")
    assert weak(sink) == {"ledger topic": (f"2 partitions of {ledger}", BREAKS)}


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"min_insync_replicas": "1"}, "min.insync.replicas 1 of 3 of __transaction_state"),
        ({"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable true of __transaction_state"),
    ],
)
def test_a_transaction_log_that_is_weakened_is_named_and_its_fix_mends_it(topics, settings, value):
    sink = sink_on(topics)
    with opened(sink.servers, sink.topic, topics.name("id"), timeout_ms=60_000) as producer:
        producer.abort_transaction()
    alter(sink.servers, "__transaction_state", **settings)
    finding = await_finding(sink, "transaction log", BREAKS)
    assert finding.value == value
    assert mended(sink, finding).severity is FINE


def test_a_transaction_log_that_is_not_there_yet_is_judged_as_it_would_be_made(lax_topics):
    facts = read_facts(sink_on(lax_topics))
    assert (facts.log.replicas, facts.log.settings["min.insync.replicas"]) == (1, "1")


@pytest.mark.parametrize("broker", ["1", "3"])
def test_a_broker_that_does_not_verify_transactions_is_named_and_the_fix_mends_it(topics, broker):
    name = "transaction.partition.verification.enable"
    sink = sink_on(topics)
    setting = name.replace(".", "_")
    try:
        alter(sink.servers, broker, ResourceType.BROKER, **{setting: "false"})
        finding = await_finding(sink, name, WARNS)
        assert finding.fix.endswith(f"--entity-type brokers --entity-default --add-config {name}=true")
    finally:
        alter(sink.servers, broker, ResourceType.BROKER, **{setting: None})
    await_finding(sink, name, FINE)


def test_a_broker_that_takes_less_at_once_than_is_sent_is_named(patient_broker):
    """It would end the line after the decision, each time."""
    topics = KnownTopics(patient_broker)
    try:
        sink = sink_on(topics)
        name = "socket.request.max.bytes"
        assert found(sink)[name].severity is FINE
        alter(patient_broker, sink.topic, **{"max_message_bytes": "2097153"})
        finding = await_finding(sink, name, BREAKS)
        assert (finding.value, "the sink may send 2162689 at once" in finding.why) == ("2162688", True)
        # Of topics that rows name none is known yet.
        named = replace(sink, topic="", topic_column="topic", create=True)
        assert found(named)[name].severity is FINE
    finally:
        topics.drop()


def test_of_several_brokers_the_one_that_gives_the_least_time_counts(topics, cluster):
    last = cluster.nodes[-1]
    setting = "transaction.max.timeout.ms"
    sink = sink_on(topics)
    try:
        started_again(cluster, last, {setting: "30000"})
        assert sink.transaction_ms(Cluster(sink.address)) == 30_000
        assert found(sink)[setting].value == "30000, and 30000 is asked for"
    finally:
        started_again(cluster, last, {})
    assert sink.transaction_ms(Cluster(sink.address)) == 900_000


def started_again(cluster, node, settings):
    """One node with other settings than its fellows."""
    node.stop()
    properties = node.root / "server.properties"
    kept = [line for line in properties.read_text().splitlines() if not line.startswith("transaction.max.timeout.ms=")]
    properties.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
    cluster.start()


def test_a_broker_that_does_not_answer_has_no_say(topics, cluster):
    """Or no pipeline could start as long as one that hangs is in the brokers' list. Some of these clients have a line to that one alone."""
    sink = sink_on(topics)
    asked = [Cluster(sink.address) for _ in range(12)]
    assert {each.brokers for each in asked} == {(1, 2, 3)}
    with frozen(cluster.nodes[-1]), ThreadPoolExecutor(len(asked)) as pool:
        assert set(pool.map(sink.transaction_ms, asked)) == {900_000}


@contextmanager
def frozen(node):
    node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("asked_ms", "severity", "why"),
    [
        ("900001", BREAKS, "the brokers refuse"),
        ("59999", WARNS, "take longer to be written"),
        ("60000", FINE, "time to write an epoch"),
    ],
)
def test_the_time_that_is_asked_for_is_held_against_what_the_brokers_give(topics, asked_ms, severity, why):
    sink = sink_on(topics, settings={"transaction.timeout.ms": asked_ms})
    finding = found(sink)["transaction.max.timeout.ms"]
    assert (finding.value, finding.severity) == (f"900000, and {asked_ms} is asked for", severity)
    assert why in finding.why


TIMEOUT = "transaction.max.timeout.ms"


@pytest.mark.parametrize(
    ("way", "took", "severity", "told"),
    [
        ("spooled", Took(commit_s=50.0, epoch_s=3000.0, start_s=3000.0), FINE, "time to write an epoch"),
        ("spooled", Took(commit_s=51.0), WARNS, "a commit took 51 seconds"),
        ("spooled", Took(commit_s=101.0), WARNS, "a commit took 101 seconds"),
        ("prepared", Took(commit_s=3000.0, epoch_s=30.0, start_s=20.0), FINE, "time for an epoch"),
        (
            "prepared",
            Took(epoch_s=31.0, start_s=20.0),
            WARNS,
            "took 31 seconds, and the start of this driver 20 seconds",
        ),
        ("prepared", Took(epoch_s=81.0, start_s=20.0), WARNS, "together it is more than there is"),
        # Nothing that tells how long one of its transactions was.
        ("sharded", Took(commit_s=3000.0, epoch_s=3000.0, start_s=20.0), FINE, "time to write an epoch"),
        ("prepared", Took(commit_s=1.0, start_s=1.0), WARNS, "slots wait for the decision"),
    ],
)
def test_the_time_is_held_against_what_the_pipeline_took(topics, way, took, severity, told):
    sink = sink_on(topics, way=way, settings={"transaction.timeout.ms": "100000"})
    finding = found(sink.probing(PLACE, lambda: took))[TIMEOUT]
    assert finding.severity is severity, finding
    assert finding.value.startswith("900000, and 100000 is asked for")
    assert told in f"{finding.value}: {finding.why}"


def test_what_is_known_to_be_quick_needs_no_minute(lax_topics):
    sink = sink_on(lax_topics)
    assert found(sink.probing(PLACE, lambda: Took(commit_s=0.9)))[TIMEOUT].severity is FINE
    tight = found(sink.probing(PLACE, lambda: Took(commit_s=1.1)))[TIMEOUT]
    assert tight.severity is WARNS
    assert tight.fix == (
        "take less in one epoch; or set `transaction.timeout.ms: 60000` in `settings`, and set transaction.max.timeout.ms=60000 in "
        "server.properties of all brokers, and start them again"
    )


def test_a_run_is_told_when_its_commits_come_close_to_the_bound(lax_topics, tmp_path, monkeypatch):
    """Its clock is the test's, by which a commit takes 1.5 s of the 2 that the brokers give."""
    monkeypatch.chdir(tmp_path)
    sink = sink_on(lax_topics)
    lax_topics.create("pakka.ledger.refunds.refunds", cleanup_policy="compact")
    monkeypatch.setattr(_kafka_timeout, "SHORT_MS", 0)
    stage, events, now = Stage({"refunds": sink}), [], [0.0]
    driver = stage.driver(probe_every=1, listen=events.append)
    driver.teller = replace(driver.teller, clock=lambda: now[0])
    driver.start(stage.checkpoint())

    def commit_takes(seconds):
        points.arm(lambda point, _: now.__setitem__(0, now[0] + seconds) if point == "commit.kafka.begun" else None)

    try:
        for batch, seconds in enumerate([0.5, 1.5, 0.5, 0.5]):
            commit_takes(seconds)
            driver.deliver(stage.origin(batch), stage.prepare)
    finally:
        points.arm(None)
    driver.stop()
    (told,) = [e for e in events if isinstance(e, Noticed)]
    assert (told.about, told.sink) == ("weak", "")
    assert told.message.startswith(
        "sink `refunds`: transaction.max.timeout.ms is `2000, and 2000 is asked for; a commit took 2 seconds`"
    )
    assert told.hint.startswith("take less in one epoch")


def test_a_time_in_which_readers_would_wait_for_a_dead_driver_is_named(patient_broker):
    topics = Topics(patient_broker)
    try:
        sink = sink_on(topics, settings={"transaction.timeout.ms": "3600001"})
        finding = found(sink)[TIMEOUT]
        assert (finding.value, finding.severity) == ("7200000, and 3600001 is asked for", WARNS)
        assert "leaves readers waiting so long" in finding.why
        sink = replace(sink, settings={"transaction.timeout.ms": "3600000"})
        assert found(sink)[TIMEOUT].severity is FINE
    finally:
        topics.drop()


def test_a_target_that_is_missing_is_named_unless_the_sink_may_make_it(topics):
    assert weak(sink_on(topics, create=False)) == {"target topic": ("no topic", BREAKS)}
    assert weak(sink_on(topics, create=True)) == {}
    assert weak(sink_on(topics, create=True, replication=1)) == {
        "replication factor": (f"1 of {topics.name('refunds')}", BREAKS),
        "min.insync.replicas": (f"2 of 1 of {topics.name('refunds')}", BREAKS),
    }


def test_times_that_the_topic_sets_itself_have_no_bound(topics):
    sink = sink_on(topics)
    bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"}
    alter(sink.servers, sink.topic, **bounds)
    await_finding(sink, "message.timestamp.after.max.ms", WARNS)
    alter(sink.servers, sink.topic, message_timestamp_type="LogAppendTime")
    await_finding(sink, "message.timestamp.after.max.ms", FINE)
    assert weak(sink) == {}


def test_a_target_that_is_to_be_made_has_the_bounds_that_its_brokers_give(lax_topics):
    facts = read_facts(sink_on(lax_topics, create=True))
    assert facts.targets[0].settings["message.timestamp.after.max.ms"] == "3600000"
    assert facts.targets[0].settings["retention.bytes"] == "-1"


def test_a_target_that_the_brokers_would_not_make_is_named(topics):
    finding = found(sink_on(topics, create=True, replication=5))["target topic"]
    assert (finding.value, finding.severity) == ("no topic yet", BREAKS)
    assert "5" in finding.why


class TestNamedTopics:
    """Topics that rows name are known from the ledger, and else when their rows come: judged as any other, before the decision."""

    @pytest.fixture(autouse=True)
    def _forget(self):
        yield
        _kafka_topic.forget()

    @pytest.fixture
    def sink(self, topics):
        return KafkaSink(topics.bootstrap, topic_column="to", ledger=topics.name("pakka"))

    def test_before_rows_have_come_none_is_known(self, sink):
        for probing in (sink, sink.probing(PLACE)):
            assert weak(probing) == {"target topic": ("not known", WARNS)}

    def test_those_of_earlier_epochs_are_probed_and_named(self, sink, topics, tmp_path):
        one, two = topics.create("one"), topics.create("two")
        Driver(sink, tmp_path).deliver(0, rows_to(one, two))
        placed = sink.probing(PLACE)
        assert weak(placed) == {}
        assert found(placed)["target topic"].value == "2 that rows have named"
        alter(sink.servers, two, min_insync_replicas="1", retention_ms="7200000")
        await_finding(placed, "min.insync.replicas", BREAKS)
        assert weak(placed) == {
            "min.insync.replicas": (f"1 of 3 of {two}", BREAKS),
            "retention": (f"2 hours of {two}", WARNS),
        }

    def test_who_checks_a_pipeline_is_told_of_them(self, sink, topics, tmp_path):
        Driver(sink, tmp_path).deliver(0, rows_to(topics.create("one", retention_ms="7200000")))
        state = f"sqlite:///{tmp_path}/state.db"
        pipeline = Pipeline("refunds", RateSource(), {"out": sink}, state=state, spool=str(tmp_path))
        told = {s.finding.name: s.finding.value for s in settings_of(pipeline) if s.of == "sink `out`"}
        assert told["target topic"] == "1 that rows have named"
        assert told["retention"] == f"2 hours of {topics.name('one')}"

    def test_the_slots_topic_is_none_of_them(self, sink, topics, tmp_path):
        """A slot that is sent again from the spool leaves it in the ledger."""
        sink, one = replace(sink, way="prepared"), topics.create("one")
        driver = Driver(sink, tmp_path)
        driver.committer.control.know([sink.slots_topic(PLACE)])
        driver.deliver(0, rows_to(one))
        assert sink.slots_topic(PLACE) in driver.committer.control.book.read(is_settled=True).topics
        assert found(sink.probing(PLACE))["target topic"].value == "1 that rows have named"
        assert weak(sink.probing(PLACE)) == {}

    @pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
    @pytest.mark.parametrize(
        ("settings", "copies", "told"),
        [
            ({"min_insync_replicas": "1"}, 3, "min.insync.replicas is `1 of 3 of"),
            ({"min_insync_replicas": "1"}, 1, "replication factor is `1 of"),
            ({"unclean_leader_election_enable": "true"}, 3, "unclean.leader.election.enable is `true of"),
        ],
    )
    def test_one_that_breaks_the_guarantee_is_refused_before_the_decision(
        self, way, settings, copies, told, sink, topics, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        sink = replace(sink, way=way)
        good, bad = topics.create("good"), topics.create("bad", copies=copies, **settings)
        stage = Stage({"refunds": sink})
        driver = stage.driver(probe_every=0)
        driver.start(stage.checkpoint())
        driver.deliver(stage.origin(0), preparing(stage, sink, good))
        with pytest.raises(SinkError, match=re.escape(f"topic `{bad}` breaks the guarantee: {told}")) as refused:
            driver.deliver(stage.origin(1), preparing(stage, sink, good, bad))
        assert "nothing was written" in refused.value.message
        assert bad in refused.value.hint
        assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
        driver.stop()
        assert (len(values(sink.servers, good, 1)), values(sink.servers, bad)) == (1, [])

    def test_one_that_is_mended_takes_the_rows(self, sink, topics, tmp_path):
        bad = topics.create("bad", min_insync_replicas="1")
        driver = Driver(sink, tmp_path)
        with pytest.raises(SinkError, match="breaks the guarantee"):
            driver.prepare(0, rows_to(bad))
        alter(sink.servers, bad, min_insync_replicas="2")
        driver.deliver(0, rows_to(bad))
        assert len(values(sink.servers, bad, 1)) == 1

    def test_what_only_warns_is_told_once(self, sink, topics, tmp_path, caplog):
        short = topics.create("short", retention_ms="7200000")
        driver = Driver(sink, tmp_path)
        driver.deliver(0, rows_to(short), rows_to(short))
        _kafka_topic._lookouts[next(iter(_kafka_topic._lookouts))].seen.clear()
        driver.deliver(1, rows_to(short))
        said = [record for record in caplog.records if getattr(record, "about", "") == "weak"]
        (told,) = said
        assert f"topic `{short}`: retention is `2 hours`" in told.getMessage()
        assert told.sink == "out"

    def test_one_that_is_weakened_while_a_pipeline_runs_stops_it(self, sink, topics, tmp_path, monkeypatch):
        """Also if no row comes for it: what was committed there is no longer safe."""
        monkeypatch.chdir(tmp_path)
        one, two = topics.create("one"), topics.create("two")
        stage = Stage({"refunds": sink})
        driver = stage.driver(probe_every=1)
        driver.start(stage.checkpoint())
        driver.deliver(stage.origin(0), preparing(stage, sink, one, two))
        alter(sink.servers, two, min_insync_replicas="1")
        with pytest.raises(RefusedError, match=r"was weakened while it runs: min.insync.replicas is `1 of 3 of"):
            driver.deliver(stage.origin(1), preparing(stage, sink, one))
        assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
        driver.stop()


def rows_to(*names):
    return pa.record_batch({"id": list(range(len(names))), "to": list(names)})


def preparing(stage, sink, *names):
    """The one job of an epoch whose rows name these topics."""

    def prepare(epoch, fence):
        stage.attempt += 1
        batch = rows_to(*names)
        slot = Slot("refunds", "refunds", epoch.number, fence, 0, stage.attempt)
        writer = sink.open_writer(Binding("refunds", "refunds", "spool"), slot, batch.schema)
        try:
            writer.write(batch)
            prepared = writer.prepare("0" * 16)
        except BaseException:
            writer.discard()
            raise
        return Harvest(1, [SlotReport(0, (prepared,), Count(len(names), len(names)))])

    return prepare


@contextmanager
def opened(servers, topic, transactional_id, timeout_ms=SHORT_MS, age_s=0):
    """A transaction that is open in partition 0, with records of events that were so long ago."""
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"x", partition=0, timestamp=int((time.time() - age_s) * 1000))
    producer.flush(PATIENCE_S)
    yield producer


def test_a_transaction_that_holds_readers_back_is_named_with_its_producer(lax_topics, monkeypatch):
    sink, ident = sink_on(lax_topics), lax_topics.name("theirs")
    with opened(sink.servers, sink.topic, ident) as producer:
        assert found(sink)["open transactions"].severity is FINE, "it is not old"
        monkeypatch.setattr(_kafka_probes, "OPEN_S", 0.0)
        # Its time is over, and its coordinator still the one to end it.
        time.sleep(SHORT_MS / 1000)
        finding = found(sink)["open transactions"]
        assert finding.severity is WARNS
        assert f"partition 0 of {sink.topic} for " in finding.value
        assert finding.value.endswith(f"transactional id {ident}")
        assert "nobody sees 3 records" in finding.why
        assert finding.fix.endswith(f"describe --transactional-id {ident}")
        monkeypatch.setattr(_kafka_probes, "desk", silent)
        assert "describe-producers" in found(sink)["open transactions"].fix
        assert found(sink)["server version"].value == "not known"
        producer.abort_transaction()
    assert await_finding(sink, "open transactions", FINE)


def test_a_transaction_of_old_events_is_as_old_as_its_coordinator_says(lax_topics):
    sink = sink_on(lax_topics)
    with opened(sink.servers, sink.topic, lax_topics.name("theirs"), age_s=2 * 3600) as producer:
        assert found(sink)["open transactions"].severity is FINE
        producer.abort_transaction()


def test_a_transaction_of_which_no_coordinator_tells_is_not_called_hanging(lax, lax_topics, monkeypatch):
    """Its id is hidden from this user. Whoever aborts it by hand takes rows from a program that is at work."""
    rights = [("refunds", AclOperation.READ), ("refunds", AclOperation.DESCRIBE_CONFIGS)]
    sink = guarded(lax, lax_topics, *((name, ResourceType.TOPIC, operation) for name, operation in rights))
    with opened(lax[0], sink.topic, lax_topics.name("theirs"), age_s=2 * 3600) as producer:
        finding = found(sink)["open transactions"]
        assert "so it may be at work" in finding.why
        assert f"find-hanging --topic {sink.topic} --partition 0" in finding.fix
        producer.abort_transaction()


def test_a_transaction_that_hangs_is_named_with_what_ends_it(monkeypatch):
    """A broker that was killed has forgotten that it ended. One of a pipeline is left to it: to abort it would lose what is committed."""
    monkeypatch.setattr(_kafka_probes, "OPEN_S", 0.0)
    with running_kafka() as kafka:
        topics = Topics(kafka.bootstrap)
        theirs, ours = (sink_on(topics, name) for name in ("theirs", "ours"))
        for sink, ident in ((theirs, topics.name("program")), (ours, f"{ours.ledger}.refunds.out")):
            with opened(kafka.bootstrap, sink.topic, ident) as producer:
                producer.commit_transaction(PATIENCE_S)
        with closing(Onlooker(kafka.bootstrap)) as onlooker:
            onlooker.await_markers(topics.prefix)
        kafka.kill()
        for sink in (theirs, ours):
            forget_marker(kafka, sink.topic, 0)
        kafka.restart()
        finding = found(theirs)["open transactions"]
        assert "its coordinator has ended it (its last one was a commit) and will not do so again" in finding.why
        # What is committed must not be aborted by who follows a hint.
        assert finding.fix.startswith("save its records from offset 0 on, with a reader of read_uncommitted")
        assert f"abort --topic {theirs.topic} --partition 0 --start-offset 0" in finding.fix
        assert "run its pipeline" in found(ours)["open transactions"].fix


def silent(address):
    raise CannotAskError("nobody tells")


def test_a_broker_whose_transactions_are_short_is_named(lax_topics):
    assert weak(sink_on(lax_topics)) == {
        "replication factor": (f"1 of {lax_topics.name('refunds')}", WARNS),
        "transaction log": ("replication factor 1 of __transaction_state", WARNS),
        "transaction.max.timeout.ms": ("2000, and 2000 is asked for", WARNS),
    }


def test_brokers_that_are_too_old_are_named(lax_topics, monkeypatch):
    monkeypatch.setattr(_kafka_probes.Desk, "version", lambda _: "2.8")
    finding = found(sink_on(lax_topics))["server version"]
    assert (finding.severity, finding.fix) == (BREAKS, "use Kafka 3.0 or newer")


class TestSource:
    """The topics that a pipeline reads."""

    @pytest.fixture
    def source(self, topics):
        return KafkaSource(topics.bootstrap, topics.create("in"), format="raw")

    def test_topics_as_they_should_be_are_left_in_peace(self, source):
        assert weak(source) == {}
        seen = found(source)
        assert (seen["source topics"].value, seen["replication factor"].value) == ("there", "3")
        assert seen["retention"].value == "7 days"

    @pytest.mark.parametrize(
        ("name", "settings", "severity", "value", "why"),
        [
            ("retention", {"cleanup_policy": "compact"}, WARNS, "compact of", "may find fewer records"),
            ("retention", {"retention_ms": "7200000"}, WARNS, "2 hours of", "a pipeline that is down longer"),
            ("retention", {"retention_bytes": "1000000"}, WARNS, "1000000 bytes a partition of", "for more bytes"),
            (
                "unclean.leader.election.enable",
                {"unclean_leader_election_enable": "true"},
                BREAKS,
                "true of",
                "under offsets that were read already",
            ),
        ],
    )
    def test_one_that_is_weakened_is_named_and_its_fix_mends_it(
        self, source, topics, name, settings, severity, value, why
    ):
        both = replace(source, topics=(source.topics, topics.create("more")))
        assert weak(both) == {}
        alter(both.servers, both.topics[1], **settings)
        finding = await_finding(both, name, severity)
        assert finding.value == f"{value} {both.topics[1]}"
        assert why in finding.why
        assert mended(both, finding).severity is FINE
        assert weak(both) == {}

    def test_one_on_one_of_three_brokers_is_named(self, source, topics):
        single = replace(source, topics=topics.create("single", copies=1, min_insync_replicas="1"))
        assert weak(single) == {"replication factor": (f"1 of {single.topics}", WARNS)}

    def test_one_that_is_missing_is_named_and_no_other_is_passed_over(self, source, topics):
        missing = topics.name("nowhere")
        both = replace(source, topics=(missing, source.topics))
        alter(both.servers, source.topics, retention_ms="7200000")
        await_finding(both, "retention", WARNS)
        assert weak(both) == {
            "source topics": (f"no topic {missing}", BREAKS),
            "retention": (f"2 hours of {source.topics}", WARNS),
        }

    def test_a_pattern_has_the_topics_that_match_now(self, source, topics):
        pattern = re.escape(topics.prefix) + "in.*"
        matching = replace(source, topics=(), pattern=pattern)
        assert weak(matching) == {}
        topics.create("in-short", retention_ms="7200000")
        topics.create("out-short", retention_ms="3600000")
        assert weak(matching) == {"retention": (f"2 hours of {topics.name('in-short')}", WARNS)}
        none = replace(matching, pattern=pattern + "nothing")
        assert weak(none) == {"source topics": ("none", WARNS)}
        assert found(none)["retention"].value == "no topic"

    def test_who_checks_a_pipeline_is_told_of_them(self, source, tmp_path):
        state = f"sqlite:///{tmp_path}/state.db"
        pipeline = Pipeline("refunds", source, {"out": MemorySink("out")}, state=state, spool=str(tmp_path))
        assert guarantee_of(pipeline, settings_of(pipeline)).level is Level.EXACTLY_ONCE
        pipeline = replace(pipeline, source=replace(source, topics="nowhere"))
        told = [s for s in settings_of(pipeline) if s.of == "the source"]
        assert [s.finding.name for s in told if s.is_breaking] == ["source topics"]
        guarantee = guarantee_of(pipeline, settings_of(pipeline))
        assert "source topics of the source" in [part.name for part in guarantee.missing]

    def test_one_that_is_weakened_while_a_pipeline_runs_stops_it_or_is_told(self, source, tmp_path):
        sinks = {"refunds": MemorySink(f"space-{source.topics}")}
        stage, events = Stage(sinks), []
        probing = source_of(Pipeline("refunds", source, sinks))
        driver = stage.driver(probe_every=1, probing=probing, listen=events.append)
        driver.start(stage.checkpoint())
        driver.deliver(stage.origin(0), stage.prepare)
        alter(source.servers, source.topics, cleanup_policy="compact")
        await_finding(source, "retention", WARNS)
        driver.deliver(stage.origin(1), stage.prepare)
        (told,) = [e for e in events if isinstance(e, Noticed)]
        assert told.message.startswith("the source: retention is `compact of ")
        alter(source.servers, source.topics, unclean_leader_election_enable="true")
        await_finding(source, "unclean.leader.election.enable", BREAKS)
        with pytest.raises(
            RefusedError, match=r"the source was weakened while it runs: unclean\.leader\.election\.enable"
        ):
            driver.deliver(stage.origin(2), stage.prepare)
        assert [d.epoch.number for d in stage.store.read("refunds").open] == [1]

    def test_a_source_without_settings_has_none(self):
        assert source_of(Pipeline("refunds", RateSource(), {"out": MemorySink("out")})) == {}

    @pytest.mark.parametrize(
        ("rights", "there", "settings"),
        [
            ([], ("{} is hidden", BREAKS), "no topic"),
            ([AclOperation.DESCRIBE], ("no READ on {}", BREAKS), "not known of {}"),
            ([AclOperation.READ], ("there", FINE), "not known of {}"),
            ([AclOperation.READ, AclOperation.DESCRIBE_CONFIGS], ("there", FINE), "7 days"),
        ],
    )
    def test_what_its_user_may_not_do_is_named(self, rights, there, settings, lax, lax_topics):
        topic = lax_topics.create("refunds")
        allow(lax, lax_topics, *(("refunds", ResourceType.TOPIC, right) for right in rights))
        seen = found(KafkaSource(lax[1], topic, format="raw", settings=LOGIN))
        assert (seen["source topics"].value, seen["source topics"].severity) == (there[0].format(topic), there[1])
        assert seen["retention"].value == settings.format(topic)
        if there[1] is BREAKS:
            assert seen["source topics"].fix.endswith(
                f"--add --allow-principal User:{USER} --operation READ --topic {topic}"
            )


def allow(lax, topics, *rights):
    admin = AdminClient({"bootstrap.servers": lax[0], "log_level": 2})
    kinds = {"refunds": ResourcePatternType.LITERAL, "pakka": ResourcePatternType.PREFIXED}
    bindings = [
        AclBinding(kind, topics.name(name), kinds[name], f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        for name, kind, operation in rights
    ]
    for made in admin.create_acls(bindings).values() if bindings else []:
        made.result(PATIENCE_S)
    await_acls(admin, lambda known: known >= set(bindings))


def guarded(lax, topics, *rights):
    """A sink that comes in by the door where rights are asked for."""
    allow(lax, topics, *rights)
    return sink_on(topics, servers=lax[1], settings=LOGIN)


def test_rights_that_are_missing_are_named_by_right(lax, lax_topics):
    lax_topics.create("pakka.ledger.refunds.out", cleanup_policy="compact")
    topic = ResourceType.TOPIC
    sink = guarded(lax, lax_topics, ("refunds", topic, AclOperation.DESCRIBE), ("pakka", topic, AclOperation.READ))
    finding = found(sink)["rights"]
    target, ledger = sink.topic, lax_topics.name("pakka.ledger.refunds.out")
    assert (finding.severity, finding.value) == (
        BREAKS,
        f"no WRITE on topic {target}, no DESCRIBE_CONFIGS on topic {target}, no WRITE on topic {ledger}",
    )
    assert finding.fix.startswith(
        f"kafka-acls.sh --bootstrap-server {lax[1]} --add --allow-principal User:{USER} --operation WRITE --topic {target}; "
    )
    assert PASSWORD not in str(found(sink))


def test_settings_that_may_not_be_read_are_not_taken_for_right(lax, lax_topics):
    sink = guarded(lax, lax_topics, ("refunds", ResourceType.TOPIC, AclOperation.WRITE))
    seen = found(sink)
    for name in ("min.insync.replicas", "retention", "max.message.bytes", "transaction.max.timeout.ms"):
        assert (seen[name].value, seen[name].severity) == ("not known", WARNS)
        assert "--operation DESCRIBE_CONFIGS" in seen[name].fix
    assert (seen["rights"].severity, seen["rights"].value) == (BREAKS, f"no DESCRIBE_CONFIGS on topic {sink.topic}")


def test_who_says_what_a_topic_takes_needs_no_right_to_ask(lax, lax_topics):
    rights = [("refunds", ResourceType.TOPIC), ("pakka", ResourceType.TRANSACTIONAL_ID)]
    sink = guarded(lax, lax_topics, *((*right, AclOperation.WRITE) for right in rights))
    assert found(replace(sink, max_record_bytes=3000))["rights"].severity is FINE


def test_a_topic_that_is_hidden_is_named_with_the_right_to_it(lax, lax_topics):
    seen = found(guarded(lax, lax_topics))
    assert (seen["target topic"].value, seen["target topic"].severity) == ("hidden", BREAKS)
    topic = lax_topics.name("refunds")
    assert seen["rights"].value == f"no WRITE on topic {topic}, no DESCRIBE_CONFIGS on topic {topic}"


def scratch_topics(lax, topics):
    admin = AdminClient({"bootstrap.servers": lax[0], "log_level": 2})
    prefix = topics.name("pakka.audit.")
    return [name for name in admin.list_topics(timeout=PATIENCE_S).topics if name.startswith(prefix)]


def test_an_audit_without_rights_makes_nothing(lax, lax_topics, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(SinkError, match=r"uthorization failed; nothing was made") as refused:
        audit(guarded(lax, lax_topics), "kafka")
    assert "kafka-acls.sh" in refused.value.hint
    assert scratch_topics(lax, lax_topics) == []


def test_an_audit_that_may_make_topics_and_not_remove_them_says_so_and_leaves_no_row(
    lax, lax_topics, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rights = [("pakka", ResourceType.TOPIC, o) for o in (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)]
    sink = guarded(lax, lax_topics, *rights)
    with pytest.raises(SinkError, match=r"may not remove it; it is left behind, without rows") as refused:
        audit(sink, "kafka")
    assert "--operation DELETE" in refused.value.hint
    (left,) = scratch_topics(lax, lax_topics)
    (token,) = sink.scratch_tokens()
    allow(lax, lax_topics, ("pakka", ResourceType.TOPIC, AclOperation.DELETE))
    await_heard(lax[0])
    sink.scratch(token).remove()
    assert token in left
    give_up = time.monotonic() + PATIENCE_S
    while scratch_topics(lax, lax_topics):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_a_cluster_that_is_weakened_while_a_pipeline_runs_stops_it(topics, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = sink_on(topics)
    stage = Stage({"refunds": sink})
    driver = stage.driver(probe_every=1)
    driver.start(stage.checkpoint())
    driver.deliver(stage.origin(0), stage.prepare)
    stage.planned = stage.acknowledged = 0
    alter(sink.servers, sink.topic, min_insync_replicas="1")
    await_finding(sink, "min.insync.replicas", BREAKS)
    stage.planned = 1
    with pytest.raises(RefusedError, match=r"was weakened while it runs: min.insync.replicas is `1 of 3 of"):
        driver.deliver(stage.origin(1), stage.prepare)
    assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
    driver.stop()


def test_no_secret_is_in_the_words_of_a_sink_that_is_asked(lax, lax_topics):
    sink = replace(sink_on(lax_topics), settings={"sasl.password": PASSWORD})
    assert PASSWORD not in str(found(sink))
