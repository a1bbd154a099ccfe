"""What topics take, asked of the cluster: on the executors before a row is spooled, and on the driver for its producer.

A process asks for a topic once a minute at most, however many slots it writes: a client of its own for each would cost more
than a small slot.

A topic that rows name is judged here too, as the probes judge one that the sink names. Nobody could be told of it before: one that breaks the
guarantee is refused, while the epoch can still be aborted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pakka.contract.audit import Severity
from pakka.errors import SchemaError, SinkError
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_error import RIGHTS, told
from pakka.kafka_line import Address
from pakka.kafka_topic import TopicFacts
from pakka.notice import notice
from pakka.sinks._kafka_judge import DURABILITY, judge_topic
from pakka.sinks._kafka_limit import Limits, is_own, time_ms

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

USUAL_BYTES = 1_000_000
"""What a record may have where a topic does not tell: what brokers and clients allow unless they are told otherwise."""
_FRESH_S = 60.0


@dataclass
class _Lookout:
    """One cluster as this process has seen it."""

    cluster: Cluster
    seen: dict[tuple[str, str], tuple[float, Limits]] = field(default_factory=dict)
    """By the target of a sink and the name of a topic."""
    said: set[tuple[str, str, str]] = field(default_factory=set)
    """What was told: topic, setting and value."""
    lock: threading.Lock = field(default_factory=threading.Lock)


_lookouts: dict[tuple[int, str, str], _Lookout] = {}


def limits_of(sink: KafkaSink, whose: object, name: str) -> Limits | None:
    """What topic `name` takes; None if it is not there, and the sink does not make topics."""
    if is_own(name, sink.ledger):
        raise SchemaError(
            f"{whose}: a row is for topic `{name}`, which is one of Kafka's or of pakka's own; nothing was written",
            hint=f"see what column `{sink.topic_column}` holds; such rows are kept out by a rule",
        )
    lookout = _lookout(sink.address, whose)
    with lookout.lock, told(whose, sink.address, lookout.cluster.grievance, about=f"topic `{name}`"):
        key = sink.target(), name
        at, limits = lookout.seen.get(key, (0.0, None))
        if limits is None or time.monotonic() - at > _FRESH_S:
            topic = lookout.cluster.topic(name) or _made(sink, lookout.cluster, name)
            if topic is None:
                return None
            if topic.operations and "WRITE" not in topic.operations:
                raise SinkError(
                    f"{whose}: {sink.address}: the user of `settings` may not write to topic `{name}`; nothing was changed",
                    hint=RIGHTS,
                )
            settings = lookout.cluster.topic_settings(name)
            limits = _limits(sink, whose, topic, settings)
            if not sink.topic:
                _judge(sink, whose, lookout, topic, settings)
            lookout.seen[key] = time.monotonic(), limits
        return limits


def _judge(sink: KafkaSink, whose: object, lookout: _Lookout, topic: Topic, settings: Mapping[str, str] | None) -> None:
    """Refuse a topic that breaks the guarantee. What only warns is told, once."""
    facts = TopicFacts(topic.name, len(lookout.cluster.brokers), topic, topic.replicas, settings)
    for found in judge_topic(sink, facts):
        if found.severity is Severity.BREAKS:
            raise SinkError(
                f"{whose}: {sink.address}: topic `{topic.name}` breaks the guarantee: {found.name} is `{found.value}`; {found.why}; "
                "nothing was written",
                hint=f"mend it with `{found.fix}`, or keep such rows out by a rule; the epoch runs again with the same rows",
            )
        said = topic.name, found.name, found.value
        # That there is but one broker is told at the start, and not for each topic again.
        is_known = said in lookout.said or (found.name in DURABILITY and facts.brokers == 1)
        if found.severity is Severity.WARNS and not is_known:
            lookout.said.add(said)
            what = f"topic `{topic.name}`: {found.name} is `{found.value}`: {found.why}"
            notice(whose, "weak", f"{what}; mend it with `{found.fix}`")


def _made(sink: KafkaSink, cluster: Cluster, name: str) -> Topic | None:
    if not sink.create:
        return None
    cluster.create(name, sink.partitions, sink.replication, {})
    return cluster.await_topic(name)


def _limits(sink: KafkaSink, whose: object, topic: Topic, settings: Mapping[str, str] | None) -> Limits:
    if settings is None and sink.max_record_bytes is None:
        raise SinkError(
            f"{whose}: {sink.address}: the user of `settings` may not ask what topic `{topic.name}` takes, and an epoch could be decided that "
            "it refuses; nothing was changed",
            hint=f"{RIGHTS}; or say in `max_record_bytes` what the topic takes",
        )
    if settings is None:
        return Limits(len(topic.partitions), sink.max_record_bytes or 0)
    return Limits(
        partitions=len(topic.partitions),
        record_bytes=_batch_bytes(settings),
        needs_key="compact" in settings.get("cleanup.policy", ""),
        ahead_ms=time_ms(settings, "after"),
        behind_ms=time_ms(settings, "before"),
    )


def _batch_bytes(settings: Mapping[str, str]) -> int:
    """What may be sent at once."""
    said = [int(settings[name]) for name in ("max.message.bytes", "segment.bytes") if name in settings]
    most = min(said, default=USUAL_BYTES)
    if settings.get("compression.type", "producer") in ("producer", "uncompressed"):
        return most
    # Its brokers compress what comes, and hold the outcome against the limit; what looks random grows by it.
    return max(0, most - most // 64 - 128)


def _lookout(address: Address, whose: object) -> _Lookout:
    # A client does not outlive a fork, and Spark's Python workers are forked.
    key = (os.getpid(), address.servers, repr(sorted(address.settings.items())))
    found = _lookouts.get(key)
    if found is None:
        found = _lookouts[key] = _Lookout(Cluster(address, str(whose)))
    return found


def forget() -> None:
    """As a new process would begin."""
    _lookouts.clear()
