"""A scratch area in a Kafka cluster: topics of its own, a target, a ledger and what tells of slots, and a reader that is not the sink's.

Their names begin with the prefix of the sink's ledger, so that the rights the sink has are rights to them too. The target has one
partition: readers see an epoch partition by partition, as Kafka shows it, and so "all at once" is asked of one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pakka.contract.audit import AUDIT_ID, audit_pipeline
from pakka.errors import SinkError, UnavailableError
from pakka.kafka_cluster import ANSWER_S, Cluster
from pakka.kafka_error import told
from pakka.kafka_line import PASSING, DriverError, error_of
from pakka.kafka_transactions import CannotAskError, desk
from pakka.model.id import Binding
from pakka.sinks._kafka_topic import USUAL_BYTES
from pakka.sinks._scratch import SCRATCH

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

_AREA = ".audit."
_PARTITION = 0
_MOMENT_S = 2.0
"""For what the readers hear a moment later, where the coordinator does not tell whether there is something to wait for."""
_PAUSE_S = 0.01


@dataclass(frozen=True)
class KafkaScratch:
    """Topics of one audit, and a client of its own for every look at them."""

    audited: KafkaSink
    token: str
    sink: KafkaSink

    @classmethod
    def of(cls, sink: KafkaSink, token: str) -> KafkaScratch:
        area = f"{sink.ledger}{_AREA}{token}"
        key = AUDIT_ID if sink.key else ""
        made = type(sink)(
            sink.servers,
            f"{area}.rows",
            key=key,
            way=sink.way,
            ledger=area,
            settings=sink.settings,
            # What a topic takes that was just made is known, also by who may not ask.
            max_record_bytes=USUAL_BYTES,
        )
        return cls(sink, token, made)

    @staticmethod
    def tokens(sink: KafkaSink) -> Sequence[str]:
        prefix = f"{sink.ledger}{_AREA}"
        with _asking(sink) as cluster:
            names = [name.removeprefix(prefix) for name in cluster.names() if name.startswith(prefix)]
        return sorted({name.partition(".")[0] for name in names})

    def make(self) -> None:
        with _asking(self.sink, "nothing was made", self.sink.topic) as cluster:
            # They are not there. A broker says so to who has some right to such topics, and to no other.
            cluster.delete(self._topics)
            cluster.create(self.sink.topic, 1, -1, {})
            operations = cluster.await_topic(self.sink.topic).operations
        if operations and "DELETE" not in operations:
            raise self._left_behind()

    def read(self) -> list[str]:
        with _asking(self.sink, about=self.sink.topic) as cluster:
            end = self._await_markers(cluster)
            consumer, _ = self.sink.address.consumer(
                str(SCRATCH), group_id=self.sink.topic, fetch_wait_max_ms="5", fetch_error_backoff_ms="50"
            )
            with closing(consumer):
                return [json.loads(value)[AUDIT_ID] for value in self._values(consumer, end)]

    def stored(self) -> frozenset[str]:
        """Every place of the target that holds something, visible or not, and every transaction that is open.

        Of a sink that prepares in the topic itself, only what is not decided: what was aborted keeps its place in Kafka's log, and no
        reader of committed records is shown it.
        """
        with _asking(self.sink, about=self.sink.topic) as cluster:
            end = cluster.end_offsets(self.sink.topic, [_PARTITION], is_committed=False)[_PARTITION]
            ends = cluster.end_offsets(self.sink.topic, [_PARTITION], is_committed=True)
            begin = ends[_PARTITION] if self.sink.has_slots else 0
        try:
            with desk(self.sink.address) as there:
                is_open = [t.id for t in there.listed() if self._is_ours(t.id) and t.is_open]
        except CannotAskError:
            is_open = []
        return frozenset([*(f"offset {number} of {self.sink.topic}" for number in range(begin, end)), *is_open])

    def remove(self) -> None:
        with _asking(self.sink, "it is left behind", self.sink.topic) as cluster:
            try:
                cluster.delete(self._topics)
            except DriverError as error:
                if error_of(error).name() != "TOPIC_AUTHORIZATION_FAILED":
                    raise
                # Who has no right to them at all was not let make them either, and has been told so.
                if not set(self._topics).isdisjoint(cluster.names()):
                    raise self._left_behind() from None

    def _left_behind(self) -> SinkError:
        user = self.sink.address.settings.get("sasl.username", "NAME")
        return SinkError(
            f"{SCRATCH}: {self.sink.address}: the user of `settings` may make topic `{self.sink.topic}` and may not remove it; it is left "
            "behind, without rows",
            hint=f"`kafka-acls.sh --add --allow-principal User:{user} --operation DELETE --topic {self.audited.ledger} "
            "--resource-pattern-type prefixed`, then audit it again, which removes it",
        )

    @property
    def _binding(self) -> Binding:
        return Binding(audit_pipeline(self.token), "audit", "")

    def _is_ours(self, ident: str) -> bool:
        """The id of the sink, or of one of its slots."""
        own = self.sink.transactional_id(self._binding)
        return ident == own or ident.startswith(f"{own}.")

    @property
    def _topics(self) -> tuple[str, ...]:
        return self.sink.topic, self.sink.ledger_topic(self._binding), self.sink.slots_topic(self._binding)

    def _await_markers(self, cluster: Cluster) -> int:
        """Where a reader can get. Kafka answers to the end of a transaction when it is decided, and shows it a moment later; that is
        waited for, and nothing else: of a transaction that is open, the reader has to see what is to be seen.
        """
        began = time.monotonic()
        while True:
            whole = cluster.end_offsets(self.sink.topic, [_PARTITION], is_committed=False)[_PARTITION]
            stable = cluster.end_offsets(self.sink.topic, [_PARTITION], is_committed=True)[_PARTITION]
            if stable >= whole or not self._is_being_ended(time.monotonic() - began):
                return stable
            time.sleep(_PAUSE_S)

    def _is_being_ended(self, waited_s: float) -> bool:
        if waited_s > ANSWER_S:
            return False
        try:
            with desk(self.sink.address) as there:
                return any(self._is_ours(t.id) and t.is_being_ended for t in there.listed())
        except CannotAskError:
            return waited_s < _MOMENT_S

    def _values(self, consumer: Consumer, end: int) -> Iterator[bytes]:
        """All that is visible below a place. Markers and what was aborted are passed over by the client."""
        if end == 0:
            return
        consumer.assign([TopicPartition(self.sink.topic, _PARTITION, 0)])
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            error = message.error() if message is not None else None
            if message is None or (error is not None and error.code() in PASSING):
                continue
            if error is None:
                yield message.value() or b""
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif (message.offset() or 0) >= end:
                return
        raise UnavailableError(
            f"{SCRATCH}: {self.sink.address}: topic `{self.sink.topic}` could not be read to its end in {ANSWER_S:g} s",
            hint="see that the cluster answers, then audit it again",
        )


@contextmanager
def _asking(sink: KafkaSink, known: str = "nothing was changed", about: str = "") -> Iterator[Cluster]:
    cluster = Cluster(sink.address, str(SCRATCH))
    with told(SCRATCH, sink.address, cluster.grievance, known, about=f"topic `{about}`" if about else ""):
        yield cluster
