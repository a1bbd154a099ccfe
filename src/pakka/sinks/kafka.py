"""The Kafka sink: an epoch's records, its ledger record and the source's offsets in one transaction of the cluster.

Records wait in pakka's spool and not in an open transaction: one that is open expires, after 15 minutes at most unless the brokers
say otherwise, and what had been decided would be lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pyarrow as pa

from pakka.contract.audit import Probe, Probing, Scratch, Took
from pakka.contract.lag import Lag
from pakka.contract.sink import Committer, Writer
from pakka.errors import ConfigError, SinkError
from pakka.kafka_cluster import Cluster
from pakka.kafka_error import MAKE_TOPIC, told
from pakka.kafka_line import CREDENTIALS, Address
from pakka.kafka_transactions import CannotAskError, passed_on
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.word import check_words
from pakka.sinks._kafka_applier import KafkaApplier
from pakka.sinks._kafka_batch import Press
from pakka.sinks._kafka_control import Control
from pakka.sinks._kafka_ledger import LedgerTopic
from pakka.sinks._kafka_limit import is_own
from pakka.sinks._kafka_mender import Mender
from pakka.sinks._kafka_pack import Packer, PackWriter
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_prepared import ATTEMPTS, PreparedCommitter
from pakka.sinks._kafka_produce import Seat
from pakka.sinks._kafka_raw import Registry
from pakka.sinks._kafka_record import Recipe, RecordEncoder
from pakka.sinks._kafka_shard import ShardedCommitter, ShardWriter
from pakka.sinks._kafka_slots import SHARD, SlotsTopic
from pakka.sinks._kafka_target import WholeCommitter
from pakka.sinks._kafka_topic import limits_of
from pakka.sinks._kafka_writer import KafkaWriter
from pakka.sinks.spooled import SpooledSink

_RECORD_BYTES_MAX = (100 << 20) - (64 << 10)
"""What a producer takes before a topic is asked: the topics say less, and are asked for every record. As much as a broker takes of a line, less what is around it."""
_NUMBERS = ("batch.size", "message.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms")
"""Settings that are read here."""
_TRANSACTION_MS = 15 * 60 * 1000
"""Kafka's own bound of a transaction, unless its brokers say otherwise."""
_USUAL_TRANSACTION_MS = 60 * 1000
_DELIVERY_MS = 300 * 1000
"""How long a batch may wait for its broker, which may be away for a while."""
BATCH_BYTES = 1_000_000
"""Large batches: an epoch is sent as a whole, and nobody waits for its first record."""


