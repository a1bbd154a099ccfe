"""What a Kafka cluster can be asked, by the sink, the source and the audit: its topics, their settings and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from pakka.contract.lag import Lag
from pakka.kafka_line import PASSING, Address, DriverError, error_of, is_denied
from pakka.kafka_transactions import CannotAskError, desk

ANSWER_S = 30.0
"""How long a cluster may take for one answer. A broker that restarts, or a coordinator that moves, is back within it."""

_MOVING_S = 10.0
_HEARD_S = 3.0
"""How long after a topic was made its leader may not know of it; a topic that is gone is told as late."""
_PAUSE_S = 0.05
_TRY_S = 2.0
"""How long there is for the first answer to a question, and for each one after it twice as long. What the library does not ask a leader, it asks
the broker that was named to it as the controller, which can be any. Of one that has died it waits for as long as it is let, and tries to
connect all the time; who leads now, or is the controller, it asks once a minute.
"""

_HANGS_S = 8.0
"""After tries of 2 and 4 s no broker is merely slow. A client is dear: on a busy machine new ones are later than answers."""
_RECORDS_S = 5.0
"""How long to wait for the records that say since when transactions are open. Without them it is not known."""

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics that brokers keep for themselves, and that no pattern of Spark's matches."""

_WORST: dict[str, Callable[[Iterable[str]], str]] = {
    # Whichever broker becomes the coordinator keeps to its own bound.
    "transaction.max.timeout.ms": lambda values: min(values, key=int),
    "socket.request.max.bytes": lambda values: min(values, key=int),
    # `false` is less than `true`.
    "transaction.partition.verification.enable": min,
}

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster knows it. A topic that was deleted and made again has another id."""

    name: str
    id: str
    partitions: tuple[int, ...]
    replicas: int
    """Of the partition that has the fewest."""
    operations: frozenset[str] = frozenset()
    """What whoever asks may do with it, such as `WRITE`; empty if the brokers do not tell."""


class Cluster:
    """What a cluster can be asked. Everything raises `DriverError`; `kafka_error.told` makes pakka's errors of them."""

    def __init__(self, address: Address, whose: str = "kafka") -> None:
        self.address = address
        self.whose = whose
        self.admin, self.grievance = address.admin(whose)

    @property
    def id(self) -> str:
        """The cluster's own id, the same whatever name it is reached by."""
        return str(self._described().cluster_id)

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(sorted(int(node.id) for node in self._described().nodes))

    def topics(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """Each of these topics; None for one that is not there."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}

        def ask(limit_s: float) -> dict[str, Topic | None]:
            asked = self.admin.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=limit_s
            )
            return {name: self._topic(name, future) for name, future in asked.items()}

        return self._patiently(ask)

    def visible(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """Those of these topics that may be seen; None for one that is not there."""
        wanted = list(names)
        try:
            return self.topics(wanted)
        except KafkaException as error:
            if error_of(error).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
        # One that may not be seen spoils the answer for all.
        return {n: topic for each in wanted for n, topic in self.visible([each]).items()} if len(wanted) > 1 else {}

    def topic(self, name: str) -> Topic | None:
        return self.topics([name])[name]

    def names(self) -> list[str]:
        """All topics that may be seen from here, without Kafka's own. Anybody else may begin a name with `__` too."""
        return sorted(name for name in self.admin.list_topics(timeout=ANSWER_S).topics if name not in INTERNAL)

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """The settings of a topic that are in force, inherited ones too; None if it takes a right to read them that is not there."""
        return self._settings(ResourceType.TOPIC, name, [name])

    def settings_of(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The same of several topics, asked for at once; without those that may not be read, or are not there."""
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def ask(limit_s: float) -> dict[str, dict[str, str]]:
            found: dict[str, dict[str, str]] = {}
            for resource, future in self.admin.describe_configs(wanted, request_timeout=limit_s).items():
                try:
                    found[resource.name] = _values(self._wait(future))
                except KafkaException as error:
                    if not is_denied(error) and error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
            return found

        return self._patiently(ask) if wanted else {}

    def hides_settings(self, name: str) -> bool:
        """Whether it takes a right to read the settings of a topic that is not there, also of one that is not there itself."""
        try:
            return self._settings(ResourceType.TOPIC, name) is None
        except KafkaException as error:
            if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False

    def broker_settings(self) -> dict[str, str] | None:
        """The settings of all brokers as one; where they differ, what is worst for a transaction. None as above."""

        def ask(limit_s: float) -> list[dict[str, str]]:
            # A broker answers for itself alone. All are asked at once, so that it takes no longer than one.
            wanted = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in self.brokers]
            asked = [self.admin.describe_configs([each], request_timeout=limit_s)[each] for each in wanted]
            found: list[dict[str, str]] = []
            silent: list[KafkaException] = []
            for future in asked:
                try:
                    found.append(_values(self._wait(future)))
                except KafkaException as error:
                    # One that has just died is still in the list, and has no say until it is back.
                    silent.append(error)
            denied = [error for error in silent if is_denied(error)]
            if denied or not found:
                raise (denied or silent)[0]
            return found

        try:
            found = self._patiently(ask)
        except KafkaException as error:
            if not is_denied(error):
                raise
            return None
        told = {name: [each[name] for each in found if name in each] for name in _WORST}
        return {**found[0], **{name: _WORST[name](values) for name, values in told.items() if values}}

    def group_operations(self, group: str) -> frozenset[str]:
        """What whoever asks may do with a consumer group, whether there is one or not; empty if the brokers do not tell."""

        def ask(limit_s: float) -> frozenset[str]:
            asked = self.admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=limit_s
            )
            return frozenset(operation.name for operation in self._wait(asked[group]).authorized_operations or ())

        # The first group of a cluster has to wait for its coordinator's topic.
        return self._patiently(ask, most_s=ANSWER_S, first_s=ANSWER_S)

    def end_offsets(self, topic: str, partitions: Sequence[int], *, is_committed: bool) -> dict[int, int]:
        """Where each partition ends: of all that is written, or of what a `read_committed` reader can reach (LSO)."""
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        found = self._offsets(((topic, partition) for partition in partitions), OffsetSpec.latest(), level)
        return {partition: at for (_, partition), at in found.items()}

    def start_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where each partition begins now: retention and compaction have taken what was before."""
        places = ((topic, partition) for partition in partitions)
        found = self._offsets(places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        return {partition: at for (_, partition), at in found.items()}

    def held(self, names: Iterable[str]) -> dict[tuple[str, int], int]:
        """Where readers wait for an open transaction, whosever it is: by topic and partition, how far they get. Topics that are not there,
        or that may not be seen from here, have none.
        """
        seen = self.visible(names)
        wanted = {
            TopicPartition(name, p): OffsetSpec.latest()
            for name, topic in seen.items()
            for p in (topic.partitions if topic else ())
        }

        def ask(limit_s: float) -> dict[tuple[str, int], int]:
            # Both at once, on a path where every answer counts: whichever comes first, a stable end that has reached the other one says
            # that nothing is open below it. In the wrong order, what is written in between is taken for held back.
            whole, stable = (
                self.admin.list_offsets(wanted, isolation_level=level, request_timeout=limit_s)
                for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
            )
            ends, reached = self._told(whole), self._told(stable)
            return {place: at for place, at in reached.items() if at < ends[place]}

        return self._patiently(ask, seen) if wanted else {}

    def lags(self, names: Iterable[str], reached: Mapping[str, Mapping[int, int]] | None = None) -> list[Lag]:
        """How far behind each partition of these topics is, for one who has read up to `reached`. A topic that is not there has none."""
        places = [(name, p) for name, topic in self.topics(names).items() for p in (topic.partitions if topic else ())]
        # In this order: what is written in between is not taken for held back.
        whole = self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        opened = self._opened({place: at for place, at in stable.items() if whole[place] > at})
        found: list[Lag] = []
        for (name, partition), end in stable.items():
            at = (reached or {}).get(name, {}).get(partition)
            held = max(0, whole[name, partition] - end)
            open_s = opened.get((name, partition)) if held else 0.0
            found.append(Lag(name, partition, None if at is None else max(0, end - at), held, open_s))
        return found

    def _opened(self, stable: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], float]:
        """For how many seconds transactions are open, as their coordinators say, or else by their first records."""
        if not stable:
            return {}
        found: dict[tuple[str, int], float] = {}
        with suppress(CannotAskError), desk(self.address) as there:
            found = {place: max(0.0, time.time() - began_s) for place, began_s in there.began(stable).items()}
        # A coordinator may not tell this user, or know of none: what hangs has records only.
        return {**self._by_records({place: at for place, at in stable.items() if place not in found}), **found}

    def _by_records(self, stable: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], float]:
        """The last stable offset is that of the first record of the oldest transaction. Its time is whatever its producer says: of an event that
        is a day old it may be a day ago.
        """
        if not stable:
            return {}
        # One record of each is enough, and a broker sends at least that.
        little = {"queued_min_messages": "1", "fetch_message_max_bytes": "1", "fetch_queue_backoff_ms": "1"}
        consumer, _ = self.address.consumer("kafka", group_id="pakka", isolation_level="read_uncommitted", **little)
        found: dict[tuple[str, int], float] = {}
        deadline = time.monotonic() + _RECORDS_S
        try:
            consumer.assign([TopicPartition(*place, offset) for place, offset in stable.items()])
            while len(found) < len(stable) and (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is not None and message.error() is None:
                    place = (str(message.topic()), int(message.partition() or 0))
                    found.setdefault(place, max(0.0, time.time() - message.timestamp()[1] / 1000))
                    # A broker sends little at a time, of the first partition that has any: the others would wait until it has none.
                    consumer.pause([TopicPartition(*place)])
        finally:
            consumer.close()
        return found

    def create(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Make a topic; -1 leaves a number to the cluster. One that is there, perhaps by a request that had no answer, is left as it is."""
        new = NewTopic(name, partitions, replicas, config=dict(settings))

        def ask(limit_s: float) -> None:
            self._wait(self.admin.create_topics([new], operation_timeout=ANSWER_S, request_timeout=limit_s)[name])

        try:
            self._patiently(ask)
        except KafkaException as error:
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def refusal(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> KafkaError | None:
        """Why a topic that is not there could not be made, as the brokers say. Nothing is made."""
        new = NewTopic(name, partitions, replicas, config=dict(settings))

        def ask(limit_s: float) -> None:
            self._wait(self.admin.create_topics([new], validate_only=True, request_timeout=limit_s)[name])

        try:
            self._patiently(ask)
        except KafkaException as error:
            refused = error_of(error)
            # The library's own numbers are below 0, and say that there was no answer.
            if refused.code() < 0 or refused.code() in PASSING:
                raise
            return None if refused.code() == KafkaError.TOPIC_ALREADY_EXISTS else refused
        return None

    def await_topic(self, name: str) -> Topic:
        """A topic that was just made: the other brokers hear of it a little later."""
        deadline = time.monotonic() + ANSWER_S
        while (topic := self.topic(name)) is None:
            if time.monotonic() > deadline:
                raise KafkaException(
                    KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic `{name}` was made, and is not there")
                )
            time.sleep(_PAUSE_S)
        return topic

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics. What is gone already is fine."""
        wanted = list(names)
        asked = self.admin.delete_topics(wanted, operation_timeout=ANSWER_S, request_timeout=ANSWER_S) if wanted else {}
        for future in asked.values():
            try:
                self._wait(future)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def _described(self) -> Any:
        return self._patiently(lambda limit_s: self._wait(self.admin.describe_cluster(request_timeout=limit_s)))

    def _topic(self, name: str, future: Future[Any]) -> Topic | None:
        try:
            found = self._wait(future)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        partitions = tuple(sorted(int(p.id) for p in found.partitions))
        replicas = min((len(p.replicas) for p in found.partitions), default=0)
        operations = frozenset(operation.name for operation in found.authorized_operations or ())
        if not found.topic_id.get_most_significant_bits() | found.topic_id.get_least_significant_bits():
            # None of Kafka's own ids is 0. It is also what brokers say that work as before 2.8.
            words = f"topic `{name}` has no id: if it is deleted and made again, nobody can tell"
            raise KafkaException(KafkaError(KafkaError.UNSUPPORTED_VERSION, words))
        return Topic(name, str(found.topic_id), partitions, replicas, operations)

    def _settings(self, kind: ResourceType, name: str, topics: Collection[str] = ()) -> dict[str, str] | None:
        def ask(limit_s: float) -> dict[str, str]:
            (future,) = self.admin.describe_configs([ConfigResource(kind, name)], request_timeout=limit_s).values()
            return _values(self._wait(future))

        try:
            # Whichever broker is asked may not have heard of a topic that another one has just told of.
            return self._patiently(ask, topics)
        except KafkaException as error:
            if not is_denied(error):
                raise
            return None

    def _offsets(
        self, places: Iterable[tuple[str, int]], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        wanted = {TopicPartition(*place): spec for place in places}

        def ask(limit_s: float) -> dict[tuple[str, int], int]:
            return self._told(self.admin.list_offsets(wanted, isolation_level=level, request_timeout=limit_s))

        return self._patiently(ask, {place.topic for place in wanted}) if wanted else {}

    def _patiently(
        self,
        ask: Callable[[float], Answer],
        topics: Collection[str] = (),
        most_s: float = _MOVING_S,
        first_s: float = _TRY_S,
    ) -> Answer:
        """Ask again while something moves. In between the library is made to ask who leads these topics, and whom to ask of all else."""
        began, limit_s = time.monotonic(), min(first_s, ANSWER_S)
        while True:
            try:
                return ask(limit_s)
            except KafkaException as error:
                code = error_of(error).code()
                is_new = code == KafkaError.UNKNOWN_TOPIC_OR_PART and bool(topics)
                is_slow = code == KafkaError._TIMED_OUT and limit_s < ANSWER_S
                patience_s = ANSWER_S if is_slow else _HEARD_S if is_new else most_s if code in PASSING else 0
                if time.monotonic() - began >= patience_s:
                    raise
            limit_s = min(2 * limit_s, ANSWER_S)
            time.sleep(_PAUSE_S)
            # Without a name it is the list of all topics. Naming one that is not there could make it.
            for named in [{"topic": topic} for topic in topics] or [{}]:
                try:
                    self.admin.list_topics(**named, timeout=_PAUSE_S * 20)
                except DriverError as error:
                    if error_of(error).code() == KafkaError._TIMED_OUT and limit_s >= _HANGS_S:
                        # It has a line to one broker, which hangs, and would wait there for a minute. A new client finds another one.
                        self.admin, self.grievance = self.address.admin(self.whose)

    def _told(self, asked: Mapping[TopicPartition, Future[Any]]) -> dict[tuple[str, int], int]:
        """What leaders have answered. Of one that is gone the library tells -1001 when time is up, and no error."""
        found = {(place.topic, place.partition): int(self._wait(future).offset) for place, future in asked.items()}
        for (topic, partition), at in found.items():
            if at < 0:
                words = f"no answer from the leader of partition {partition} of topic `{topic}`"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words))
        return found

    def _wait(self, future: Future[Answer]) -> Answer:
        try:
            # The library keeps the time itself; this is for the case that it does not.
            return future.result(timeout=2 * ANSWER_S)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from None
        finally:
            self.admin.poll(0)


def _values(entries: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}
