"""What topics take, asked of the cluster: on the executors before a row is spooled, and on the driver for its producer.

A process asks for a topic once a minute at most, however many slots it writes: a client of its own for each would cost more
than a small slot.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pakka.errors import SinkError
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_error import RIGHTS, told
from pakka.kafka_line import Address
from pakka.sinks._kafka_limit import Limits

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

USUAL_BYTES = 1_000_000
"""What a record may have where a topic does not tell: what brokers and clients allow unless they are told otherwise."""
_FRESH_S = 60.0


@dataclass
class _Lookout:
    """One cluster as this process has seen it."""

    cluster: Cluster
    seen: dict[str, tuple[float, Limits]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_lookouts: dict[tuple[int, str, str], _Lookout] = {}


def limits_of(sink: KafkaSink, whose: object, name: str) -> Limits | None:
    """What topic `name` takes; None if it is not there, and the sink does not make topics."""
    lookout = _lookout(sink.address, whose)
    with lookout.lock, told(whose, sink.address, lookout.cluster.grievance, about=f"topic `{name}`"):
        at, limits = lookout.seen.get(name, (0.0, None))
        if limits is None or time.monotonic() - at > _FRESH_S:
            topic = lookout.cluster.topic(name) or _made(sink, lookout.cluster, name)
            if topic is None:
                return None
            if topic.operations and "WRITE" not in topic.operations:
                raise SinkError(
                    f"{whose}: {sink.address}: the user of `settings` may not write to topic `{name}`; nothing was changed",
                    hint=RIGHTS,
                )
            limits = _limits(sink, whose, topic, lookout.cluster.topic_settings(name))
            lookout.seen[name] = time.monotonic(), limits
        return limits


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
        ahead_ms=_time_ms(settings, "after"),
        behind_ms=_time_ms(settings, "before"),
    )


def _time_ms(settings: Mapping[str, str], side: str) -> int | None:
    """How far the time of a record may be off; None: however far. Brokers before 4.0 have one bound for both sides too."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    names = (f"message.timestamp.{side}.max.ms", "message.timestamp.difference.max.ms")
    return min((int(settings[name]) for name in names if name in settings), default=None)


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
