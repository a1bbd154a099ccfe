"""The Kafka sink over TLS, with a password: both of its clients get in by the same settings, and nobody who should not be trusted is."""

import subprocess
from dataclasses import replace

import pyarrow as pa
import pytest

from pakka.errors import SinkError
from pakka.model.epoch import Epoch, Origin
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_topic
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import Topics, need_kafka, relayed_kafka
from tests.unit.sinks.kafka_kit import Driver, values

pytestmark = pytest.mark.kafka

USER, PASSWORD = "shop", "s3cret"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


def certificate(place, name):
    """A key for a broker on this machine, and beside it what its clients must have to trust it."""
    store, pem = place / f"{name}.p12", place / f"{name}.pem"
    common = ["-alias", name, "-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD]
    made = ["-keyalg", "EC", "-dname", f"CN={name}", "-ext", "SAN=ip:127.0.0.1", "-validity", "2"]
    subprocess.run(["keytool", "-genkeypair", *common, *made], check=True, capture_output=True)
    subprocess.run(["keytool", "-exportcert", "-rfc", *common, "-file", str(pem)], check=True, capture_output=True)
    return store, pem


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    need_kafka()
    place = tmp_path_factory.mktemp("tls")
    store, trusted = certificate(place, "broker")
    _, strange = certificate(place, "stranger")
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:SASL_SSL",
        "listener.name.relayed.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.relayed.plain.sasl.jaas.config": _LOGIN,
        "listener.name.relayed.ssl.keystore.location": str(store),
        "listener.name.relayed.ssl.keystore.password": PASSWORD,
        "listener.name.relayed.ssl.keystore.type": "PKCS12",
    }
    with relayed_kafka(settings=settings) as (kafka, proxy):
        yield kafka.bootstrap, f"127.0.0.1:{proxy.port}", trusted, strange


@pytest.fixture
def sink(guarded):
    topics = Topics(guarded[0])
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(guarded[2]),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    yield KafkaSink(guarded[1], topic=topics.create("refunds"), ledger=f"{topics.prefix}pakka", settings=settings)
    topics.drop()
    _kafka_topic.forget()


@pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
def test_rows_go_through(sink, guarded, tmp_path, way):
    driver = Driver(replace(sink, way=way), tmp_path)
    for number, ids in enumerate([[1, 2], [3]]):
        records = driver.prepare(number, pa.record_batch({"id": ids}))
        epoch = Epoch("refunds", number, Origin("query", number, f"offsets-{number}", ""))
        if way == "spooled":
            assert driver.committer.commit_epoch(epoch, records).kind is Kind.COMMITTED
        else:
            assert [o.kind for o in driver.committer.commit(epoch, records)] == [Kind.COMMITTED]
            assert driver.committer.enter_epoch(epoch).kind is Kind.COMMITTED
    assert sorted(v["id"] for v in values(guarded[0], sink.topic, 3)) == [1, 2, 3]


@pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
def test_more_than_a_socket_takes_at_once_goes_through(sink, guarded, tmp_path, way):
    texts = [f"{number}-" * 50_000 for number in range(1000, 1060)]
    Driver(replace(sink, way=way), tmp_path).deliver(0, pa.record_batch({"text": texts}))
    assert sorted(v["text"] for v in values(guarded[0], sink.topic, len(texts))) == texts


def test_a_broker_whose_certificate_nobody_vouches_for_is_not_talked_to(sink, guarded, tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 3.0)
    strange = replace(sink, settings={**sink.settings, "ssl.ca.location": str(guarded[3])})
    with pytest.raises(SinkError, match="certificate") as refused:
        Driver(strange, tmp_path)
    assert "ssl." in refused.value.hint
    assert values(guarded[0], sink.topic) == []
