"""Lines to Kafka, for the sink and the source: an address that never shows its secrets, and clients that wait for nothing for ever.

Two habits of confluent-kafka that would cost rows are dealt with here, once. A fatal error of a producer comes out of `poll` and
`flush` as a `KafkaError`, which `except Exception` and even `except BaseException` do not catch: `DriverError` names both kinds. And
why a cluster gives no answer is not in the error of the call, which only says that it took too long, but in a callback beside
it: every client has a `Grievance` that keeps it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import AdminClient

from pakka.errors import ConfigError

DriverError: tuple[type[BaseException], ...] = (KafkaException, cast(type[BaseException], KafkaError))
"""For `except`: all that the library raises. It must name both, since the second is no `BaseException` to Python."""

PASSING = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        # The library's own words: for partitions of which none has a leader, and for a broker that the others name no more while it was asked.
        KafkaError._NOENT,
        KafkaError._DESTROY_BROKER,
    }
)
"""What brokers say while something moves: a topic was just made, a broker went or came. The library does not ask again by itself
everywhere.
"""
_OWNED = {
    "bootstrap.servers": "it is the option `servers`",
    "metadata.broker.list": "it is the option `servers`",
    "transactional.id": "it is made from pipeline and sink, and must be the same for ever: it is the fence",
    "enable.idempotence": "a transaction needs it, and it is on",
    "acks": "a transaction needs `all`, and has it",
    "request.required.acks": "a transaction needs `all`, and has it",
    "isolation.level": "it is `read_committed` where rows are read",
    "enable.auto.commit": "offsets are committed with the rows, or not at all",
    "enable.partition.eof": "it is how the end of a topic is found",
    "group.id": "the group is an option of the source",
    "delivery.report.only.error": "every record's delivery is looked at",
    "queue.buffering.max.messages": "the sink keeps a bound of its own",
    "queue.buffering.max.kbytes": "the sink keeps a bound of its own",
}
CREDENTIALS = "user and password go into `settings`: `sasl.username`, and `sasl.password` from `${env:NAME}`"
_SECRET = re.compile(r"password|secret|key\.pem|jaas|token|oauthbearer\.config|certificate\.pem")
_EVERY_CLIENT = {
    "client.id": "pakka",
    "socket.connection.setup.timeout.ms": "10000",
    "socket.keepalive.enable": "true",
    "reconnect.backoff.max.ms": "1000",
    # A broker that moves its partitions is noticed at once by its errors; this is for the quiet changes.
    "topic.metadata.refresh.interval.ms": "60000",
    # The broker would collect figures of clients that live for seconds.
    "enable.metrics.push": "false",
}

Answer = TypeVar("Answer")

_log = logging.getLogger("librdkafka")
# What the library tells goes where logs go, and not past everything to the terminal. It is none of pakka's own loggers: what those
# say must be seen, also by who has set up no logs.
_log.addHandler(logging.NullHandler())


@dataclass
class Grievance:
    """The last thing that a client's connections complained of: the reason that is missing where a call takes too long."""

    error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # That all are down says nothing that the complaint before it did not say better.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.error is None:
            self.error = error


@dataclass(frozen=True)
class Address:
    """Where a cluster is and how to get in. Its text has no secret."""

    servers: str
    """`host:port`, several with commas between."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka's own settings, such as `security.protocol` and `sasl.password`."""

    @classmethod
    def parse(cls, whose: str, servers: str, settings: Mapping[str, Any] | None = None) -> Address:
        """`whose` begins the message if something cannot be right. What the library alone can judge is judged at `client`."""
        if "@" in servers:
            # What stands before it is a secret, and is not told.
            raise ConfigError(f"{whose}: a server is host and port, without user and password", hint=CREDENTIALS)
        plain = [server.strip().removeprefix("kafka://") for server in servers.split(",")]
        for server in plain:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"{whose}: {server!r} is not a server: host and port are needed",
                    hint="`servers: broker1:9092,broker2:9092`",
                )
        text = {name: _as_text(value) for name, value in (settings or {}).items()}
        for name in text:
            if name in _OWNED:
                raise ConfigError(f"{whose}: `settings` may not have `{name}`: {_OWNED[name]}", hint="leave it out")
        return cls(",".join(plain), text)

    def __str__(self) -> str:
        return f"kafka://{self.servers}"

    def scrub(self, text: str) -> str:
        """A message on one line, without the secrets of the settings."""
        text = "; ".join(line.strip() for line in text.splitlines() if line.strip())
        for name, value in self.settings.items():
            if _SECRET.search(name) and value:
                text = text.replace(str(value), "***")
        return text

    def check(self, whose: str) -> None:
        """Have the library read every setting, without a connection: an unknown name or a wrong value is `ConfigError`."""
        self._made(whose, Producer, {})

    def producer(self, whose: str, **more: Any) -> tuple[Producer, Grievance]:
        """`more`: settings with `_` for `.`; they go before the user's."""
        return self._client(whose, Producer, more)

    def consumer(self, whose: str, **more: Any) -> tuple[Consumer, Grievance]:
        """One that reads what is committed, commits nothing by itself, and tells where a partition ends."""
        own = {"isolation_level": "read_committed", "enable_auto_commit": "false", "enable_partition_eof": "true"}
        return self._client(whose, Consumer, {**own, **more})

    def admin(self, whose: str) -> tuple[AdminClient, Grievance]:
        return self._client(whose, AdminClient, {})

    def _client(self, whose: str, kind: Callable[..., Answer], more: Mapping[str, Any]) -> tuple[Answer, Grievance]:
        grievance = Grievance()
        settings = {name.replace("_", "."): value for name, value in more.items()}
        # The library connects as soon as it is told where to.
        made = self._made(whose, kind, {**settings, "bootstrap.servers": self.servers, "error_cb": grievance})
        return made, grievance

    def _made(self, whose: str, kind: Callable[..., Answer], more: Mapping[str, Any]) -> Answer:
        try:
            return kind({**_EVERY_CLIENT, **self.settings, **more}, logger=_log)
        except DriverError as error:
            raise ConfigError(
                f"{whose}: {self}: the settings are not accepted: {self.scrub(error_of(error).str())}",
                hint="`settings` takes what librdkafka's CONFIGURATION.md lists",
            ) from None


def error_of(error: BaseException | KafkaError) -> KafkaError:
    """The library's error, whichever way it was raised."""
    if isinstance(error, KafkaError):
        return error
    found = error.args[0] if error.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def is_denied(error: BaseException | KafkaError) -> bool:
    """Whether it is a right that is missing, and not an answer."""
    return bool(error_of(error).name().endswith("_AUTHORIZATION_FAILED"))


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