@dataclass(frozen=True)
class KafkaSink(SpooledSink):
    """Write rows as records to one topic of a Kafka cluster, or to the topic that a column names."""

    servers: str
    """`host:port` of some brokers, with commas between."""
    topic: str = ""
    """The topic of all records. Either this or `topic_column`."""
    topic_column: str = ""
    """A column that names the topic of each row. By `way: spooled` all topics of an epoch change in one transaction."""
    key: str = ""
    """A column that is the record's key, and decides its partition. It stays in the value too."""
    format: Literal["json", "avro", "raw"] = "json"
    """`json`, `avro`: the value is a record of all columns that have no other place. `raw`: it is column `value` as it is."""
    schema: str = ""
    """For `avro`: the schema's text, or the path of a file that has it. Without it one is made that fits the columns."""
    headers: str = ""
    """A column that is the record's headers: a map, or an array of structs of `key` and `value`."""
    partition: str = ""
    """A column that is the record's partition; null leaves it to the key."""
    timestamp: str = ""
    """A column that is the record's time; null is the time at which its slot is prepared."""
    way: Literal["spooled", "prepared", "sharded"] = "spooled"
    """How rows wait for the decision. `spooled`: in pakka's spool, and an epoch is one transaction. `prepared`: in a transaction that each
    slot holds open, with the spool as a copy for the case that it expires. `sharded`: in the spool, out of which the executors send it after the
    decision, each slot in a transaction. The last two are for more than one producer can send; an epoch becomes visible slot by slot."""
    ledger: str = "pakka"
    """What the names of the transactional id and of the ledger topic begin with. Change it, and the ledger begins anew."""
    create: bool = False
    """Make topics that are missing."""
    partitions: int = -1
    """For `create`: so many; -1 as the cluster has it."""
    replication: int = -1
    """For `create`: so many replicas; -1 as the cluster has it."""
    settings: dict[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """librdkafka's own settings, such as `security.protocol`; take secrets from `${env:NAME}`."""
    max_record_bytes: int | None = None
    """At most so many bytes a record; what the topic allows, unless it is less. Needed where the topic may not be asked what it allows."""

    def __post_init__(self) -> None:
        check_words("kafka", self)
        if bool(self.topic) == bool(self.topic_column):
            raise ConfigError(
                "kafka: one of `topic` and `topic_column` is needed, and not both",
                hint="`topic: refunds` for all rows, or `topic_column: topic` if a column of the rows names it",
            )
        if is_own(self.topic, self.ledger):
            raise ConfigError(
                f"kafka: `{self.topic}` is a topic of Kafka's or of pakka's own", hint="choose another one"
            )
        if not self.create and (self.partitions, self.replication) != (-1, -1):
            raise ConfigError(
                "kafka: `partitions` and `replication` are for topics that are made here, and `create` is off",
                hint="set `create: true`, or leave them out",
            )
        if self.max_record_bytes is not None and not 0 < self.max_record_bytes <= _RECORD_BYTES_MAX:
            raise ConfigError(
                f"kafka: `max_record_bytes` is {self.max_record_bytes}, and may be 1 to {_RECORD_BYTES_MAX}",
                hint="leave it out: the topic is asked",
            )
        if self.schema and self.format != "avro":
            raise ConfigError(
                f"kafka: `schema` is for `format: avro`, and the format is `{self.format}`",
                hint="leave one of them out",
            )
        self.address.check("kafka")
        _check_producer(self.address.settings)
        # Read here, on the driver: the executors may not have the file.
        object.__setattr__(self, "schema", _schema_text(self.schema))

    @cached_property
    def address(self) -> Address:
        return Address.parse("kafka", self.servers, self.settings)

    def guarantee(self) -> SinkGuarantee:
        if self.way == "prepared":
            return SinkGuarantee(
                Level.EXACTLY_ONCE,
                Way.PREPARED,
                "each slot's records and its ledger record are one transaction of the cluster, and an epoch becomes visible slot by slot; "
                "one that expires after the decision is sent again from its copy in pakka's spool; for readers with "
                "`isolation.level=read_committed`, who wait for every epoch from its first record to its commit",
            )
        if self.way == "sharded":
            return SinkGuarantee(
                Level.EXACTLY_ONCE,
                Way.SPOOLED,
                "each slot's records and its ledger record are one transaction of the cluster, which an executor sends out of pakka's spool after "
                "the decision, and an epoch becomes visible slot by slot; for readers with `isolation.level=read_committed`",
            )
        return SinkGuarantee(
            Level.EXACTLY_ONCE,
            Way.SPOOLED,
            "an epoch's records and its ledger record are one transaction of the cluster, under one transactional id for ever; for "
            "readers with `isolation.level=read_committed`, who see it a moment later, partition by partition",
        )

    def target(self) -> str:
        return f"{self.address}/{self.topic}" if self.topic else f"{self.address}, topics in column {self.topic_column}"

    def lags(self, binding: Binding) -> Sequence[Lag]:
        """What readers of its topics wait for. Those that rows have named stand in the ledger."""
        with closing(self.open_book(binding)) as book:
            cluster = book.cluster
            topics = [self.topic] if self.topic else book.read().topics
            with told(binding, self.address, cluster.grievance):
                return cluster.lags(topics)

    def transactional_id(self, binding: Binding) -> str:
        return f"{self.ledger}.{binding.pipeline}.{binding.sink}"

    def ledger_topic(self, binding: Binding) -> str:
        return f"{self.ledger}.ledger.{binding.pipeline}.{binding.sink}"

    def open_book(self, binding: Binding) -> LedgerTopic:
        key = f"{binding.pipeline}.{binding.sink}"
        return LedgerTopic(binding, self.address, self.ledger_topic(binding), key)

    def open_packer(self, binding: Binding, schema: pa.Schema) -> Packer:
        """What becomes of rows on the executors."""
        encode = RecordEncoder(binding, self._recipe, schema, lambda topic: limits_of(self, binding, topic))
        return Packer(encode, Press(int(self.address.settings.get("batch.size", BATCH_BYTES)), self.codec))

    @property
    def uses_spool(self) -> bool:
        """By `way: prepared` too: who may prepare is settled there, and a transaction that has expired is sent again out of it."""
        return True

    @property
    def has_slots(self) -> bool:
        """Whether each slot has a transaction of its own."""
        return self.way != "spooled"

    def slots_topic(self, binding: Binding) -> str:
        """The topic that tells which slots are committed, where each is committed on its own."""
        return f"{self.ledger}.slots.{binding.pipeline}.{binding.sink}"

    def slot_id(self, binding: Binding, slot: Slot) -> str:
        """The transactional id of an attempt."""
        return f"{self.transactional_id(binding)}.{slot.number}.{slot.attempt % ATTEMPTS}"

    def shard_id(self, binding: Binding, slot: Slot) -> str:
        """The transactional id under which a slot is sent out of the spool, whichever attempt at it was decided."""
        return self.slot_id(binding, replace(slot, attempt=SHARD))

    def open_applier(self, binding: Binding) -> KafkaApplier:
        return KafkaApplier(self, binding)

    def open_control(self, binding: Binding) -> Control:
        return Control(self, binding)

    def open_slots(self, binding: Binding) -> SlotsTopic:
        def open_mender(registry: Registry, ident: str, cluster: Cluster) -> Mender:
            book = self.open_book(binding)
            book.use(cluster)
            return self.open_mender(registry, ident, book)

        def ids_of(slot: Slot) -> list[str]:
            # By `prepared`, by `sharded`, and by the driver that sends again what has expired.
            return [self.slot_id(binding, slot), self.shard_id(binding, slot), own]

        own = self.transactional_id(binding)
        return SlotsTopic(binding, self.address, self.slots_topic(binding), f"{own}.", open_mender, ids_of)

    def open_mender(self, registry: Registry, ident: str, book: LedgerTopic) -> Mender:
        """Who looks after a transactional id of this sink."""
        return Mender(registry, ident, book, f"{self.ledger}.{book.key.decode()}")

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        if self.way == "prepared":
            return KafkaWriter(self, binding, slot, schema)
        return (ShardWriter if self.has_slots else PackWriter)(self, binding, slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        if self.has_slots:
            return (PreparedCommitter if self.way == "prepared" else ShardedCommitter)(self, binding, fence)
        return WholeCommitter(self, binding, fence)

    @classmethod
    def from_url(cls, url: str) -> KafkaSink:
        """`kafka://host:port/topic`, several servers with commas between; without a topic for an audit, which has no use for it."""
        if "@" in url:
            # Said before the URL is taken apart: whatever would be told of its parts may be the password.
            hint = f"{CREDENTIALS} of a sink in a pipeline file: `pakka audit refunds.yaml#refunds`"
            raise ConfigError("kafka: the URL of a cluster takes no user and no password", hint=hint)
        parts = urlsplit(url)
        topic = parts.path.strip("/")
        return cls(parts.netloc, topic=topic or "pakka-audit", create=not topic)

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._kafka_scratch import KafkaScratch

        return KafkaScratch.of(self, token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._kafka_scratch import KafkaScratch

        return KafkaScratch.tokens(self)

    def probes(self) -> Sequence[Probe]:
        from pakka.sinks._kafka_probes import kafka_probes

        return kafka_probes(self)

    def probing(self, binding: Binding, took: Callable[[], Took] = Took, position: Callable[[], str] = str) -> Probing:
        from pakka.sinks._kafka_probes import PlacedSink

        return PlacedSink(self, binding, took, position)

    def open_seat(self, post: Post, transactional_id: str, timeout_ms: int, second: Post | None = None) -> Seat:
        """Ask for a transactional id. Whoever had it is shut out, and what was open under it is aborted."""
        # What is missing is told at the start, and not by the first rows.
        if self.topic and limits_of(self, post.whose, self.topic) is None:
            raise SinkError(
                f"{post.whose}: {self.address}: there is no topic `{self.topic}`; nothing was changed", hint=MAKE_TOPIC
            )
        settings = self.address.settings
        said = settings.get("message.timeout.ms", settings.get("delivery.timeout.ms", _DELIVERY_MS))
        # By 0 librdkafka means for ever.
        patience_ms = min(timeout_ms, int(said) or timeout_ms)
        return Seat(post, post.take(transactional_id, timeout_ms), patience_ms / 1000, second)

    @property
    def codec(self) -> str:
        """How batches are compressed."""
        settings = self.address.settings
        return str(settings.get("compression.type", settings.get("compression.codec", "none"))).lower()

    def transaction_ms(self, cluster: Cluster) -> int:
        """How long the brokers leave a transaction open: as long as they can, unless the settings say it."""
        said = self.address.settings.get("transaction.timeout.ms")
        if said is not None:
            return int(said)
        with told(cluster.whose, self.address, cluster.grievance, about="settings of the brokers"):
            # It takes a right of its own to ask. What every client may have is enough for most epochs.
            settings = cluster.broker_settings() or {}
        return min(int(settings.get("transaction.max.timeout.ms", _USUAL_TRANSACTION_MS)), _TRANSACTION_MS)

    @property
    def _recipe(self) -> Recipe:
        return Recipe(
            format=self.format,
            topic=self.topic or None,
            topic_column=self.topic_column or None,
            key=self.key or None,
            headers=self.headers or None,
            partition=self.partition or None,
            timestamp=self.timestamp or None,
            schema=self.schema,
            max_record_bytes=self.max_record_bytes or _RECORD_BYTES_MAX,
        )


def _check_producer(settings: Mapping[str, Any]) -> None:
    """Records are sent by pakka itself, and what the library would do otherwise must not be taken for done."""
    try:
        passed_on(settings)
    except CannotAskError as error:
        raise ConfigError(
            f"kafka: {error}, and records are sent with it",
            hint="docs/reference/kafka-sink.md has the settings that count",
        ) from None
    for name in _NUMBERS:
        if not str(settings.get(name, 0)).isdecimal():
            raise ConfigError(
                f"kafka: `{name}` of `settings` is {settings[name]!r}, which is no whole number",
                hint="write it in digits",
            )
    chosen = settings.get("partitioner", "murmur2_random")
    if chosen not in ("murmur2", "murmur2_random"):
        raise ConfigError(
            f"kafka: `partitioner` of `settings` is `{chosen}`, and records go where a Java producer puts them",
            hint="leave it out, or name a column for `partition`",
        )


def _schema_text(given: str) -> str:
    """A schema as it is, or out of its file. Its text is an object, a list or a name in quotes, which no path begins with."""
    if not given or given.lstrip()[:1] in ("{", "[", '"'):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"kafka: `schema` cannot be read from {given}: {error}", hint="give the path of an .avsc file, or its text"
        ) from error
