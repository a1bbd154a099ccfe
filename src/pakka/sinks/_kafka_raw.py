"""What no client of Kafka offers and its protocol has: sending batches that are made already, ending a transaction of a process that
is gone, shutting its producer out, asking a partition whether a producer has one open in it, and reading it with the markers that say
how each transaction ended. All that leans on kafka-python's inside is here.

EndTxn is sent in version 4 at most: see docs/decisions/0012-kafka-transactions-on-a-real-broker.md. Batches are sent in version 11 at
most, which leaves it to us to tell the coordinator where a transaction writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.consumer import FetchRequest  # type: ignore[import-untyped]
from kafka.protocol.metadata import CoordinatorType  # type: ignore[import-untyped]
from kafka.protocol.producer import (  # type: ignore[import-untyped]
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record import MemoryRecords  # type: ignore[import-untyped]
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from pakka.errors import PakkaError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.kafka_error import told_error
from pakka.kafka_line import ANSWER_S, Address
from pakka.sinks._kafka_batch import Handle, Place
from pakka.sinks._kafka_transactions import CannotAskError, Desk, Listed, open_admin

PROTOCOL = 1
"""Of transactions as librdkafka makes them: their end does not raise the producer's epoch."""
END_TXN_VERSION = 4
_ADD_PARTITIONS_VERSION = 3
"""The last one that is for clients."""
_INIT_VERSION = 4
_FETCH_VERSION = 11
"""The last one that names topics, which every broker since 2.3 has."""
_PRODUCE_VERSION = 11
"""The last one of the transactions that `PROTOCOL` names."""
_GROUP_VERSION = 3
"""Of what is asked of a group in a transaction: the first that names no member of it."""
_PRODUCE_S = 30.0
"""For the answer to one request with batches, replicas and all. Whoever has none by then sends it again, which is harmless."""
_PATIENCE_S = ANSWER_S
"""How long a coordinator may load, move, or be at the end of another transaction."""
_PAUSE_S = 0.01
_FETCH_BYTES = 4 << 20
_UNENDED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_PASSING = (
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
    errors.ConcurrentTransactionsError,
    errors.NotLeaderForPartitionError,
    errors.LeaderNotAvailableError,
    errors.UnknownTopicOrPartitionError,
)
_GONE = (
    errors.ProducerFencedError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.InvalidProducerIdMappingError,
)

T = TypeVar("T")


class DeniedError(SinkError):
    """Another client gets in, or gets an answer, and this one does not: a right is missing, or there is nothing for a setting in it."""


class End(Enum):
    """What a coordinator says to the end of a transaction."""

    DONE = "done"
    """It is decided, durably. Readers hear of it a moment later."""
    GONE = "gone"
    """It has ended before, or its producer is shut out. Only the ledger can tell how it ended."""


