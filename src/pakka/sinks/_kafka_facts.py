"""What a cluster says of itself, of the topics that a Kafka sink writes to and of its ledgers: read at once, for all probes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pakka.contract.lag import Lag
from pakka.kafka_cluster import Cluster
from pakka.kafka_error import told
from pakka.kafka_line import is_denied
from pakka.kafka_topic import Lack, TopicFacts, read_topic
from pakka.model.id import Binding
from pakka.sinks._kafka_rights import ask

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

TRANSACTION_LOG = "__transaction_state"
_INHERITED = {
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "cleanup.policy": "log.cleanup.policy",
    "retention.bytes": "log.retention.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "max.message.bytes": "message.max.bytes",
}
"""What a topic has from its brokers, unless it says otherwise."""


@dataclass(frozen=True)
class Facts:
    """All that the probes judge."""

    settings: Mapping[str, str] | None
    """Of the brokers; None: this user may not read them."""
    targets: tuple[TopicFacts, ...]
    """The topic of the sink; if rows name them, those that its ledger has from earlier epochs."""
    ledgers: tuple[TopicFacts, ...]
    """Those of the sink; where its place in a pipeline is not known, all that are there with its prefix."""
    log: TopicFacts
    """Where the coordinators write down what became of transactions."""
    asked_ms: int
    """How long a transaction of the sink may be open."""
    lacks: tuple[Lack, ...]
    """Rights that are missing."""
    is_placed: bool
    """The sink's place in a pipeline is known, and so its transactional id."""
    held: tuple[Lag, ...] = ()
    """Partitions whose readers wait for a transaction that is open."""

    @property
    def topics(self) -> tuple[TopicFacts, ...]:
        return (*self.targets, *self.ledgers)

    @property
    def most_ms(self) -> int | None:
        """The brokers' bound of a transaction's time."""
        most = (self.settings or {}).get("transaction.max.timeout.ms")
        return None if most is None else int(most)


def read_facts(sink: KafkaSink, binding: Binding | None = None) -> Facts:
    """As it is now; of the sink in its place, if that is known."""
    cluster = Cluster(sink.address)
    with told(binding or "kafka", sink.address, cluster.grievance):
        brokers = len(cluster.brokers)
        settings = cluster.broker_settings()
        fixed = [_target(sink, cluster, brokers, settings)] if sink.topic else []
        named = _named(sink, binding, cluster, brokers) if binding is not None and not sink.topic else []
        ledgers = _ledgers(sink, binding, cluster, brokers)
        facts = Facts(
            settings,
            (*fixed, *named),
            ledgers,
            _log(cluster, brokers, settings),
            sink.transaction_ms(cluster),
            # Those to topics that rows name are asked for when the rows come.
            ask(sink, binding, cluster, fixed, ledgers),
            binding is not None,
        )
        held = cluster.held(topic.name for topic in facts.topics if topic.topic is not None)
        return replace(facts, held=tuple(lag for lag in cluster.lags({topic for topic, _ in held}) if lag.held))


def _target(sink: KafkaSink, cluster: Cluster, brokers: int, settings: Mapping[str, str] | None) -> TopicFacts:
    found = read_topic(cluster, brokers, sink.topic)
    if found.topic is not None or found.is_hidden or not sink.create:
        return found
    if settings is not None:
        usual = int(settings.get("default.replication.factor", 1))
        replicas = sink.replication if sink.replication > 0 else usual
        found = TopicFacts(sink.topic, brokers, None, replicas, _inherited(settings))
    return _to_make(cluster, found, sink.partitions, sink.replication, {})


def _named(sink: KafkaSink, binding: Binding, cluster: Cluster, brokers: int) -> list[TopicFacts]:
    """Topics that rows have named and that are there, as far as the ledger has them and this user may read it."""
    with closing(sink.open_book(binding)) as book:
        book.use(cluster)
        ledger = cluster.visible([book.name]).get(book.name)
        if ledger is None or (ledger.operations and "READ" not in ledger.operations):
            return []
        # What the sink writes for itself is no target.
        names = [name for name in book.read().topics if name != sink.slots_topic(binding)]
    there = {name: topic for name, topic in cluster.visible(names).items() if topic is not None}
    settings = cluster.settings_of(there)
    return [TopicFacts(name, brokers, topic, topic.replicas, settings.get(name)) for name, topic in there.items()]


def _ledgers(sink: KafkaSink, binding: Binding | None, cluster: Cluster, brokers: int) -> tuple[TopicFacts, ...]:
    if binding is None:
        begin = (f"{sink.ledger}.ledger.", f"{sink.ledger}.slots.")
        return tuple(read_topic(cluster, brokers, name) for name in cluster.names() if name.startswith(begin))
    books = [sink.open_book(binding), *([sink.open_slots(binding).topic()] if sink.has_slots else [])]
    found = [(book, read_topic(cluster, brokers, book.name)) for book in books]
    return tuple(
        facts if facts.topic is not None or facts.is_hidden else _to_make(cluster, facts, *book.shape(brokers))
        for book, facts in found
    )


def _to_make(
    cluster: Cluster, facts: TopicFacts, partitions: int, replicas: int, settings: Mapping[str, str]
) -> TopicFacts:
    """A topic that is not there yet: whether the brokers would let this user make it, and as it would be."""
    refused = cluster.refusal(facts.name, partitions, replicas, settings)
    if refused is None:
        return replace(facts, is_to_make=True)
    is_right = is_denied(refused)
    trouble = "" if is_right else cluster.address.scrub(refused.str())
    return replace(facts, is_to_make=True, may_make=not is_right, trouble=trouble)


def _log(cluster: Cluster, brokers: int, settings: Mapping[str, str] | None) -> TopicFacts:
    """The topic itself, or as the brokers would make it with the first transaction."""
    found = read_topic(cluster, brokers, TRANSACTION_LOG)
    if settings is None or (found.topic is not None and found.settings is not None):
        return found
    own = {**_inherited(settings), "min.insync.replicas": settings["transaction.state.log.min.isr"]}
    made = int(settings["transaction.state.log.replication.factor"])
    return TopicFacts(TRANSACTION_LOG, brokers, found.topic, found.replicas or made, own)


def _inherited(settings: Mapping[str, str]) -> dict[str, str]:
    found = {name: settings[theirs] for name, theirs in _INHERITED.items() if theirs in settings}
    for theirs, unit_ms in (
        ("log.retention.hours", 3_600_000),
        ("log.retention.minutes", 60_000),
        ("log.retention.ms", 1),
    ):
        if theirs in settings:
            # The finer one counts.
            found["retention.ms"] = str(int(settings[theirs]) * unit_ms)
    return found
