"""What no client of Kafka offers and its protocol has: ending a transaction of a process that is gone, shutting its producer out, and
reading a partition with the markers that say how each transaction in it ended. All that leans on kafka-python's inside is here.

EndTxn is sent in version 4 at most: see docs/decisions/0012-kafka-transactions-on-a-real-broker.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.consumer import FetchRequest  # type: ignore[import-untyped]
from kafka.protocol.metadata import CoordinatorType  # type: ignore[import-untyped]
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest  # type: ignore[import-untyped]
from kafka.record import MemoryRecords  # type: ignore[import-untyped]
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from pakka.errors import SinkError, UnavailableError, UnknownOutcomeError
from pakka.kafka_line import Address
from pakka.sinks._kafka_transactions import CannotAskError, Desk, open_admin

PROTOCOL = 1
"""Of transactions as librdkafka makes them: their end does not raise the producer's epoch."""
END_TXN_VERSION = 4
_FETCH_VERSION = 11
"""The last one that names topics, which every broker since 2.3 has."""
_PATIENCE_S = 20.0
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


class End(Enum):
    """What a coordinator says to the end of a transaction."""

    DONE = "done"
    """It is decided, durably. Readers hear of it a moment later."""
    GONE = "gone"
    """It has ended before, or its producer is shut out. Only the ledger can tell how it ended."""


@dataclass(frozen=True, slots=True)
class Handle:
    """One transaction for ever: a producer that asks for its id anew gets another epoch."""

    id: str
    producer_id: int
    producer_epoch: int


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


class Registry:
    """A connection to the coordinators of a cluster. Several threads may ask at once."""

    def __init__(self, whose: object, address: Address) -> None:
        self.whose = whose
        self.address = address
        self._admin: Any = None
        self._lock = threading.Lock()

    def end(self, handle: Handle, *, is_commit: bool) -> End:
        """Commit or abort. It may be repeated freely. `UnknownOutcomeError`: asked, and no answer."""
        request = EndTxnRequest(
            transactional_id=handle.id,
            producer_id=handle.producer_id,
            producer_epoch=handle.producer_epoch,
            committed=is_commit,
            max_version=END_TXN_VERSION,
        )
        is_sent = False

        def ask() -> End:
            nonlocal is_sent
            node = self._coordinator(handle.id)
            is_sent = True
            code = self._send(request, node).error_code
            error = errors.for_code(code)
            if error is errors.NoError:
                return End.DONE
            if error in _GONE:
                return End.GONE
            raise error(f"EndTxn of `{handle.id}`")

        try:
            return self._patiently(ask)
        except UnavailableError as error:
            if not is_sent:
                raise
            raise UnknownOutcomeError(f"no answer to the end of transaction `{handle.id}`: {error.message}") from error

    def shut_out(self, ident: str) -> None:
        """Take an id away from whoever has it. What is open under it is aborted, what is being ended is waited for."""

        def ask() -> None:
            request = InitProducerIdRequest(
                transactional_id=ident, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, max_version=4
            )
            error = errors.for_code(self._send(request, self._coordinator(ident)).error_code)
            if error is not errors.NoError:
                raise error(f"InitProducerId of `{ident}`")

        self._patiently(ask)

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

        def ask() -> Handle | None:
            found = self._open().describe_transactions([ident]).get(ident)
            if found is None or str(found.state.value) != "Ongoing":
                return None
            return Handle(ident, int(found.producer_id), int(found.producer_epoch))

        return self._patiently(ask)

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
        if admin is not None:
            admin.close()

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

    def _coordinator(self, ident: str) -> int:
        admin = self._open()
        return int(admin._manager.run(admin._find_coordinator_id, ident, CoordinatorType.TRANSACTION))

    def _send(self, request: Any, node: int) -> Any:
        admin = self._open()

        async def go() -> Any:
            return await admin._manager.send(request, node_id=node)

        ask: Callable[[], Coroutine[Any, Any, Any]] = go
        return admin._manager.run(ask)

    def _open(self) -> Any:
        with self._lock:
            if self._admin is None:
                self._admin = open_admin(self.address)
            return self._admin

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while something moves. A connection that failed is made anew, and with it the knowledge of who is where."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except (errors.KafkaError, OSError, CannotAskError) as error:
                reason = _reason(error)
                if not _is_passing(error):
                    raise SinkError(
                        f"{self.whose}: {self.address}: {self.address.scrub(reason)}; nothing was changed",
                        hint="the message is Kafka's own; `way: spooled` needs less of a cluster",
                    ) from error
                if not isinstance(_cause(error), errors.ConcurrentTransactionsError):
                    self.close()
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{self.whose}: {self.address}: no answer for {_PATIENCE_S:.0f} s: {self.address.scrub(reason)}",
                    hint="see that the brokers run, then run again",
                )
            time.sleep(_PAUSE_S)


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, CannotAskError) and error.__cause__ is not None else error


def _reason(error: BaseException) -> str:
    cause = _cause(error)
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"


def _is_passing(error: BaseException) -> bool:
    cause = _cause(error)
    is_away = isinstance(cause, (OSError, *_PASSING)) or getattr(cause, "retriable", False)
    return bool(is_away)
