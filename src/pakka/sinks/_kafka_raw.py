"""What no client of Kafka offers and its protocol has: ending a transaction of a process that is gone, shutting its producer out,
asking a partition whether a producer has one open in it, and reading it with the markers that say how each transaction ended.

EndTxn is sent in version 4 at most: see docs/decisions/0012-kafka-transactions-on-a-real-broker.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.consumer import FetchRequest  # type: ignore[import-untyped]
from kafka.protocol.producer import (  # type: ignore[import-untyped]
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kafka.record import MemoryRecords  # type: ignore[import-untyped]
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from pakka.errors import PakkaError, UnknownOutcomeError
from pakka.kafka_transactions import EMPTY, Desk, Listed
from pakka.sinks._kafka_batch import Handle, Place
from pakka.sinks._kafka_wire import Wire

PROTOCOL = 1
"""Of transactions as librdkafka makes them: their end does not raise the producer's epoch."""
END_TXN_VERSION = 4
_ADD_PARTITIONS_VERSION = 3
"""The last one that is for clients."""
_INIT_VERSION = 4
_FETCH_VERSION = 11
"""The last one that names topics, which every broker since 2.3 has."""
_FETCH_BYTES = 4 << 20
_UNENDED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_GONE = (
    errors.ProducerFencedError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.InvalidProducerIdMappingError,
)


class End(Enum):
    """What a coordinator says to the end of a transaction."""

    DONE = "done"
    """It is decided, durably. Readers hear of it a moment later."""
    REPEATED = "repeated"
    """The same, after a request that was not answered. It may still be on its way, and would end whatever follows under this handle."""
    GONE = "gone"
    """It has ended before, or its producer is shut out. Only the ledger can tell how it ended."""

    @property
    def is_done(self) -> bool:
        return self is not End.GONE


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