@dataclass(frozen=True, slots=True)
class Described(Listed):
    """A transactional id with all that its coordinator knows of it."""

    producer_epoch: int
    began_ms: int
    """When its last transaction began, which no other one of it did."""
    topics: frozenset[str]
    """Of the transaction, for as long as it has not ended."""

    @property
    def handle(self) -> Handle:
        return Handle(self.id, self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction that is open in a partition."""

    offset: int
    """Of its first record."""
    producer_epoch: int
    """Of its last record."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a partition, and whose it is."""

    producer_id: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of the transaction that a producer had open in a partition."""

    producer_id: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Posted:
    """Batches on their way, one a place."""

    handle: Handle
    batches: Mapping[Place, bytes]
    answer: Any
    """What becomes the brokers' answers; None: they could not be sent."""


class Registry:
    """A connection to the brokers of a cluster and to its coordinators. Several threads may ask at once."""

    def __init__(self, whose: object, address: Address) -> None:
        self.whose = whose
        self.address = address
        self._admin: Any = None
        self._lock = threading.Lock()
        self._leaders: dict[Place, int] = {}

    def end(self, handle: Handle, *, is_commit: bool) -> End:
        """Commit or abort. It may be repeated freely. `UnknownOutcomeError`: asked, and no answer."""
        request = _end_request(handle, is_commit)
        is_sent = False

        def ask() -> End:
            nonlocal is_sent
            node = self._coordinator(handle.id)
            is_sent = True
            return _ended(self._send(request, node).error_code, handle)

        try:
            return self._patiently(ask)
        except UnavailableError as error:
            if not is_sent:
                raise
            raise UnknownOutcomeError(f"no answer to the end of transaction `{handle.id}`: {error.message}") from error

    def end_in(self, handle: Handle, places: Collection[Place], *, is_commit: bool) -> End:
        """A transaction without a record in these places: whatever its producer had open in them ends with it. It may be repeated freely."""
        begin = _begin_request(handle, places)

        def ask() -> End:
            # Both are on their way before the first is answered: whoever dies between them leaves a transaction that is to be aborted.
            node = self._coordinator(handle.id)
            begun, ended = self._send_all([(begin, node), (_end_request(handle, is_commit), node)])
            for place, error in _begun(begun):
                if error in _GONE:
                    return End.GONE
                if error is not errors.NoError:
                    raise error(f"AddPartitionsToTxn of `{handle.id}`, partition {place[1]} of `{place[0]}`")
            return _ended(ended.error_code, handle)

        return self._patiently(ask)

    def begin_in(self, handle: Handle, places: Collection[Place]) -> None:
        """Tell the coordinator that the transaction writes to these places, before it does. It may be repeated freely."""
        request = _begin_request(handle, places)

        def ask() -> None:
            # Of several answers the one that says something of its own: the others are only told that one was not granted.
            answers = [
                a for a in _begun(self._send(request, self._coordinator(handle.id))) if a[1] is not errors.NoError
            ]
            for place, error in sorted(
                answers, key=lambda answer: answer[1].errno == KafkaError.OPERATION_NOT_ATTEMPTED
            ):
                _expect_granted(error, f"topic `{place[0]}`, partition {place[1]}")

        self._patiently(ask)

    def partitions(self, topic: str) -> int:
        """How many a topic has."""

        def ask() -> int:
            if (topic, 0) not in self._leaders:
                self._look_up([topic])
            return sum(place[0] == topic for place in self._leaders)

        return self._patiently(ask)

    def post(self, handle: Handle, batches: Mapping[Place, bytes]) -> Posted:
        """Send batches, one a place at most, and do not wait: `settle` does."""
        try:
            return Posted(handle, batches, self._posted(handle, batches))
        except (errors.KafkaError, OSError, CannotAskError):
            return Posted(handle, batches, None)

    def settle(self, posted: Posted, patience_s: float) -> None:
        """Wait until the brokers have every batch. What has no answer is sent again: they know a batch by its number, and keep one.

        `KafkaException`: they refuse one, for good.
        """
        left = dict(posted.batches)
        answer = posted.answer

        def ask() -> None:
            nonlocal answer
            waited, answer = answer, None
            answers = self._waited(waited if waited is not None else self._posted(posted.handle, left))
            trouble: errors.KafkaError | None = None
            for place, error, words in _taken(answers):
                if error in (errors.NoError, errors.DuplicateSequenceNumberError):
                    del left[place]
                    continue
                where = f"topic `{place[0]}`, partition {place[1]}: {words}"
                _expect_passing(error, where)
                trouble = error(where)
            if trouble is not None:
                self._leaders.clear()
                raise trouble
            if left:
                raise errors.LeaderNotAvailableError(f"no answer for {sorted(left)}")

        self._patiently(ask, patience_s)

    def tell_group(self, handle: Handle, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit the offsets of a consumer group as part of the transaction. Nobody need have joined the group."""
        named = {
            "transactional_id": handle.id,
            "group_id": group,
            "producer_id": handle.producer_id,
            "producer_epoch": handle.producer_epoch,
        }
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            told = Topic.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            topics.setdefault(topic, []).append(told)
        commit = TxnOffsetCommitRequest(
            **named,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[Topic(name=name, partitions=told) for name, told in topics.items()],
            max_version=_GROUP_VERSION,
        )

        def ask() -> None:
            add = AddOffsetsToTxnRequest(**named, max_version=_GROUP_VERSION)
            answer = self._send(add, self._coordinator(handle.id))
            _expect_granted(errors.for_code(answer.error_code), f"group `{group}`")
            answer = self._send(commit, self._coordinator(group, CoordinatorType.GROUP))
            for topic in answer.topics:
                for part in topic.partitions:
                    _expect_granted(errors.for_code(part.error_code), f"group `{group}`, topic `{topic.name}`")

        self._patiently(ask)

    def take(self, ident: str, timeout_ms: int = 60_000) -> Handle:
        """Take an id away from whoever has it, who is shut out. What is open under it is aborted, what is being ended is waited for."""
        return self._patiently(lambda: self._init(ident, timeout_ms))

    def cut_off(self, ident: str, timeout_ms: int) -> None:
        """Abort what is open under an id, and shut its producer out. Nobody waits until that is done, and so the coordinator remembers
        that it was an abort.
        """

        def ask() -> None:
            # The answer to an abort that has begun. Whoever asks looks again until it is over.
            with suppress(errors.ConcurrentTransactionsError):
                self._init(ident, timeout_ms)

        self._patiently(ask)

    def described(self, ident: str) -> Described | None:
        """None: no coordinator knows this id, or remembers it."""

        def ask() -> Described | None:
            try:
                found = self._open().describe_transactions([ident])[ident]
            except errors.TransactionalIdNotFoundError:
                return None
            return Described(
                ident,
                int(found.producer_id),
                str(found.state.value),
                int(found.producer_epoch),
                int(found.transaction_start_time_ms),
                frozenset(str(place.topic) for place in found.topic_partitions),
            )

        return self._patiently(ask)

    def opened(self, producer_id: int, places: Collection[Place]) -> dict[Place, Opened | None]:
        """Where a producer has a transaction open. None: this user may not know. One question a leader."""

        def ask() -> dict[Place, Opened | None]:
            admin = self._open()
            wanted = [TopicPartition(*place) for place in places]
            leaders = admin._manager.run(admin._async_get_leader_for_partitions, wanted)
            if -1 in leaders:
                raise errors.LeaderNotAvailableError(f"of {sorted(leaders[-1])}")
            found: dict[Place, Opened | None] = {}
            for leader, led in leaders.items():
                found |= self._opened(producer_id, led, leader)
            return found

        return self._patiently(ask)

    def listed(self, prefix: str) -> dict[str, int]:
        """The producer of every open transaction whose id begins so. None of them is about to end: that is waited for."""

        def ask() -> dict[str, int]:
            found = {t.id: t for t in Desk(self._open()).listed(_UNENDED) if t.id.startswith(prefix)}
            if any(t.is_being_ended for t in found.values()):
                raise errors.ConcurrentTransactionsError("a transaction is being ended")
            return {t.id: t.producer_id for t in found.values() if t.is_open}

        return self._patiently(ask)

    def holder(self, ident: str) -> Handle | None:
        """The transaction that is open under an id."""
        found = self.described(ident)
        return found.handle if found is not None and found.is_open else None

    def log(self, topic: str, start: int, end: int) -> Iterator[Record | Marker]:
        """All that lies between two places of partition 0, whether committed, aborted or open, with the markers between."""
        place = start
        while place < end:
            batches = self._patiently(lambda at=place: self._fetch(topic, at))  # type: ignore[misc]
            for batch in batches:
                if batch.next_offset <= place:
                    continue
                place = batch.next_offset
                for record in batch:
                    if batch.is_control_batch:
                        yield Marker(batch.producer_id, bool(record.commit))
                    else:
                        yield Record(batch.producer_id, record.value)

    def close(self) -> None:
        with self._lock:
            admin, self._admin = self._admin, None
            self._leaders.clear()
        if admin is not None:
            admin.close()

    def _init(self, ident: str, timeout_ms: int) -> Handle:
        request = InitProducerIdRequest(
            transactional_id=ident,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            max_version=_INIT_VERSION,
        )
        answer = self._send(request, self._coordinator(ident))
        error = errors.for_code(answer.error_code)
        if error is not errors.NoError:
            raise error(f"InitProducerId of `{ident}`")
        return Handle(ident, int(answer.producer_id), int(answer.producer_epoch))

    def _opened(self, producer_id: int, led: Collection[Any], leader: int) -> dict[Place, Opened | None]:
        partitions: dict[str, list[int]] = {}
        for place in led:
            partitions.setdefault(place.topic, []).append(place.partition)
        found: dict[Place, Opened | None] = {}
        for topic in self._send(self._open()._describe_producers_request(partitions), leader).topics:
            for part in topic.partitions:
                place = (str(topic.name), int(part.partition_index))
                error = errors.for_code(part.error_code)
                if error is errors.TopicAuthorizationFailedError:
                    found[place] = None
                    continue
                if error is not errors.NoError:
                    raise error(f"DescribeProducers of partition {place[1]} of `{place[0]}`")
                for each in part.active_producers:
                    if each.producer_id == producer_id and each.current_txn_start_offset >= 0:
                        found[place] = Opened(int(each.current_txn_start_offset), int(each.producer_epoch))
        return found

    def _fetch(self, topic: str, offset: int) -> list[Any]:
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=_FETCH_BYTES,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
            forgotten_topics_data=[],
            rack_id="",
            max_version=_FETCH_VERSION,
        )
        admin = self._open()
        leaders = admin._manager.run(admin._async_get_leader_for_partitions, [TopicPartition(topic, 0)])
        answer = self._send(request, next(iter(leaders))).responses[0].partitions[0]
        error = errors.for_code(answer.error_code)
        if error is not errors.NoError:
            raise error(f"Fetch of `{topic}` at {offset}")
        return list(MemoryRecords(bytes(answer.records or b"")))

    def _posted(self, handle: Handle, batches: Mapping[Place, bytes]) -> Any:
        unknown = {topic for topic, partition in batches if (topic, partition) not in self._leaders}
        if unknown:
            self._look_up(unknown)
        Topic = ProduceRequest.TopicProduceData
        by_leader: dict[int, dict[str, list[Any]]] = {}
        for (topic, partition), batch in batches.items():
            part = Topic.PartitionProduceData(index=partition, records=batch)
            leader = self._leaders.get((topic, partition))
            if leader is None:
                raise KafkaException(
                    KafkaError(KafkaError._UNKNOWN_PARTITION, f"topic `{topic}` has no partition {partition}")
                )
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(part)
        requests = [
            (
                ProduceRequest(
                    transactional_id=handle.id or None,
                    acks=-1,
                    timeout_ms=int(_PRODUCE_S * 1000),
                    topic_data=[Topic(name=name, partition_data=parts) for name, parts in topics.items()],
                    max_version=_PRODUCE_VERSION,
                ),
                leader,
            )
            for leader, topics in by_leader.items()
        ]
        return self._open()._manager.call_soon(self._go_all(requests, _PRODUCE_S))

    def _waited(self, answer: Any) -> Any:
        async def wait() -> Any:
            return await answer

        return self._open()._manager.run(wait)

    def _look_up(self, topics: Collection[str]) -> None:
        """Who leads the partitions of these topics. One that has no leader now, or is not there, is an error that may pass."""
        admin = self._open()
        for topic in admin._manager.run(admin._get_cluster_metadata, list(topics))["topics"]:
            _expect_granted(errors.for_code(topic["error_code"]), f"topic `{topic['name']}`")
            for part in topic["partitions"]:
                if part["leader_id"] < 0:
                    raise errors.LeaderNotAvailableError(
                        f"topic `{topic['name']}`, partition {part['partition_index']}"
                    )
                self._leaders[topic["name"], part["partition_index"]] = part["leader_id"]

    def _coordinator(self, ident: str, kind: Any = CoordinatorType.TRANSACTION) -> int:
        admin = self._open()
        return int(admin._manager.run(admin._find_coordinator_id, ident, kind))

    def _send(self, request: Any, node: int) -> Any:
        return self._send_all([(request, node)])[0]

    def _send_all(self, requests: Collection[tuple[Any, int]]) -> Any:
        """Each to its node. Those to one node go over one line, and are answered one after the other."""
        return self._open()._manager.run(self._go_all(requests))

    def _go_all(self, requests: Collection[tuple[Any, int]], answer_s: float | None = None) -> Any:
        manager, limit_ms = self._open()._manager, None if answer_s is None else answer_s * 1000

        async def go() -> list[Any]:
            sent = [manager.send(request, node_id=node, request_timeout_ms=limit_ms) for request, node in requests]
            return [await each for each in sent]

        ask: Callable[[], Coroutine[Any, Any, list[Any]]] = go
        return ask

    def _open(self) -> Any:
        with self._lock:
            if self._admin is None:
                self._admin = open_admin(self.address)
            return self._admin

    def _patiently(self, ask: Callable[[], T], patience_s: float | None = None) -> T:
        """Ask again while something moves. A connection that failed is made anew, and with it the knowledge of who is where."""
        patience_s = _PATIENCE_S if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return ask()
            except (errors.KafkaError, OSError, CannotAskError) as error:
                reason = _reason(error)
                if not _is_passing(error):
                    raise self._denied(error) from error
                if not isinstance(_cause(error), errors.ConcurrentTransactionsError):
                    self.close()
                late = _told(error, f"no answer for {patience_s:.0f} s: {reason}")
            if time.monotonic() > deadline:
                raise told_error(self.whose, self.address, late)
            time.sleep(_PAUSE_S)

    def _denied(self, error: BaseException) -> PakkaError:
        told = _told(error)
        if told.code() != KafkaError._FAIL:
            return told_error(self.whose, self.address, told, refusal=DeniedError)
        return DeniedError(
            f"{self.whose}: {self.address}: {self.address.scrub(told.str())}; nothing was changed",
            hint="the message is that of kafka-python, with which pakka writes; docs/reference/kafka-sink.md says which `settings` it has",
        )


def _begin_request(handle: Handle, places: Collection[Place]) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=handle.id,
        v3_and_below_producer_id=handle.producer_id,
        v3_and_below_producer_epoch=handle.producer_epoch,
        v3_and_below_topics=[Topic(name=name, partitions=parts) for name, parts in topics.items()],
        max_version=_ADD_PARTITIONS_VERSION,
    )


def _begun(answer: Any) -> Iterator[tuple[Place, Any]]:
    for topic in answer.results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            yield (str(topic.name), int(part.partition_index)), errors.for_code(part.partition_error_code)


def _taken(answers: Collection[Any]) -> Iterator[tuple[Place, Any, str]]:
    """What the brokers say to each batch."""
    for answer in answers:
        for topic in answer.responses:
            for part in topic.partition_responses:
                error = errors.for_code(part.error_code)
                words = (getattr(each, "batch_index_error_message", None) for each in part.record_errors or ())
                said = next(filter(None, (part.error_message, *words)), None)
                yield (str(topic.name), int(part.index)), error, str(said or _words(error))


def _words(error: Any) -> str:
    """In the words of librdkafka, which are shorter."""
    return str(KafkaError(error.errno).str())


def _expect_granted(error: Any, where: str) -> None:
    """Raise what may pass as what it is, to be asked again, and what does not as the last word."""
    if error is not errors.NoError:
        _expect_passing(error, f"{where}: {_words(error)}")
        raise error(where)


def _expect_passing(error: Any, words: str) -> None:
    if not _is_passing(error()):
        raise KafkaException(KafkaError(error.errno, words))


def _end_request(handle: Handle, is_commit: bool) -> Any:
    return EndTxnRequest(
        transactional_id=handle.id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        committed=is_commit,
        max_version=END_TXN_VERSION,
    )


def _ended(code: int, handle: Handle) -> End:
    error = errors.for_code(code)
    if error is errors.NoError:
        return End.DONE
    if error in _GONE:
        return End.GONE
    raise error(f"EndTxn of `{handle.id}`")


def _told(error: BaseException, words: str = "") -> KafkaError:
    """The same error as the other library would tell it: the numbers are the brokers'."""
    cause: Any = _cause(error)
    is_answer = isinstance(cause, errors.BrokerResponseError) and cause.errno > 0
    code = cause.errno if is_answer else KafkaError._TIMED_OUT if _is_passing(error) else KafkaError._FAIL
    return KafkaError(code, words or _reason(error))


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, CannotAskError) and error.__cause__ is not None else error


def _reason(error: BaseException) -> str:
    cause = _cause(error)
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"


def _is_passing(error: BaseException) -> bool:
    cause = _cause(error)
    is_away = isinstance(cause, (OSError, *_PASSING)) or getattr(cause, "retriable", False)
    return bool(is_away)
