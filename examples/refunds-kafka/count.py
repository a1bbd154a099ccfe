"""Count what is in Kafka against what was sent there.

This file knows nothing of pakka. It says by itself what has to become of each settlement, and looks for exactly that with a
consumer of its own, as any other reader would: `read_committed`, from the first offset to the last.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tally
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

SETTLEMENTS, EMITTED, AUDIT, DEAD = "settlements", "refunds-emitted", "refund-audit", "refunds-dead"
GROUP = "refunds"
_QUIET = {"log_level": 2}


@dataclass(frozen=True)
class Counted:
    """All that was counted."""

    rows_in: int
    outputs: tuple[tally.Output, ...]
    """Refunds, audit, dead letters."""
    ends: dict[int, int]
    """Where each partition of the settlements ends."""
    group: dict[int, int]
    """How far the group is."""

    def wrong(self) -> list[str]:
        """What is not as it should be, in words; nothing if all is well."""
        found = [
            f"{o.name}: {o.expected} records expected, {o.there} there: {o.lost} lost, {o.twice} twice, {o.strange} strange"
            for o in self.outputs
            if not o.is_right
        ]
        return found + (
            [f"the group is at {self.group}, and the end is {self.ends}"] if self.group != self.ends else []
        )


def count(servers: str, inputs: Path) -> Counted:
    """Count all topics against the lines that were sent."""
    rows_in, refunds, dead = tally.expected(inputs)
    # Of a settlement two records are made, and one that breaks a rule is a dead letter as often; one that cannot be read, once.
    letters = Counter({key: n * (1 if key[1] == (tally.MALFORMED,) else 2) for key, n in dead.items()})
    return Counted(
        rows_in,
        (
            tally.Output.of("refunds emitted", refunds, Counter(_refund(r) for r in records(servers, EMITTED))),
            tally.Output.of("refund audit", refunds, Counter(_refund(r) for r in records(servers, AUDIT))),
            tally.Output.of("dead letters", letters, Counter(_letter(r) for r in records(servers, DEAD))),
        ),
        ends(servers, SETTLEMENTS),
        _group(servers),
    )


def records(servers: str, topic: str, level: str = "read_committed") -> Iterator[Any]:
    """The JSON value of every record of a topic that a reader of this level sees now."""
    settings = {"bootstrap.servers": servers, "group.id": "count", "enable.auto.commit": False, **_QUIET}
    consumer = Consumer({**settings, "isolation.level": level, "auto.offset.reset": "earliest"})
    until = ends(servers, topic, IsolationLevel.READ_COMMITTED if level == "read_committed" else None)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in until])
    while any(place.offset < until[place.partition] for place in consumer.position(consumer.assignment())):
        for record in consumer.consume(10_000, timeout=1):
            if record.error():
                raise RuntimeError(record.error())
            yield json.loads(record.value())
    consumer.close()


def ends(servers: str, topic: str, level: IsolationLevel | None = IsolationLevel.READ_COMMITTED) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": servers, **_QUIET})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}
    found = admin.list_offsets(asked, isolation_level=level or IsolationLevel.READ_UNCOMMITTED)
    return {place.partition: future.result(30).offset for place, future in found.items()}


def _group(servers: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": servers, **_QUIET})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(30)
    return {place.partition: place.offset for place in found.topic_partitions if place.topic == SETTLEMENTS}


def _refund(record: dict[str, Any]) -> tuple[str, str, int]:
    return record["refund_id"], record["merchant"], record["amount_paise"]


def _letter(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    row = json.loads(record["row"])
    key = row["value"] if tally.MALFORMED in record["rules"] else row["refund_id"].removeprefix("RFD-")
    return key, tuple(record["rules"])
