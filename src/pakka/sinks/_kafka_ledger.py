"""The ledger topic: what a Kafka sink remembers, written in the same transaction as the rows.

One topic a sink, of one partition, compacted to one key: a `read_committed` reader waits for every transaction that is open in a
partition, so nobody else's may be there. The newest committed record is the truth. It is found by reading the last few offsets,
so that a ledger of years is read as fast as one of a day; what is between two offsets may be markers, or gone by compaction,
and so places are counted, and never records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from pakka.errors import SinkError, UnavailableError
from pakka.kafka_cluster import ANSWER_S, Cluster, Topic
from pakka.kafka_error import RIGHTS, told
from pakka.kafka_line import PASSING, Address, Grievance

if TYPE_CHECKING:
    from confluent_kafka import Consumer

SETTINGS = {
    "cleanup.policy": "compact",
    # Compaction takes whole segments that are no longer written to: small ones, and not too old.
    "segment.bytes": str(16 << 20),
    "segment.ms": str(24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    # An entry has some ten bytes a slot: room for several hundred thousand slots.
    "max.message.bytes": str(8 << 20),
    "unclean.leader.election.enable": "false",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
}
"""What the ledger topic is made with, beside its replicas."""
PARTITION = 0

_REPLICAS = 3
_LOOK_BACK = 64
_LOOK_FURTHER = 16


@dataclass(frozen=True, slots=True)
class Page:
    """What the ledger says: the fence, the newest epoch, and what to remember of it."""

    fence: int = 0
    epoch: int = -1
    entry: str = ""
    topics: tuple[str, ...] = ()
    """Every topic that the sink has written to, so that the next driver knows where to look for what Kafka has forgotten to end; without
    those that are gone. None in pages of older releases."""

    @property
    def is_whole(self) -> bool:
        """False: slots of the epoch become visible one by one, and the slots topic tells which are."""
        return not self.entry or bool(json.loads(self.entry).get("is_whole", True))

    def to_bytes(self) -> bytes:
        data: dict[str, Any] = {"v": 1, "fence": self.fence, "epoch": self.epoch, "entry": self.entry}
        if self.topics:
            data["topics"] = self.topics
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, whose: object, topic: str, raw: bytes) -> Page:
        try:
            data = json.loads(raw)
            version = data["v"]
            topics = tuple(map(str, data.get("topics", ())))
            page = cls(int(data["fence"]), int(data["epoch"]), str(data["entry"]), topics) if version == 1 else None
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{whose}: ledger topic `{topic}` holds a record that pakka did not write: {raw[:60]!r}; nothing was changed",
                hint="see who else writes to that topic; only pakka may",
            ) from error
        if page is None:
            raise SinkError(
                f"{whose}: ledger topic `{topic}` was written by a newer pakka (version {version}, and 1 is known here); nothing was "
                "changed",
                hint="run the newer pakka",
            )
        return page


class LedgerTopic:
    """Reads the ledger of one sink. It is written by the transaction of the applier."""

    def __init__(
        self, whose: object, address: Address, name: str, key: str, settings: Mapping[str, str] = SETTINGS
    ) -> None:
        self.whose = whose
        self.address = address
        self.name = name
        self.key = key.encode()
        self.settings = settings
        self._cluster: Cluster | None = None
        self._readers: dict[str, tuple[Consumer, Grievance]] = {}
        self._is_there = False

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.address, str(self.whose))
        return self._cluster

    def use(self, cluster: Cluster) -> None:
        """Ask over a connection that is there already."""
        self._cluster = cluster

    def make(self) -> Topic:
        """Make the topic if it is missing: copied to as many brokers as are wanted, or there are."""
        cluster = self.cluster
        with told(self.whose, self.address, cluster.grievance, about=f"ledger topic `{self.name}`"):
            found = cluster.topic(self.name)
            if found is None:
                cluster.create(self.name, *self.shape(len(cluster.brokers)))
                found = cluster.await_topic(self.name)
            # Also if it was just made: perhaps by somebody else, in the very same moment.
            self._check(found)
        self._is_there = True
        return found

    def shape(self, brokers: int) -> tuple[int, int, dict[str, str]]:
        """What the topic is made with where there are so many brokers: partitions, replicas and settings."""
        replicas = min(_REPLICAS, brokers)
        return 1, replicas, {**self.settings, "min.insync.replicas": str(min(2, replicas))}

    def _check(self, topic: Topic) -> None:
        """A ledger that somebody else has made must keep its newest record for ever, have one end, and let us in."""
        if topic.partitions != (PARTITION,):
            raise SinkError(
                f"{self.whose}: {self.address}: ledger topic `{self.name}` has {len(topic.partitions)} partitions, and must have 1; "
                "nothing was changed",
                hint="make it anew if it is empty, or name another prefix in `ledger`",
            )
        missing = {"READ", "WRITE"} - topic.operations if topic.operations else set()
        if missing:
            # An empty ledger need not be read, and the next start would be the first to fail.
            raise SinkError(
                f"{self.whose}: {self.address}: the user of `settings` lacks {' and '.join(sorted(missing))} on ledger topic "
                f"`{self.name}`; nothing was changed",
                hint=RIGHTS,
            )
        # It takes a right of its own to ask.
        policy = (self.cluster.topic_settings(self.name) or {}).get("cleanup.policy", "compact")
        if policy != "compact":
            raise SinkError(
                f"{self.whose}: {self.address}: ledger topic `{self.name}` has cleanup.policy={policy}: what was committed would be "
                "forgotten; nothing was changed",
                hint=f"`kafka-configs.sh --alter --topic {self.name} --add-config cleanup.policy=compact`",
            )

    def read(self, *, is_settled: bool = False) -> Page:
        """The newest committed page. Settled: after this driver's `init_transactions`, so that nothing of the pipeline is open and
        all that is written must be readable.

        Without it the read ends where a reader can get: a transaction that is open may still be about to change the ledger.
        """
        return self.read_to_end(is_settled=is_settled)[0]

    def read_to_end(self, *, is_settled: bool) -> tuple[Page, int]:
        """The same, and the offset up to which the ledger was read."""
        raw, end = self._look(self.key, is_settled=is_settled)
        return Page() if raw is None else self.page(raw), end

    def page(self, raw: bytes) -> Page:
        return Page.from_bytes(self.whose, self.name, raw)

    def written(self, key: bytes) -> bytes | None:
        """The newest record of a key, whatever became of its transaction."""
        return self._look(key, is_settled=True, isolation="read_uncommitted")[0]

    def span(self) -> tuple[int, int]:
        """From where to where the newest records are, of several drivers at least. Nowhere if there is no topic."""
        with told(self.whose, self.address, self.cluster.grievance, about=f"ledger topic `{self.name}`"):
            if self.cluster.topic(self.name) is None:
                return 0, 0
            low = self.cluster.start_offsets(self.name, [PARTITION])[PARTITION]
            end = self.cluster.end_offsets(self.name, [PARTITION], is_committed=False)[PARTITION]
        return max(low, end - _LOOK_BACK * _LOOK_FURTHER), end

    def write(self, key: bytes, value: bytes) -> None:
        """A record beside the pages, which is in no transaction. It is there when this returns."""
        producer, grievance = self.address.producer(str(self.whose))
        lost: list[KafkaError] = []
        with told(self.whose, self.address, grievance, about=f"ledger topic `{self.name}`"):
            producer.produce(self.name, value, key, PARTITION, lambda error, _: lost.append(error) if error else None)
            if producer.flush(ANSWER_S):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
            if lost:
                raise KafkaException(lost[0])

    def close(self) -> None:
        readers, self._readers, self._cluster = self._readers, {}, None
        for consumer, _ in readers.values():
            consumer.close()

    def _look(self, key: bytes, *, is_settled: bool, isolation: str = "read_committed") -> tuple[bytes | None, int]:
        """The newest record of a key, and the end. From there, in steps that grow, so that what was written of late is found at once."""
        cluster = self.cluster
        with told(self.whose, self.address, cluster.grievance, about=f"ledger topic `{self.name}`"):
            if not self._is_there and cluster.topic(self.name) is None:
                return None, 0
            self._is_there = True
            low = cluster.start_offsets(self.name, [PARTITION])[PARTITION]
            end = cluster.end_offsets(self.name, [PARTITION], is_committed=not is_settled)[PARTITION]
        window = _LOOK_BACK
        while True:
            start = max(low, end - window)
            raw = self._newest(key, start, end, isolation)
            if raw is not None or start == low:
                return raw, end
            window *= _LOOK_FURTHER

    def _newest(self, key: bytes, start: int, end: int, isolation: str) -> bytes | None:
        """The value of the last record of a key between two places."""
        if start == end:
            return None
        if isolation not in self._readers:
            self._readers[isolation] = self._open(isolation)
        consumer, grievance = self._readers[isolation]
        with told(self.whose, self.address, grievance, about=f"ledger topic `{self.name}`"):
            consumer.assign([TopicPartition(self.name, PARTITION, start)])
            try:
                return self._scan(consumer, key, end)
            finally:
                consumer.unassign()

    def _scan(self, consumer: Consumer, key: bytes, end: int) -> bytes | None:
        newest: bytes | None = None
        reached = -1
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not _is_passing(error):
                    raise KafkaException(error)
                continue
            reached = max(reached, _offset(message))
            if error is None and message.key() == key and reached < end:
                newest = message.value()
            # The last record is followed by a marker, so the end is told by the event and not by the record.
            if error is not None and reached >= end:
                return newest
        raise UnavailableError(
            f"{self.whose}: {self.address}: ledger topic `{self.name}` can be read to offset {max(reached, 0)} of {end} only: a "
            "transaction is open in it, or its leader is away; nothing was changed",
            hint=f"see whose it is: `kafka-transactions.sh describe-producers --topic {self.name} --partition {PARTITION}`",
        )

    def _open(self, isolation: str) -> tuple[Consumer, Grievance]:
        # The group is never joined; the library wants a name. A read ends with an event that comes with an empty answer, and the
        # broker keeps those back for half a second unless it is told otherwise.
        return self.address.consumer(
            str(self.whose),
            group_id=self.name,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            fetch_wait_max_ms="5",
            fetch_error_backoff_ms="50",
        )


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _is_passing(error: KafkaError) -> bool:
    """Whether reading goes on by itself. The group is none of our business: it is never joined."""
    beside = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED)
    return error.retriable() or error.code() in PASSING or error.code() in beside
