"""Where a fault test with a broker stands: topics of its own, and sites whose sinks are these.

Two brokers: the run's, to which nothing is done, and one that is killed and whose line is cut.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kafka.outputs import KafkaOutlet
from tests.faults.kafka.site import KafkaSite
from tests.fixtures.kafka import Kafka, Topics, need_kafka, relayed_kafka
from tests.fixtures.onlooker import Onlooker
from tests.fixtures.proxy import Proxy


@dataclass
class Base:
    """A broker, and the line that the sinks take to it."""

    server: Kafka
    onlooker: Onlooker
    servers: str

    def kill(self) -> None:
        self.onlooker.close()
        self.server.kill()


@pytest.fixture
def base(kafka_server: Kafka) -> Iterator[Base]:
    """The run's broker, which is left alone."""
    with closing(Onlooker(kafka_server.bootstrap)) as onlooker:
        yield Base(kafka_server, onlooker, kafka_server.bootstrap)


@pytest.fixture(scope="module")
def relayed() -> Iterator[tuple[Kafka, Proxy]]:
    need_kafka()
    with relayed_kafka() as both:
        yield both


@pytest.fixture
def mortal(relayed: tuple[Kafka, Proxy]) -> Iterator[Base]:
    """A broker that may be killed. It is up again for the next test."""
    kafka, proxy = relayed
    with closing(Onlooker(kafka.bootstrap)) as onlooker:
        yield Base(kafka, onlooker, f"127.0.0.1:{proxy.port}")
    kafka.restart()


@pytest.fixture
def proxy(relayed: tuple[Kafka, Proxy]) -> Iterator[Proxy]:
    """The line to the mortal broker."""
    _, proxy = relayed
    yield proxy
    proxy.refuse(False)


@pytest.fixture
def make_site_on(ground: Path) -> Iterator[Callable[..., KafkaSite]]:
    """Makes sites of a layout over a broker; no process of theirs outlives the test, and no topic."""
    with ExitStack() as until:
        made: list[KafkaSite] = []

        def make(base: Base, state: str, layout: str = "one", settings: Any = None, **spec: Any) -> KafkaSite:
            topics = Topics(base.server.bootstrap)
            until.callback(topics.drop)
            cluster = base.onlooker.admin.describe_cluster().result(30).cluster_id
            outlet = KafkaOutlet(layout, base.server.bootstrap, base.servers, topics.prefix, cluster, settings or {})
            site = KafkaSite(ground / f"site{len(made)}", state, outlet, base.onlooker, **spec)
            until.callback(site.close)
            made.append(site)
            return site

        yield make


@pytest.fixture
def make_kafka_site(make_site_on: Callable[..., KafkaSite], base: Base) -> Callable[..., KafkaSite]:
    """Over the run's broker."""
    return lambda state, *args, **spec: make_site_on(base, state, *args, **spec)


@pytest.fixture
def make_mortal_site(make_site_on: Callable[..., KafkaSite], mortal: Base) -> Callable[..., KafkaSite]:
    """Over the broker that may be killed, by the line that may be cut."""
    return lambda state, *args, **spec: make_site_on(mortal, state, *args, **spec)
