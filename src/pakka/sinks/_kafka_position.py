"""Where a Kafka source stands, told to its consumer group in the sink's transaction: for the eyes of whoever watches its lag.

The source itself goes by Spark's checkpoint. So whatever can keep an offset from being told is found before the decision, or passed over:
a decided epoch does not wait for a topic that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pakka.contract.audit import Finding
from pakka.errors import SinkError
from pakka.kafka_cluster import Cluster
from pakka.kafka_error import told
from pakka.kafka_line import Address, DriverError, is_denied
from pakka.kafka_topic import Lack
from pakka.model.id import Binding
from pakka.probing import BREAKS, FINE
from pakka.sinks._kafka_batch import Place

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the source is."""

    cluster: str
    group: str
    offsets: Mapping[Place, int]

    @classmethod
    def of(cls, position: str) -> Standing | None:
        """A position in the words of Kafka's source; None if it is another source's, whose words are its own, or names no offset."""
        try:
            data = json.loads(position) if position else None
        except ValueError:
            return None
        where = data.get("kafka") if isinstance(data, dict) else None
        if where is None:
            return None
        offsets = {
            (topic, int(partition)): int(offset)
            for topic, ends in where["offsets"].items()
            for partition, offset in ends.items()
        }
        return cls(where["cluster"], where["group"], offsets) if offsets else None

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self.offsets)


def check_rights(whose: object, cluster: Cluster, standing: Standing) -> None:
    """Raise if the group may not be told."""
    if missing := missing_rights(whose, cluster, standing):
        raise denied(whose, cluster.address, standing, missing)


def missing_rights(whose: object, cluster: Cluster, standing: Standing) -> list[str]:
    """Of what there is no READ: `group`, `topic`."""
    with told(whose, cluster.address, cluster.grievance, about=f"group `{standing.group}`"):
        missing = ["group"] if _lacks_read(lambda: cluster.group_operations(standing.group)) else []
        is_unread = any(_lacks_read(partial(_topic_operations, cluster, t)) for t in standing.topics)
    return [*missing, *(["topic"] if is_unread else [])]


def judge(sink: KafkaSink, binding: Binding | None, position: str) -> Finding:
    """The probe of the rights to tell the source's group, for a source that stands at `position`."""
    name, standing = "group of the source", Standing.of(position)
    if standing is None:
        return Finding(name, FINE, "none", "no Kafka source is known here; a run asks before its first decision")
    cluster, whose = Cluster(sink.address), binding or "kafka"
    with told(whose, sink.address, cluster.grievance):
        is_own = cluster.id == standing.cluster
    if not is_own:
        return Finding(name, FINE, "none", "the source is of another cluster, and its group is told nothing")
    missing = missing_rights(whose, cluster, standing)
    if not missing:
        return Finding(name, FINE, standing.group, "it may be told how far the source is, together with the rows")
    lacks = [Lack("READ", kind, each) for kind, names in _names(standing).items() if kind in missing for each in names]
    why = "how far the source is goes with the rows in one transaction, and every epoch is refused before its decision"
    fix = "; ".join(lack.grant(sink.address) for lack in lacks)
    return Finding(name, BREAKS, ", ".join(map(str, lacks)), why, fix)


def denied(
    whose: object, address: Address, standing: Standing, missing: Collection[str] = ("group", "topic")
) -> SinkError:
    """What is said if some of these rights is not there."""
    names = _names(standing)
    listed = " and ".join(f"{kind} {', '.join(f'`{name}`' for name in names[kind])}" for kind in missing)
    grants = "; ".join(
        f"`kafka-acls.sh --add --allow-principal User:NAME --operation READ --{kind} {name}`"
        for kind in missing
        for name in names[kind]
    )
    return SinkError(
        f"{whose}: {address}: the user of `settings` may not tell the source's group how far it is: it takes READ on {listed}; nothing was "
        "changed",
        hint=grants,
    )


def _names(standing: Standing) -> dict[str, list[str]]:
    return {"group": [standing.group], "topic": sorted(standing.topics)}


def _topic_operations(cluster: Cluster, name: str) -> frozenset[str]:
    topic = cluster.topic(name)
    return topic.operations if topic is not None else frozenset()


def _lacks_read(ask: Callable[[], frozenset[str]]) -> bool:
    try:
        operations = ask()
    except DriverError as error:
        if not is_denied(error):
            raise
        return True
    # Brokers that name none are too old to tell.
    return bool(operations) and "READ" not in operations