class Registry(Wire):
    """What coordinators and partitions know of transactions. Several threads may ask at once."""

    def end(
        self, handle: Handle, *, is_commit: bool, patience_s: float | None = None, granter: int | None = None
    ) -> End:
        """Commit or abort. It may be repeated freely, unless more has followed. `UnknownOutcomeError`: asked, and no answer.

        `granter`: the broker that has granted the transaction its places. Needed where the handle had a transaction before: a broker that was
        overtaken still knows that one as committed, and says so without asking another. Who has granted must write the end down.
        """
        request = end_request(handle, is_commit)
        is_unanswered = False

        def ask() -> End:
            nonlocal is_unanswered
            node = self._coordinator(handle.id)
            was_unanswered, is_unanswered = is_unanswered, True
            answer = self._send(request, node)
            # What an earlier one has done that was never answered, this answer does not tell; and that it does not know what it has done
            # is no answer at all.
            is_unanswered = was_unanswered or answer.error_code == errors.UnknownError.errno
            end = _ended(answer.error_code, handle)
            if end is End.DONE and granter not in (None, node):
                raise UnknownOutcomeError(
                    f"broker {node} says that transaction `{handle.id}` is committed, which broker {granter} has granted: it may be the one before"
                )
            return End.REPEATED if end is End.DONE and is_unanswered else end

        try:
            return self._patiently(ask, patience_s)
        except PakkaError as error:
            if not is_unanswered:
                raise
            raise UnknownOutcomeError(f"no answer to the end of transaction `{handle.id}`: {error.message}") from error

    def end_in(self, handle: Handle, places: Collection[Place], *, is_commit: bool) -> End:
        """A transaction without a record in these places: whatever its producer had open in them ends with it. It may be repeated freely."""
        begin = begin_request(handle, places)

        def ask() -> End:
            # Both are on their way before the first is answered: whoever dies between them leaves a transaction that is to be aborted.
            node = self._coordinator(handle.id)
            first, second = self._send_all([(begin, node), (end_request(handle, is_commit), node)])
            for place, error in begun(first):
                if error in _GONE:
                    return End.GONE
                if error is not errors.NoError:
                    raise error(f"AddPartitionsToTxn of `{handle.id}`, partition {place[1]} of `{place[0]}`")
            return _ended(second.error_code, handle)

        return self._patiently(ask)

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

    def settled(self, ident: str) -> Described | None:
        """The same, once nothing is being ended under it."""

        def ask() -> Described | None:
            found = self.described(ident)
            if found is not None and found.is_being_ended:
                raise errors.ConcurrentTransactionsError("a transaction is being ended")
            return found

        return self._patiently(ask)

    def opened(self, producer_id: int, places: Collection[Place]) -> dict[Place, Opened | None]:
        """Where a producer has a transaction open. None: this user may not know."""
        by_place = self.open_in(places)
        return {
            place: None if found is None else found[producer_id]
            for place, found in by_place.items()
            if found is None or producer_id in found
        }

    def open_in(self, places: Collection[Place]) -> dict[Place, dict[int, Opened] | None]:
        """What is open in each place, by producer. None: this user may not know. One question a leader."""

        def ask() -> dict[Place, dict[int, Opened] | None]:
            admin = self._open()
            wanted = [TopicPartition(*place) for place in places]
            leaders = admin._manager.run(admin._async_get_leader_for_partitions, wanted)
            if -1 in leaders:
                raise errors.LeaderNotAvailableError(f"of {sorted(leaders[-1])}")
            found: dict[Place, dict[int, Opened] | None] = {}
            for leader, led in leaders.items():
                found |= self._open_in(led, leader)
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

    def taken(self, prefix: str) -> list[str]:
        """Every id that begins so, under which nothing was begun since it was taken: whoever has it may be about to."""

        def ask() -> list[str]:
            return [t.id for t in Desk(self._open()).listed([EMPTY]) if t.id.startswith(prefix)]

        return self._patiently(ask)

    def known(self, producers: Collection[int] = (), prefix: str = "") -> list[Listed]:
        """The ids of these producers that begin so, or all that are remembered. None of them is about to end: that is waited for."""

        def ask() -> list[Listed]:
            found = [t for t in Desk(self._open()).listed(producers=producers) if t.id.startswith(prefix)]
            if any(t.is_being_ended for t in found):
                raise errors.ConcurrentTransactionsError("a transaction is being ended")
            return found

        return self._patiently(ask)

    def holder(self, ident: str) -> Handle | None:
        """The transaction that is open under an id."""
        found = self.described(ident)
        return found.handle if found is not None and found.is_open else None

    def log(self, topic: str, start: int, end: int) -> Iterator[Record | Marker]:
        """All that lies between two places of partition 0, whether committed, aborted or open, with the markers between."""
        for batch in self._batches(topic, start, end):
            for record in batch:
                if batch.is_control_batch:
                    yield Marker(batch.producer_id, bool(record.commit))
                else:
                    yield Record(batch.producer_id, record.value)

    def writers(self, topic: str, start: int, end: int) -> set[int]:
        """The producers of all that lies between two places of partition 0. No record is unpacked: its codec may not be known here."""
        return {int(batch.producer_id) for batch in self._batches(topic, start, end)}

    def _batches(self, topic: str, start: int, end: int) -> Iterator[Any]:
        place = start
        while place < end:
            for batch in self._patiently(lambda at=place: self._fetch(topic, at)):  # type: ignore[misc]
                if batch.next_offset > place:
                    place = batch.next_offset
                    yield batch

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

    def _open_in(self, led: Collection[Any], leader: int) -> dict[Place, dict[int, Opened] | None]:
        partitions: dict[str, list[int]] = {}
        for place in led:
            partitions.setdefault(place.topic, []).append(place.partition)
        found: dict[Place, dict[int, Opened] | None] = {}
        for topic in self._send(self._open()._describe_producers_request(partitions), leader).topics:
            for part in topic.partitions:
                place = (str(topic.name), int(part.partition_index))
                error = errors.for_code(part.error_code)
                if error is errors.TopicAuthorizationFailedError:
                    found[place] = None
                    continue
                if error is not errors.NoError:
                    raise error(f"DescribeProducers of partition {place[1]} of `{place[0]}`")
                found[place] = {
                    int(each.producer_id): Opened(int(each.current_txn_start_offset), int(each.producer_epoch))
                    for each in part.active_producers
                    if each.current_txn_start_offset >= 0
                }
        return found

    def _fetch(self, topic: str, offset: int) -> list[Any]:
        admin = self._open()
        leaders = admin._manager.run(admin._async_get_leader_for_partitions, [TopicPartition(topic, 0)])
        answer = self._send(fetch_request(topic, offset), next(iter(leaders))).responses[0].partitions[0]
        error = errors.for_code(answer.error_code)
        if error is not errors.NoError:
            raise error(f"Fetch of `{topic}` at {offset}")
        return list(MemoryRecords(bytes(answer.records or b"")))


def fetch_request(topic: str, offset: int) -> Any:
    """What lies in partition 0 from a place on."""
    part = FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
    )
    return FetchRequest(
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


def begin_request(handle: Handle, places: Collection[Place]) -> Any:
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


def begun(answer: Any) -> Iterator[tuple[Place, Any]]:
    for topic in answer.results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            yield (str(topic.name), int(part.partition_index)), errors.for_code(part.partition_error_code)


def end_request(handle: Handle, is_commit: bool) -> Any:
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
