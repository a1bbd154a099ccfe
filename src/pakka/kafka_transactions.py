"""What librdkafka has no question for: which transactions are open, whose they are, and what the brokers can do. It is asked with
kafka-python, for whoever looks: nothing here is on the way of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from pakka.kafka_line import Address

ONGOING = "Ongoing"
"""The state of a transaction that nobody has ended yet."""
EMPTY = "Empty"
"""The state of an id that was taken from whoever had it, and under which nothing was begun since."""
_ANSWER_MS = 10_000
_PASSED_ON = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# What the library tells has a place to go, and is not printed past everything.
logging.getLogger("kafka").addHandler(logging.NullHandler())


class CannotAskError(Exception):
    """The brokers do not tell this user, or this client cannot get in; the words say why. What was asked is not known."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id as its coordinator knows it."""

    id: str
    producer_id: int
    state: str

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING

    @property
    def is_being_ended(self) -> bool:
        """Decided; the readers of each partition hear of it a moment later."""
        return self.state.startswith("Prepare")

    @property
    def is_commit(self) -> bool | None:
        """How the last transaction ended; None: it has not, or the coordinator has forgotten."""
        return {"CompleteCommit": True, "CompleteAbort": False}.get(self.state)

    @property
    def is_forgotten(self) -> bool:
        """Its id was taken from whoever had it, and nothing was begun since: how the last transaction ended is not told any more."""
        return self.state == EMPTY

    @property
    def is_over(self) -> bool:
        """Its coordinator has nothing to end."""
        return self.is_commit is not None or self.is_forgotten


@dataclass(frozen=True, slots=True)
class Holder:
    """A producer that has a transaction open in a partition."""

    producer_id: int
    offset: int
    """Where its transaction begins."""


class Desk:
    """One connection to the coordinators of a cluster."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def version(self) -> str:
        """Of the oldest broker, such as `4.3`, by the requests that it knows: none tells its version."""
        with _asked():
            nodes = [broker["broker_id"] for broker in self._admin.describe_cluster()["brokers"]]
            found = [self._admin.get_broker_version_data(node).broker_version for node in nodes]
        return ".".join(map(str, min(found)))

    def transaction_version(self) -> int | None:
        """The cluster's feature of that name; None where there is no such feature."""
        with _asked():
            feature = self._admin.describe_features().get("transaction.version", {})
        levels = feature.get("finalized")
        return int(levels[1]) if levels else None

    def listed(self, states: Sequence[str] = (), producers: Collection[int] = ()) -> list[Listed]:
        """Every transactional id that the coordinators remember, and that this user may see; in one of these states, and of one of these
        producers, if any are named.
        """
        with _asked():
            found = self._admin.list_transactions(state_filters=states, producer_id_filters=list(producers))
        return [Listed(t.transactional_id, t.producer_id, str(t.state.value)) for ts in found.values() for t in ts]

    def groups(self) -> frozenset[str]:
        """Every consumer group that this user may see."""
        with _asked():
            return frozenset(group["group_id"] for group in self._admin.list_groups())

    def reached(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition."""
        with _asked():
            found = self._admin.list_group_offsets([group]).get(group, {})
        return {(place.topic, place.partition): int(told.offset) for place, told in found.items() if told.offset >= 0}

    def holders(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Holder]:
        """Of partitions in which transactions are open, whose is the oldest."""
        with _asked():
            told = self._admin.describe_producers([TopicPartition(*place) for place in places])
        oldest: dict[tuple[str, int], Holder] = {}
        for place, state in told.items():
            found = [Holder(p.producer_id, p.current_transaction_start_offset) for p in state.active_producers]
            if is_open := [holder for holder in found if holder.offset >= 0]:
                oldest[place.topic, place.partition] = min(is_open, key=lambda holder: holder.offset)
        return oldest

    def began(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], float]:
        """Since when the oldest transaction of each partition is open, in seconds since 1970, by the clock of its coordinator; without those
        of which this user is not told, and those that no coordinator has open.
        """
        oldest = self.holders(places)
        ids = {t.producer_id: t.id for t in self.listed([ONGOING], {h.producer_id for h in oldest.values()})}
        with _asked():
            told = self._admin.describe_transactions(list(ids.values())) if ids else {}
        starts = {t.producer_id: t.transaction_start_time_ms / 1000 for t in told.values() if t.state == ONGOING}
        return {place: starts[h.producer_id] for place, h in oldest.items() if h.producer_id in starts}


@contextmanager
def desk(address: Address) -> Iterator[Desk]:
    """Connect, as the settings say."""
    admin = open_admin(address)
    try:
        yield Desk(admin)
    finally:
        admin.close()


def open_admin(address: Address) -> Any:
    """The other library's client, which whoever opens it closes."""
    with _asked():
        return KafkaAdminClient(
            bootstrap_servers=address.servers.split(","),
            client_id="pakka",
            request_timeout_ms=_ANSWER_MS,
            bootstrap_timeout_ms=_ANSWER_MS,
            **passed_on(address.settings),
        )


def passed_on(settings: Mapping[str, str]) -> dict[str, Any]:
    """How to get in, in the words of the other library."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "PLAIN")).upper()
    strange = [n for n in settings if n.startswith(("sasl.", "ssl.", "enable.ssl.")) and n not in _KNOWN]
    if "SASL" in settings.get("security.protocol", "").upper() and mechanism not in _MECHANISMS:
        strange.append(f"sasl.mechanism={mechanism}")
    if strange:
        raise CannotAskError(f"kafka-python has nothing for `{strange[0]}` of `settings`")
    found: dict[str, Any] = {_PASSED_ON[name]: value for name, value in settings.items() if name in _PASSED_ON}
    for name in ("security_protocol", "sasl_mechanism"):
        if name in found:
            found[name] = str(found[name]).upper()
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        found["ssl_check_hostname"] = False
    return found


_KNOWN = {*_PASSED_ON, "ssl.endpoint.identification.algorithm"}


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError, ValueError) as error:
        words = " ".join(str(error).split())
        raise CannotAskError(f"{type(error).__name__}: {words}" if words else type(error).__name__) from error
