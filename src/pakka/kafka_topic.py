"""A topic and its settings, and what they mean to whoever reads it or writes to it: for the source and the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pakka.contract.audit import Finding
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_line import Address, DriverError, is_denied
from pakka.probing import BREAKS, FINE, WARNS, age

KEPT_MS = 24 * 3600 * 1000
"""Who was down over a day should still find what was committed meanwhile."""


@dataclass(frozen=True)
class TopicFacts:
    """A topic that is there, or as it would be made."""

    name: str
    brokers: int
    """How many there are to have it."""
    topic: Topic | None
    """None: it is not there, or it is hidden."""
    replicas: int | None
    """None: not known."""
    settings: Mapping[str, str] | None
    """None: this user may not read them."""
    is_hidden: bool = False
    """This user may not even see whether it is there."""
    is_to_make: bool = False
    """It is not there, and the sink makes it."""
    may_make: bool = True
    """This user may do that."""
    trouble: str = ""
    """What else keeps it from being made, as the brokers say."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A right that is not there."""

    right: str
    kind: str
    """What it is for, as `kafka-acls.sh` calls it."""
    name: str = ""
    is_prefix: bool = False
    """It is for all names that begin so."""

    def __str__(self) -> str:
        kind = self.kind.replace("-", " ")
        what = f"{kind}s that begin with {self.name}" if self.is_prefix else f"{kind} {self.name}".rstrip()
        return f"no {self.right} on {what}"

    def grant(self, address: Address) -> str:
        """The command that gives it."""
        user = address.settings.get("sasl.username", "NAME")
        add = f"kafka-acls.sh --bootstrap-server {address.servers} --add --allow-principal User:{user}"
        prefixed = " --resource-pattern-type prefixed" if self.is_prefix else ""
        return f"{add} --operation {self.right} --{self.kind} {self.name}".rstrip() + prefixed


@dataclass(frozen=True, slots=True)
class Kept:
    """What follows from how long a topic keeps its records, in the words of who asks."""

    compacted: str
    short: str
    limited: str
    enough: str


def read_topic(cluster: Cluster, brokers: int, name: str) -> TopicFacts:
    """A topic as it is now."""
    try:
        topic = cluster.topic(name)
    except DriverError as error:
        if not is_denied(error):
            raise
        return TopicFacts(name, brokers, None, None, None, is_hidden=True)
    settings = cluster.topic_settings(name) if topic is not None else None
    return TopicFacts(name, brokers, topic, topic.replicas if topic is not None else None, settings)


def judge_unclean(name: str, address: Address, topic: TopicFacts, why: str) -> Finding:
    """Whether a replica that is behind may lead."""
    if topic.settings is None:
        return not_known(name, address, topic)
    if topic.settings.get(name) != "true":
        return Finding(name, FINE, "false", "only a replica that has all that was committed can lead")
    severity = BREAKS if (topic.replicas or 2) > 1 else WARNS
    return Finding(name, severity, f"true of {topic.name}", why, alter(address, topic, f"{name}=false"))


def judge_retention(
    name: str, address: Address, topic: TopicFacts, settings: Mapping[str, str], words: Kept
) -> Finding:
    """How long records stay."""
    policy, kept_ms = settings.get("cleanup.policy", "delete"), int(settings.get("retention.ms", -1))
    kept_bytes = int(settings.get("retention.bytes", -1))
    if "compact" in policy:
        return Finding(name, WARNS, policy, words.compacted, alter(address, topic, "cleanup.policy=delete"))
    if policy == "delete" and 0 <= kept_ms < KEPT_MS:
        fix = alter(address, topic, f"retention.ms={7 * KEPT_MS}")
        return Finding(name, WARNS, age(kept_ms / 1000), words.short, fix)
    if policy == "delete" and kept_bytes >= 0:
        value = f"{kept_bytes} bytes a partition"
        return Finding(name, WARNS, value, words.limited, alter(address, topic, "retention.bytes=-1"))
    value = "for ever" if kept_ms < 0 else age(kept_ms / 1000)
    return Finding(name, FINE, value, words.enough)


def not_known(name: str, address: Address, topic: TopicFacts) -> Finding:
    """What this user may not read is not taken for right."""
    why = f"the user of `settings` may not read the settings of topic {topic.name}"
    return Finding(name, WARNS, "not known", why, grant(address, "DESCRIBE_CONFIGS", topic.name))


def configs(address: Address) -> str:
    """How the command begins that changes a setting."""
    return f"kafka-configs.sh --bootstrap-server {address.servers} --alter"


def alter(address: Address, topic: TopicFacts, setting: str) -> str:
    """The command that changes a setting of a topic."""
    return f"{configs(address)} --topic {topic.name} --add-config {setting}"


def grant(address: Address, right: str, topic: str = "") -> str:
    """The command that gives a right to a topic, or to the cluster."""
    return Lack(right, "topic" if topic else "cluster", topic).grant(address)
