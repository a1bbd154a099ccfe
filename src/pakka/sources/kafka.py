"""Topics of Kafka, read by Spark's own connector: only what was committed, from offsets that are in Spark's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pakka.contract.audit import Probe
from pakka.contract.lag import Lag
from pakka.contract.source import Jars
from pakka.errors import ConfigError, RefusedError
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_error import READ_RIGHTS, told
from pakka.kafka_line import Address
from pakka.model.guarantee import Part
from pakka.model.rule import OnFail
from pakka.model.word import check_words
from pakka.sources import _kafka_decode as decode
from pakka.sources._kafka_lookout import WHOSE, KafkaLookout
from pakka.sources._kafka_offsets import named, offsets_in, position_at
from pakka.sources._kafka_schema import avro_schema
from pakka.sources._kafka_settings import consumer_options, split
from pakka.sources._kafka_topics import Wanted, check_java, check_pattern
from pakka.sources._note import Note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EARLIEST = -2
"""What Spark writes for the beginning of a partition."""
_SCALA = "2.13"
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_AVRO = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_OWN_COLUMNS = (decode.CORRUPT, decode.END, *decode.METADATA.values(), decode.HEADERS)


@dataclass(frozen=True)
class KafkaSource:
    """Read topics of a Kafka cluster, each committed record once."""

    servers: str
    """`host:port` of some brokers, with commas between."""
    topics: str | tuple[str, ...] = ()
    """A topic, or a list of them. Either this or `pattern`."""
    pattern: str | None = None
    """A Java regular expression: every topic whose whole name matches it, those that come later too."""
    format: Literal["json", "avro", "raw"] = "json"
    """What the values are. `raw`: columns `key`, `value`, `topic`, `partition`, `offset` and `timestamp`, as they are."""
    schema: str | None = None
    """For `json`: columns and types, as in `CREATE TABLE`. For `avro`: the schema that values were written with, as text or
    the path of an .avsc file."""
    start: str | Mapping[str, Mapping[str, int]] = "earliest"
    """Where a new pipeline begins: `earliest`, `latest`, a time such as `2026-03-01T00:00:00Z`, or offsets as
    `{topic: {partition: offset}}`, where partitions that are not named begin at their earliest. A pipeline that has begun goes
    on where it was."""
    max_offsets_per_epoch: int | None = None
    """At most so many offsets an epoch, over all partitions, but one of each that has any: the knob between large epochs and early
    results."""
    group: str | None = None
    """The consumer group under which a Kafka sink in the same cluster commits how far the pipeline is, in the same
    transaction as its rows, or as its ledger record if slots have their own; `pakka.PIPELINE` if not given."""
    headers: bool = False
    """Take the records' headers along, in column `headers` for `raw` and `_headers` otherwise."""
    metadata: bool = False
    """For `json` and `avro`: add the columns `_topic`, `_partition`, `_offset`, `_timestamp` and `_key`."""
    corrupt: Literal["dead_letter", "drop", "fail"] = "dead_letter"
    """What becomes of a record whose value cannot be decoded, or that has none."""
    settings: dict[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """How to get in, in librdkafka's words, such as `security.protocol`; what only Spark's consumer has is written
    `kafka.NAME`. Take secrets from `${env:NAME}`."""
    jars: str | None = None
    """A directory with the jars of Spark's Kafka connector, and of spark-avro for `avro`. They are fetched from Maven
    Central if not given."""

    def __post_init__(self) -> None:
        check_words(WHOSE, self)
        if bool(self._names) == bool(self.pattern):
            raise ConfigError(
                f"{WHOSE}: one of `topics` and `pattern` is needed, and not both",
                hint="`topics: settlements`, or `pattern: settlements-.*`",
            )
        if (self.format == "raw") != (self.schema is None):
            wanted = "has no use for a `schema`" if self.format == "raw" else "needs a `schema`"
            hint = "leave it out" if self.format == "raw" else "`schema: id BIGINT, name STRING`"
            raise ConfigError(f"{WHOSE}: format `{self.format}` {wanted}", hint=hint)
        if self.max_offsets_per_epoch is not None and self.max_offsets_per_epoch < 1:
            raise ConfigError(f"{WHOSE}: max_offsets_per_epoch is {self.max_offsets_per_epoch}; at least 1 is needed")
        if self.pattern is not None:
            check_pattern(WHOSE, self.pattern)
        named(WHOSE, self.start)
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            _instant_ms(self.start)
        ours, own = split(WHOSE, self.settings)
        consumer_options(WHOSE, {n: v for n, v in ours.items() if not n.endswith(".location")}, own)
        self.address.check(WHOSE)

    @cached_property
    def address(self) -> Address:
        return Address.parse(WHOSE, self.servers, split(WHOSE, self.settings)[0])

    def replayable(self) -> Part:
        return Part(
            "source", True, f"an epoch's offsets can be read again, as long as the topics keep them: {self.describe()}"
        )

    def describe(self) -> str:
        what = f"topics like {self.pattern}" if self.pattern else f"topics {', '.join(self._names)}"
        return f"{what} of {self.address}"

    @property
    def corrupt_column(self) -> str | None:
        return None if self.format == "raw" else decode.CORRUPT

    @property
    def on_corrupt(self) -> OnFail:
        return OnFail(self.corrupt)

    @property
    def time_column(self) -> str | None:
        """Where the records' own timestamps are, if they are taken along."""
        if self.format == "raw":
            return "timestamp"
        return decode.METADATA["timestamp"] if self.metadata else None

    def lags(self, position: str) -> Sequence[Lag]:
        cluster = Cluster(self.address, WHOSE)
        with told(WHOSE, self.address, cluster.grievance, refusal=RefusedError):
            return cluster.lags(self._wanted.of(cluster), offsets_in(position))

    def beginning(self, pipeline: str) -> str:
        cluster = Cluster(self.address, WHOSE)
        with told(WHOSE, self.address, cluster.grievance, refusal=RefusedError):
            seen = cluster.visible(self._wanted.names_in(cluster))
            offsets = {name: dict.fromkeys(topic.partitions, 0) for name, topic in seen.items() if topic is not None}
            return position_at(cluster.id, self._group_of(pipeline), offsets)

    def probes(self) -> Sequence[Probe]:
        from pakka.sources._kafka_probes import kafka_probes

        return kafka_probes(self.address, self._wanted)

    def jars_for(self, spark: str) -> Jars:
        packages = {f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{spark}": _CONNECTOR}
        if self.format == "avro":
            packages[f"org.apache.spark:spark-avro_{_SCALA}:{spark}"] = _AVRO
        return Jars(WHOSE, packages, self.jars)

    def open_lookout(self, spark: SparkSession, pipeline: str, notes: str) -> KafkaLookout:
        note = Note(spark, notes, "kafka.json")
        group = self._group_of(pipeline)
        return KafkaLookout(self.address, self._wanted, pipeline, group, note, named(WHOSE, self.start))

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        ours, own = split(WHOSE, self.settings)
        if self.pattern is not None:
            check_java(WHOSE, spark, self.pattern)
        topics = self._found()
        reader = spark.readStream.format("kafka").options(**consumer_options(WHOSE, ours, own))
        reader = reader.option("kafka.bootstrap.servers", self.address.servers).options(**self._start(topics))
        if self.pattern is not None:
            reader = reader.option("subscribePattern", self.pattern)
        else:
            reader = reader.option("subscribe", ",".join(self._names))
        if self.max_offsets_per_epoch is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.max_offsets_per_epoch)
        records = reader.option("includeHeaders", self.headers).load()
        if self.format == "raw":
            return decode.raw(records, self.headers)
        if self.format == "json":
            schema = self._declared()
            self._check_columns(names := schema.names)
            decoded, struct, is_bad = decode.from_json(records, schema)
        else:
            text, names = avro_schema(self._schema_text())
            self._check_columns(names)
            decoded, struct, is_bad = decode.from_avro(records, text)
        beside = {"has_metadata": self.metadata, "has_headers": self.headers}
        return decode.columns(decoded, struct, is_bad, names, is_strict=is_strict, **beside)

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    def _group_of(self, pipeline: str) -> str:
        return self.group or f"pakka.{pipeline}"

    @property
    def _wanted(self) -> Wanted:
        return Wanted(self._names, self.pattern)

    def _found(self) -> dict[str, Topic]:
        """The topics as they are now. Spark would wait for a broker that is not there, and say little of a topic that is not."""
        cluster = Cluster(self.address, WHOSE)
        names = ", ".join(f"topic `{name}`" for name in self._names)
        with told(WHOSE, self.address, cluster.grievance, "nothing was started", RefusedError, names):
            found = self._wanted.of(cluster)
        missing = [name for name, topic in found.items() if topic is None]
        if missing:
            raise RefusedError(
                f"{WHOSE}: {self.address}: there is no topic `{missing[0]}`; nothing was started",
                hint="make it first, or see whether the name is right and may be described by the user of `settings`",
            )
        topics = {name: topic for name, topic in found.items() if topic is not None}
        unread = [name for name, topic in topics.items() if topic.operations and "READ" not in topic.operations]
        if unread:
            raise RefusedError(
                f"{WHOSE}: {self.address}: the user of `settings` may see topic `{unread[0]}`, and not read it; nothing was started",
                hint=READ_RIGHTS,
            )
        return topics

    def _start(self, topics: Mapping[str, Topic]) -> dict[str, str]:
        if isinstance(self.start, str):
            if self.start in ("earliest", "latest"):
                return {"startingOffsets": self.start}
            # A partition with nothing that late begins at its end.
            ms = str(_instant_ms(self.start))
            return {"startingTimestamp": ms, "startingOffsetsByTimestampStrategy": "latest"}
        unknown = [name for name in self.start if name not in topics]
        if unknown:
            raise ConfigError(f"{WHOSE}: `start` names topic `{unknown[0]}`, which is not read", hint="leave it out")
        offsets = {name: self._offsets(self.start, topic) for name, topic in sorted(topics.items())}
        return {"startingOffsets": json.dumps(offsets)}

    def _offsets(self, start: Mapping[str, Mapping[str, int]], topic: Topic) -> dict[str, int]:
        named = {int(p): offset for p, offset in start.get(topic.name, {}).items()}
        lacking = sorted(named.keys() - set(topic.partitions))
        if lacking:
            raise ConfigError(
                f"{WHOSE}: {self.address}: `start` names partition {lacking[0]} of topic `{topic.name}`, which has "
                f"{len(topic.partitions)} partitions, counted from 0; nothing was started",
                hint="leave it out, or see whether the topic is the right one",
            )
        return {str(p): named.get(p, _EARLIEST) for p in topic.partitions}

    def _declared(self) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            schema = StructType.fromDDL(str(self.schema))
        except PySparkException as error:
            raise ConfigError(
                f"{WHOSE}: schema {self.schema!r} is not understood: {str(error).strip().splitlines()[0]}",
                hint="write it as in CREATE TABLE: `id BIGINT, name STRING`",
            ) from error
        assert isinstance(schema, StructType)
        return schema

    def _schema_text(self) -> str:
        given = str(self.schema)
        if given.lstrip().startswith(("{", "[")):
            return given
        try:
            return Path(given).read_text()
        except OSError as error:
            raise ConfigError(
                f"{WHOSE}: the Avro schema {given} cannot be read: {error.strerror}; nothing was started",
                hint="give the text of the schema, or the path of an .avsc file",
            ) from error

    def _check_columns(self, names: list[str]) -> None:
        own = [name for name in names if name.lower() in _OWN_COLUMNS]
        if own:
            raise ConfigError(
                f"{WHOSE}: the schema has a column `{own[0]}`, which is a name that is kept for what is said of a record",
                hint="take `format: raw`, and decode the values in `process`",
            )


def _instant_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{WHOSE}: start {text!r} is not understood",
            hint="`earliest`, `latest`, a time such as `2026-03-01T00:00:00Z`, or `{topic: {partition: offset}}`",
        ) from None
    # A time that names no zone is UTC, as everywhere in a pipeline.
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
