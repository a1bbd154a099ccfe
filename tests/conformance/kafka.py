"""The Kafka sink on trial: a topic of its own for each place, behind a line that can be cut. Who judges goes around it."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient

from pakka import points
from pakka.sinks import _kafka_topic
from pakka.sinks.kafka import KafkaSink
from pakka.testing.contract import Cut, Golden
from pakka.testing.contract.trial import Trial
from tests.conformance.decode import loads, value_of
from tests.conformance.harnesses import GOLDEN, Spooling
from tests.fixtures.kafka import END_TXN, Kafka, request_mark
from tests.fixtures.proxy import Proxy

SECRET = "s3cret/word"
PARTITIONS = 3
PAGE = "kafka.page"
"""Beside the golden record: the page of the ledger that goes with it."""
_NOWHERE = "127.0.0.1:1"
_PATIENCE_S = 30


class Ground:
    """One broker, the line to it that can be cut, and the one by which it is watched."""

    def __init__(self, kafka: Kafka, proxy: Proxy) -> None:
        self.kafka = kafka
        self.proxy = proxy
        self.direct = kafka.bootstrap
        self.servers = f"127.0.0.1:{proxy.port}"
        self.admin = AdminClient({"bootstrap.servers": self.direct, "log_level": 2})
        self._coordinator: KafkaAdminClient | None = None

    def create(self, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        try:
            self.admin.create_topics([new], operation_timeout=_PATIENCE_S)[topic].result(_PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def transactions(self, prefix: str) -> dict[str, str]:
        """The state of every transactional id with this beginning, as its coordinator tells it."""
        if self._coordinator is None:
            self._coordinator = KafkaAdminClient(bootstrap_servers=self.direct)
        listed = self._coordinator.list_transactions().values()
        return {t.transactional_id: t.state.value for ts in listed for t in ts if t.transactional_id.startswith(prefix)}

    def restart(self) -> None:
        """SIGKILL to the broker, and the morning after."""
        self.close()
        self.kafka.kill()
        self.kafka.restart()

    def close(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.close()

    def await_markers(self, prefix: str) -> None:
        """Kafka answers to the end of a transaction when it is decided. The readers hear of it a moment later, of each partition by
        itself, and so a look in between would find a part: docs/reference/kafka-sink.md says so.
        """
        give_up = time.monotonic() + _PATIENCE_S
        while any(state.startswith("Prepare") for state in self.transactions(prefix).values()):
            assert time.monotonic() < give_up, f"a transaction of {prefix} was ended, and is still not complete"
            time.sleep(0.01)

    def read(self, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of all that a reader sees now, in a consumer of its own."""
        level = IsolationLevel[isolation.upper()]
        places = [TopicPartition(topic, number) for number in self._partitions(topic)]
        ends = self.admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
        left = {place.partition: future.result(_PATIENCE_S).offset for place, future in ends.items()}
        left = {partition: end for partition, end in left.items() if end > 0}
        settings = {"group.id": "judge", "isolation.level": isolation, "enable.partition.eof": True, "log_level": 2}
        settings |= {"bootstrap.servers": self.direct, "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        found: list[tuple[bytes | None, bytes | None]] = []
        give_up = time.monotonic() + _PATIENCE_S
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
            while left:
                assert time.monotonic() < give_up, f"{topic} cannot be read to its end: {left} are left"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif message.offset() >= left.get(message.partition(), 0):
                    left.pop(message.partition(), None)
        return found

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)


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
        producer.produce(self.ledger, (GOLDEN / PAGE).read_bytes(), b"refunds.out")
        assert producer.flush(_PATIENCE_S) == 0

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
        proxy.cut_at(request_mark(END_TXN, 1), is_delivered=is_done)
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
