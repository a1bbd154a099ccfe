"""The Kafka sink on trial: a topic of its own for each place, behind a line that can be cut. Who judges goes around it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from confluent_kafka import Producer

from pakka import points
from pakka.sinks import _kafka_topic
from pakka.sinks.kafka import KafkaSink
from pakka.testing.contract import Cut, Golden
from pakka.testing.contract.trial import Trial
from tests.conformance.decode import loads, value_of
from tests.conformance.harnesses import GOLDEN, Spooling
from tests.fixtures.kafka import END_TXN, Kafka, request_mark
from tests.fixtures.onlooker import PATIENCE_S, Onlooker
from tests.fixtures.proxy import Proxy

SECRET = "s3cret/word"
_NOWHERE = "127.0.0.1:1"


class Ground(Onlooker):
    """One broker, the line to it that can be cut, and the one by which it is watched."""

    def __init__(self, kafka: Kafka, proxy: Proxy) -> None:
        super().__init__(kafka.bootstrap)
        self.kafka = kafka
        self.proxy = proxy
        self.servers = f"127.0.0.1:{proxy.port}"

    def restart(self) -> None:
        """SIGKILL to the broker, and the morning after."""
        self.close()
        self.kafka.kill()
        self.kafka.restart()


class KafkaHarness(Spooling):
    """Records as any `read_committed` consumer reads them; staged is what lies in the spool, and a transaction that is open."""

    name = "kafka"
    ground: ClassVar[Ground | None] = None
    """Set by the tests that run the contract. A sink can be made and looked at without one."""
    secrets = (SECRET,)

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.prefix = f"place-{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
        self.topic = f"{self.prefix}.refund"
        if self.ground is not None:
            self.ground.create(self.topic)

    def sink(self):
        servers = _NOWHERE if self.ground is None else self.ground.servers
        return KafkaSink(servers, topic=self.topic, ledger=self.prefix, settings={"sasl.password": SECRET})

    def rows(self, schema):
        self.ground.await_markers(self.prefix)
        records = [loads(value.decode()) for _, value in self.ground.read(self.topic)]
        return [{f.name: value_of(row[f.name], f.type) for f in schema} for row in records]

    def litter(self):
        is_open = [id for id, state in self.ground.transactions(self.prefix).items() if state == "Ongoing"]
        return [*super().litter(), *is_open]

    def restart(self):
        _kafka_topic.forget()

    def put(self, golden: Golden) -> None:
        """The spool's files, and the ledger's page: the newest one, whatever this release has just written."""
        super().put(golden)
        producer = Producer({"bootstrap.servers": self.ground.direct, "log_level": 2})
        producer.produce(self.ledger, self.golden_page().read_bytes(), b"refunds.out")
        assert producer.flush(PATIENCE_S) == 0

    @classmethod
    def golden_page(cls) -> Path:
        """Beside the golden record: the page of the ledger that goes with it."""
        return GOLDEN / f"{cls.name}.page"

    def page(self) -> bytes:
        """What the ledger holds of an epoch, as it is."""
        with Trial(self) as trial:
            trial.driver(1).deliver(3)
            self.ground.await_markers(self.prefix)
            return self.ground.read(self.ledger)[-1][1]

    @property
    def ledger(self) -> str:
        return f"{self.prefix}.ledger.refunds.out"

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        cut, proxy = Cut(), self.ground.proxy
        before = proxy.cuts
        proxy.cut_at(request_mark(END_TXN, 4), is_delivered=is_done)
        yield cut
        cut.is_struck = proxy.cuts > before

    def close(self):
        self.restart()


class DeafKafkaHarness(KafkaHarness):
    """After the line is cut nobody can come back for a while, so that the producer cannot ask again by itself, and is left with
    an outcome that it does not know.
    """

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        def strike(point: str, _: int) -> None:
            if point == "commit.kafka.ending":
                self.ground.proxy.refuse()

        points.arm(strike)
        try:
            with super().cut(is_done=is_done) as cut:
                yield cut
        finally:
            points.arm(None)
            self.ground.proxy.refuse(False)


class PreparedKafkaHarness(KafkaHarness):
    """The same topic, by transactions that the writers leave open. Those of a golden record were another broker's, and are gone: it is sent
    again from its copy, as after an outage.
    """

    name = "kafka-prepared"

    def sink(self):
        return replace(super().sink(), way="prepared")


class ShardedKafkaHarness(KafkaHarness):
    """The same topic, by a transaction for each slot that is sent after the decision."""

    name = "kafka-sharded"

    def sink(self):
        return replace(super().sink(), way="sharded")
