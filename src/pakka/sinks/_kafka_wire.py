"""A line to the brokers of a cluster by kafka-python, whose inside is used here and in what builds on it: the requests that it has no
call for are made by hand, and an answer that may be another one a moment later is asked for again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.metadata import CoordinatorType  # type: ignore[import-untyped]

from pakka.errors import PakkaError, SinkError, UnavailableError
from pakka.kafka_cluster import ANSWER_S
from pakka.kafka_error import is_mendable, told_error
from pakka.kafka_line import Address, is_denied
from pakka.kafka_transactions import CannotAskError, open_admin

PATIENCE_S = ANSWER_S
"""How long a coordinator may load, move, or be at the end of another transaction."""
_PAUSE_S, _PAUSE_MOST_S = 0.01, 0.5
_PASSING = (
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
    errors.ConcurrentTransactionsError,
    errors.NotLeaderForPartitionError,
    errors.LeaderNotAvailableError,
    errors.UnknownTopicOrPartitionError,
    # A coordinator that is no more, or not yet, among the brokers that the line has heard of.
    errors.UnknownBrokerIdError,
)

AWAY = (errors.KafkaError, OSError, CannotAskError)
"""For `except`: all that a line raises. Some of it passes."""

T = TypeVar("T")


class DeniedError(SinkError):
    """This user never gets an answer to such a question: a right is missing, or the brokers are too old for it. Nothing else is one: who is
    denied may go on without the answer where it is not needed, and who gets none for another reason may not.
    """


class Wire:
    """One connection to each broker, made when it is needed. Several threads may ask at once."""

    def __init__(self, whose: object, address: Address) -> None:
        self.whose = whose
        self.address = address
        self._admin: Any = None
        self._coordinators: dict[tuple[str, Any], int] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            admin, self._admin = self._admin, None
            self._coordinators.clear()
        if admin is not None:
            admin.close()

    def _coordinator(self, ident: str, kind: Any = CoordinatorType.TRANSACTION) -> int:
        """Who it was the last time. One that is not any more says so, and then the line is made anew."""
        found = self._coordinators.get((ident, kind))
        if found is None:
            admin = self._open()
            found = self._coordinators[ident, kind] = int(admin._manager.run(admin._find_coordinator_id, ident, kind))
        return found

    def _send(self, request: Any, node: int) -> Any:
        return self._send_all([(request, node)])[0]

    def _send_all(self, requests: Collection[tuple[Any, int]]) -> Any:
        """Each to its node. Those to one node go over one line, and are answered one after the other."""
        manager = self._open()._manager
        return manager.run(self._go_all(manager, requests))

    def _go_all(self, manager: Any, requests: Collection[tuple[Any, int]], answer_s: float | None = None) -> Any:
        limit_ms = None if answer_s is None else answer_s * 1000

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
        patience_s = PATIENCE_S if patience_s is None else patience_s
        deadline, pause_s = time.monotonic() + patience_s, _PAUSE_S
        while True:
            try:
                return ask()
            except AWAY as error:
                reason = _reason(error)
                if not _is_passing(error):
                    raise self._refused(error) from error
                if not isinstance(_cause(error), errors.ConcurrentTransactionsError):
                    self.close()
                late = _told(error, f"no answer for {patience_s:.0f} s: {reason}")
            if time.monotonic() > deadline:
                told = told_error(self.whose, self.address, late)
                raise UnavailableError(told.message, hint=told.hint)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _PAUSE_MOST_S)

    def _refused(self, error: BaseException) -> PakkaError:
        """What does not pass while it is waited for."""
        told = _told(error)
        is_never_told = is_denied(told) or told.code() == KafkaError.UNSUPPORTED_VERSION
        found = told_error(self.whose, self.address, told, refusal=DeniedError if is_never_told else SinkError)
        if is_never_told or is_mendable(told) or isinstance(found, UnavailableError):
            return found
        message = f"{self.whose}: {self.address}: {self.address.scrub(told.str())}; nothing was changed"
        if not isinstance(_cause(error), errors.BrokerResponseError):
            return SinkError(
                message,
                hint="the message is that of kafka-python, with which pakka writes; docs/reference/kafka-sink.md says which `settings` it has",
            )
        return UnavailableError(message, hint="run again; if that is the answer again, the logs of the brokers say why")


def words_of(error: Any) -> str:
    """In the words of librdkafka, which are shorter."""
    return str(KafkaError(error.errno).str())


def expect_granted(error: Any, where: str) -> None:
    """Raise what may pass as what it is, to be asked again, and what does not as the last word."""
    if error is not errors.NoError:
        expect_passing(error, f"{where}: {words_of(error)}")
        raise error(where)


def expect_passing(error: Any, words: str) -> None:
    if not _is_passing(error()):
        raise KafkaException(KafkaError(error.errno, words))


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
