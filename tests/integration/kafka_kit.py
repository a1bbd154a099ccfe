"""Records into Kafka, and what an independent client sees there: nothing here knows of pakka."""

import json
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from tests.fixtures.onlooker import await_topic

_QUIET = {"log_level": 2}


def settlements(first: int, count: int) -> list[dict]:
    return [{"id": i, "merchant": f"m{i % 3}", "amount": i * 10} for i in range(first, first + count)]


class Clients:
    """Producers and an admin client for one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, **_QUIET})

    def send(self, topic: str, values: Iterable[Any], **more: Any) -> None:
        """Without a transaction. A dict is sent as JSON; anything else as it is."""
        producer = Producer({"bootstrap.servers": self.servers, **_QUIET})
        refused: list[Any] = []
        for value in values:
            producer.produce(
                topic, as_value(value), on_delivery=lambda error, _: refused.append(error) if error else None, **more
            )
        assert producer.flush(30) == 0
        assert refused == []

    @contextmanager
    def transaction(self, topic: str, values: Iterable[Any], name: str = "upstream", **more: Any):
        """Records in a transaction that is open inside the block; the block commits or aborts it."""
        # Open for as long as a busy machine takes.
        own = {"transactional.id": f"{topic}.{name}", "transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": self.servers, **own, **_QUIET})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, as_value(value), key=str(number), **more)
        assert producer.flush(30) == 0
        yield producer

    def commit(self, topic: str, values: Iterable[Any]) -> None:
        with self.transaction(topic, values) as producer:
            producer.commit_transaction(30)

    def abort(self, topic: str, values: Iterable[Any]) -> None:
        with self.transaction(topic, values, "aborting") as producer:
            producer.abort_transaction(30)

    def ends(self, topic: str, partitions: int, is_committed: bool = True) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        found = self.admin.list_offsets(asked, isolation_level=level)
        return {place.partition: future.result(30).offset for place, future in found.items()}

    def group(self, name: str) -> dict[tuple[str, int], int]:
        """The offsets of a consumer group, as any lag tool sees them."""
        future = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], require_stable=True)[name]
        return {(p.topic, p.partition): p.offset for p in future.result(30).topic_partitions}

    def grow(self, topic: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(topic, partitions)], operation_timeout=30).values():
            future.result(30)
        await_topic(self.admin, topic, partitions)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """What retention does: everything before an offset is gone."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(30)

    def read(self, topic: str, partitions: int) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every committed record, by a consumer of its own."""
        ends = self.ends(topic, partitions)
        settings = {"bootstrap.servers": self.servers, "group.id": "judge", "enable.auto.commit": False, **_QUIET}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        found = []
        while any(place.offset < ends[place.partition] for place in consumer.position(consumer.assignment())):
            record = consumer.poll(1)
            if record is not None:
                assert record.error() is None
                found.append((record.key(), record.value()))
        consumer.close()
        return found


def as_value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value
