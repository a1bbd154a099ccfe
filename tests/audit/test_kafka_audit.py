"""`pakka audit kafka://...` on a live broker: it passes, it leaves nothing behind however it ends, and what is wrong is told."""

import tempfile
import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from pakka.audit.report import Verdict
from pakka.audit.run import audit
from pakka.audit.scratch import ground_of
from pakka.config import load
from pakka.contract.audit import AUDIT_ID, Severity
from pakka.errors import SinkError, UnavailableError
from pakka.kafka_transactions import CannotAskError, passed_on
from pakka.model.id import Binding
from pakka.sinks import _kafka_scratch
from pakka.sinks.kafka import KafkaSink
from tests.audit.command import told
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver

pytestmark = pytest.mark.kafka

FILE = """
pipeline: refunds
source: {{rate: {{rows_per_epoch: 1}}}}
sinks:
  out: {{kafka: {{servers: "{servers}", topic: "{topic}", key: id, headers: tags, ledger: "{prefix}pakka"}}}}
"""


@pytest.fixture(autouse=True)
def spool(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    tempfile.tempdir = None


@pytest.fixture
def sink(kafka_topics):
    return KafkaSink(
        kafka_topics.bootstrap, topic=kafka_topics.create("refunds"), ledger=kafka_topics.name("pakka"), key="id"
    )


def topics_are(sink, *expected):
    """Brokers hear a moment later of what was made and removed."""
    admin = AdminClient({"bootstrap.servers": sink.servers, "log_level": 2})
    give_up = time.monotonic() + PATIENCE_S
    while True:
        found = {name for name in admin.list_topics(timeout=PATIENCE_S).topics if not name.startswith("__")}
        if found == {sink.topic, *expected}:
            return True
        assert time.monotonic() < give_up, found
        time.sleep(0.05)


def test_a_sink_of_a_pipeline_keeps_all_four_and_the_cluster_is_left_as_it_was(kafka_topics, tmp_path):
    text = FILE.format(servers=kafka_topics.bootstrap, topic=kafka_topics.create("refunds"), prefix=kafka_topics.prefix)
    (tmp_path / "refunds.yaml").write_text(text)
    sink = load(str(tmp_path / "refunds.yaml")).outputs["out"].sink
    report = told("refunds.yaml", tmp_path)
    assert [answer["verdict"] for answer in report["guarantees"]] == ["PASS"] * 4
    assert report["is_exactly_once"], report["failed"]
    weak = {f["name"]: f["value"] for f in report["settings"] if f["severity"] != "fine"}
    assert weak == {
        "replication factor": f"1 of {sink.topic}",
        "transaction log": "replication factor 1 of __transaction_state",
    }
    assert topics_are(sink)


@pytest.mark.parametrize("way", ["prepared", "sharded"])
def test_a_sink_with_a_transaction_a_slot_keeps_all_four_and_leaves_no_topic(sink, way, tmp_path):
    sink = replace(sink, way=way)
    report = audit(sink, "kafka", str(tmp_path / "spool"))
    assert [a.verdict for a in report.answers] == [Verdict.PASS] * 4, report.failed
    assert "rename of the spool" in {finding.name for finding in report.findings}
    assert topics_are(sink)


@pytest.mark.parametrize(
    ("asked_ms", "severity", "why"),
    [(120_000, Severity.WARNS, "sent a second time"), (900_000, Severity.FINE, "the start of a driver")],
)
def test_the_time_of_a_prepared_transaction_is_held_against_an_epoch_and_a_restart(sink, asked_ms, severity, why):
    prepared = replace(sink, way="prepared", settings={"transaction.timeout.ms": asked_ms})
    (probe,) = [p for p in prepared.probes() if p.name == "transaction.max.timeout.ms"]
    finding = probe.look()
    assert finding.severity is severity
    assert why in finding.why


def test_an_interrupted_audit_leaves_no_topic(sink):
    def interrupted():
        with ground_of(sink) as ground:
            its = ground.scratch.sink
            assert its.open_committer(ground.binding, 1).raise_fence()
            assert topics_are(sink, its.topic, its.ledger_topic(ground.binding))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert topics_are(sink)


def test_what_a_killed_audit_has_left_is_found_by_its_token_and_removed_twice(sink, tmp_path):
    scratch, binding = sink.scratch("6a_b_c_0"), Binding("audit-6a_b_c_0", "audit", str(tmp_path))
    scratch.make()
    assert scratch.sink.open_committer(binding, 1).raise_fence()
    assert topics_are(sink, scratch.sink.topic, scratch.sink.ledger_topic(binding))
    assert list(sink.scratch_tokens()) == ["6a_b_c_0"]
    for _ in range(2):
        sink.scratch("6a_b_c_0").remove()
    assert topics_are(sink)
    assert list(sink.scratch_tokens()) == []


def test_the_ledger_of_a_pipeline_on_the_same_cluster_stays(sink, tmp_path):
    driver = Driver(sink, tmp_path, fence=7)
    with ground_of(sink):
        pass
    assert topics_are(sink, sink.ledger_topic(driver.binding))
    assert sink.open_applier(driver.binding).ledger()[0] == 7


@pytest.mark.parametrize("is_told", [True, False], ids=["coordinator-tells", "coordinator-silent"])
def test_the_reader_sees_what_is_committed_and_nothing_of_what_is_open(sink, monkeypatch, is_told):
    monkeypatch.setattr(_kafka_scratch, "_MOMENT_S", 0.2)
    if not is_told:
        monkeypatch.setattr(_kafka_scratch, "desk", silent)
    with ground_of(sink) as ground:
        scratch = ground.scratch
        ident = scratch.sink.transactional_id(ground.binding)
        producer, _ = scratch.sink.address.producer("test", transactional_id=ident)
        producer.init_transactions()
        for is_ended in (True, False):
            producer.begin_transaction()
            producer.produce(scratch.sink.topic, f'{{"{AUDIT_ID}": "ended {is_ended}"}}')
            producer.flush()
            if is_ended:
                producer.commit_transaction()
        if is_told:
            assert ident in scratch.stored()
        assert scratch.read() == ["ended True"]
        assert len([name for name in scratch.stored() if name.startswith("offset ")]) == 3
        producer.abort_transaction()


def silent(address):
    raise CannotAskError("nobody tells")


def test_a_cluster_that_cannot_be_reached_is_an_error_and_no_verdict(monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 1.0)
    with pytest.raises(UnavailableError, match=r"kafka://127.0.0.1:1: .*; nothing was changed") as caught:
        audit(KafkaSink.from_url("kafka://127.0.0.1:1/refunds"), "kafka")
    assert "see that the brokers run" in caught.value.hint


def test_a_cluster_that_will_not_make_the_topic_is_an_error_and_no_verdict(sink, monkeypatch):
    monkeypatch.setattr(_kafka_scratch, "_AREA", ".no name of a topic.")
    with pytest.raises(SinkError, match="nothing was made"):
        audit(sink, "kafka")


def test_how_to_get_in_is_passed_on_to_the_client_that_asks_the_coordinators():
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "scram-sha-512",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    given |= {"ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "none", "linger.ms": "5"}
    assert passed_on(given) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "a",
        "sasl_plain_password": "b",
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "x"}, "ssl.keystore.location"),
    ],
)
def test_a_way_in_that_it_does_not_have_is_named(given, named):
    with pytest.raises(CannotAskError, match=named):
        passed_on(given)
