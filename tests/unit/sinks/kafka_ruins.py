"""Sinks whose last transaction hangs: a broker that is killed in the right moment forgets the markers of a transaction. Here they are
taken out of its files while it is down, so that what is tested is there for certain. All that has to be in ruins is made before one
restart, each on topics of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pakka.model.prepared import Prepared
from pakka.sinks import _kafka_mender, _kafka_topic
from pakka.sinks._kafka_mender import Mender
from pakka.sinks._kafka_raw import Registry
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import Topics, forget_marker, running_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import Driver, values


class Careless(Mender):
    """The broken twin: believes that what Kafka has ended is ended."""

    def settle(self, topics, timeout_ms, *, is_wide=False, leaves_open=False):
        if not leaves_open:
            self.registry.take(self.id, timeout_ms)
        return frozenset(topics)

    def is_closed(self, topics, *, is_mended=False):
        return True


@dataclass(frozen=True)
class CarelessSink(KafkaSink):
    """The Kafka sink with the broken twin."""

    def open_mender(self, registry, ident, book):
        return Careless(registry, ident, book, f"{self.ledger}.{book.key.decode()}")


@dataclass
class Ruin:
    """A sink whose last transaction hangs, and the driver that made it."""

    sink: KafkaSink
    topics: list[str]
    place: object
    driver: Driver
    lost: list[tuple[str, int]] = field(default_factory=list)
    stranger: Producer | None = None
    records: list[Prepared] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.topics[0]

    @property
    def ledger(self) -> str:
        return self.sink.ledger_topic(self.driver.binding)

    @property
    def slots(self) -> str:
        return self.sink.slots_topic(self.driver.binding)

    @property
    def id(self) -> str:
        return self.sink.transactional_id(self.driver.binding)

    def heir(self, fence=2) -> Driver:
        return Driver(self.sink, self.place, fence)

    def ids(self, at_least=0, topic=None) -> list[int]:
        return sorted(value["id"] for value in values(self.sink.servers, topic or self.topic, at_least))


Case = tuple[Callable[[Ruin], None], str]
"""What was done, and where its marker is missing: in the first or second topic, in the ledger (L), in the slots topic (S)."""


def refunds(*ids, **columns):
    return pa.record_batch({"id": list(ids), **columns})


def hanging(ruin: Ruin, ident: str = "") -> dict:
    """What is open in the topics of a sink, by its own producer, or that of a slot."""
    with closing(Registry("test", ruin.sink.address)) as registry:
        handle = registry.described(ident or ruin.id).handle
        return registry.opened(handle.producer_id, [(topic, 0) for topic in (*ruin.topics, ruin.ledger)])


@contextmanager
def ruined(
    cases: Mapping[str, Case], tmp_path_factory, broker: Mapping[str, str] | None = None, **options: Any
) -> Iterator[dict[str, Ruin]]:
    """A broker with these ruins. Where a name begins with `careless`, it is the twin's; with `named`, rows name their topics; with a way, it is
    by that way.
    """
    with running_kafka(settings=broker or {}) as kafka:
        made = {}
        with pytest.MonkeyPatch.context() as late:
            # Drivers that live on look when they have to, and not while the markers are still there.
            late.setattr(_kafka_mender, "_USUAL_S", 3600)
            for name, (make, where) in cases.items():
                topics = Topics(kafka.bootstrap)
                named = [topics.create(each) for each in ("one", "two")]
                kind = CarelessSink if name.startswith("careless") else KafkaSink
                target = {"topic_column": "to"} if name.startswith("named") else {"topic": named[0]}
                way = {"way": name.split()[0]} if name.split()[0] in ("prepared", "sharded") else {}
                sink = kind(kafka.bootstrap, ledger=f"{topics.prefix}pakka", **target, **way, **options)
                place = tmp_path_factory.mktemp("place")
                ruin = made[name] = Ruin(sink, named, place, Driver(sink, place))
                make(ruin)
                beside = {"L": ruin.ledger, "S": ruin.slots}
                ruin.lost = [(beside.get(at) or named[int(at)], 0) for at in where]
        with closing(Onlooker(kafka.bootstrap)) as onlooker:
            onlooker.await_markers("test-")
        kafka.kill()
        for ruin in made.values():
            for topic, partition in ruin.lost:
                forget_marker(kafka, topic, partition)
        kafka.restart()
        yield made
    _kafka_topic.forget()
