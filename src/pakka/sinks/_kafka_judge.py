"""What the settings of one topic mean to a Kafka sink that writes to it. Whoever has read them is told here how bad they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pakka.contract.audit import Finding
from pakka.kafka_topic import Kept, TopicFacts, alter, judge_retention, judge_unclean, not_known
from pakka.probing import BREAKS, FINE, WARNS, age
from pakka.sinks._kafka_limit import time_ms

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

OUTAGE_MS = 24 * 3600 * 1000
"""A topic should take what is as old as this: an epoch that is decided may have to wait for brokers, or for its driver."""
SKEW_MS = 60 * 1000
"""And what is so far ahead: the clocks of a cluster differ."""

_FORGETS = "killed right after a commit, it may forget to show it to readers, who then wait until pakka writes again and ends what it finds so"

Judge = Callable[[str, "KafkaSink", TopicFacts], Finding]


def _replicas(name: str, sink: KafkaSink, topic: TopicFacts) -> Finding:
    if topic.replicas is None:
        return not_known(name, sink.address, topic)
    value = f"{topic.replicas} of {topic.name}"
    if topic.brokers == 1:
        why = (
            "the cluster has one broker, which does not wait for its disk: with its machine goes what was committed last, and with "
            f"its disk everything; {_FORGETS}"
        )
        return Finding(name, WARNS, value, why, "run three brokers or more, and have three replicas of every topic")
    if topic.replicas == 1:
        why = (
            "it is on one broker, and brokers do not wait for their disks: with that machine goes what was committed; "
            f"{_FORGETS}"
        )
        fix = f"kafka-reassign-partitions.sh --bootstrap-server {sink.address.servers} --execute, with 3 replicas of {topic.name}"
        return Finding(name, BREAKS, value, why, fix)
    return Finding(name, FINE, value, "what one broker loses, another one has")


def _in_sync(name: str, sink: KafkaSink, topic: TopicFacts) -> Finding:
    if topic.settings is None or topic.replicas is None:
        return not_known(name, sink.address, topic)
    wanted, replicas = int(topic.settings["min.insync.replicas"]), topic.replicas
    value, fix = f"{wanted} of {replicas} of {topic.name}", alter(sink.address, topic, f"{name}=2")
    if wanted > replicas:
        why = "there are not so many replicas: every write is refused"
        return Finding(name, BREAKS, value, why, alter(sink.address, topic, f"{name}={max(1, replicas - 1)}"))
    if replicas == 1:
        return Finding(name, FINE, value, "there is one replica, and no other to wait for; see replication factor")
    if wanted == 1:
        why = "while its other replicas are behind, one broker alone acknowledges a commit, and if it is lost then, the commit is"
        return Finding(name, BREAKS, value, why, fix)
    if wanted == replicas:
        why = "nothing can be written while a single broker is down"
        return Finding(name, WARNS, value, why, f"have 3 replicas of {topic.name}, or more")
    return Finding(name, FINE, value, "a commit is on more than one broker before it is acknowledged")


def _unclean(name: str, sink: KafkaSink, topic: TopicFacts) -> Finding:
    why = "a replica that is behind may lead: committed records vanish, and where the ledger does, its epochs come a second time"
    return judge_unclean(name, sink.address, topic, why)


_KEPT = Kept(
    "of every key only the newest record stays: who counts rows later finds fewer, and a record without a key is refused",
    "a reader that is down longer than this never sees what was committed meanwhile",
    "what is beyond goes however new it is: a reader that is behind by more never sees what was committed meanwhile",
    "readers have time to read what was committed",
)


def _retention(name: str, sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str]) -> Finding:
    return judge_retention(name, sink.address, target, settings, _KEPT)


def _timestamp_type(name: str, sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str]) -> Finding:
    value = settings.get(name, "CreateTime")
    if not sink.timestamp:
        return Finding(name, FINE, value, "the sink has no `timestamp` column whose times could be lost")
    if value == "CreateTime":
        return Finding(name, FINE, value, "records have the time that their rows say")
    why = f"the broker's own time takes the place of column `{sink.timestamp}`, in silence"
    return Finding(name, WARNS, value, why, alter(sink.address, target, f"{name}=CreateTime"))


def _message_bytes(name: str, sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str]) -> Finding:
    wanted, most = sink.max_record_bytes, int(settings["max.message.bytes"])
    if wanted is not None and wanted > most:
        why = f"`max_record_bytes` is {wanted}: what is larger than the topic takes is refused when it is written, and the epoch aborted"
        return Finding(name, WARNS, str(most), why, alter(sink.address, target, f"{name}={wanted}"))
    return Finding(name, FINE, str(most), "a record that is larger is refused before the epoch is decided")


def _oldest(name: str, sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str]) -> Finding:
    bound_ms = time_ms(settings, "before")
    if bound_ms is None or bound_ms >= OUTAGE_MS:
        return Finding(name, FINE, _long(bound_ms), "records do not grow too old for the topic while they wait")
    why = "an epoch that is decided and waits longer than this, as in an outage, is refused by the topic until the bound is raised"
    if sink.timestamp:
        why += f"; a row whose `{sink.timestamp}` is older is refused, and its epoch with it"
    return Finding(name, WARNS, _long(bound_ms), why, _raise_bound(sink, target, settings, name, 7 * OUTAGE_MS))


def _newest(name: str, sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str]) -> Finding:
    bound_ms = time_ms(settings, "after")
    if bound_ms is None or bound_ms >= SKEW_MS:
        return Finding(name, FINE, _long(bound_ms), "clocks may differ by so much")
    why = "an epoch from a machine whose clock is further ahead of the brokers' is refused by the topic after it was decided"
    return Finding(name, WARNS, _long(bound_ms), why, _raise_bound(sink, target, settings, name, 60 * SKEW_MS))


def _raise_bound(sink: KafkaSink, target: TopicFacts, settings: Mapping[str, str], name: str, ms: int) -> str:
    # Brokers before 3.6 have one bound for both sides, and those before 4.0 that one too.
    names = [each for each in (name, "message.timestamp.difference.max.ms") if int(settings.get(each, ms)) < ms]
    return alter(sink.address, target, ",".join(f"{each}={ms}" for each in names))


def _long(bound_ms: int | None) -> str:
    # Kafka has the largest number there is for no bound.
    return "any" if bound_ms is None or bound_ms == (1 << 63) - 1 else age(bound_ms / 1000)


DURABILITY: dict[str, Judge] = {
    "replication factor": _replicas,
    "min.insync.replicas": _in_sync,
    "unclean.leader.election.enable": _unclean,
}
"""For every topic that must not lose a record."""
_OF_TARGETS: dict[str, Callable[[str, KafkaSink, TopicFacts, Mapping[str, str]], Finding]] = {
    "retention": _retention,
    "message.timestamp.type": _timestamp_type,
    "message.timestamp.before.max.ms": _oldest,
    "message.timestamp.after.max.ms": _newest,
    "max.message.bytes": _message_bytes,
}
"""For those that rows go to."""


def judge_target(name: str, sink: KafkaSink, target: TopicFacts) -> Finding:
    """One setting of a topic that rows go to."""
    if target.settings is not None:
        return _OF_TARGETS[name](name, sink, target, target.settings)
    if target.topic is None and not target.is_hidden:
        return Finding(name, FINE, "no topic", "there is none to be judged")
    return not_known(name, sink.address, target)


TARGET: dict[str, Judge] = dict.fromkeys(_OF_TARGETS, judge_target)


def judge_topic(sink: KafkaSink, target: TopicFacts) -> list[Finding]:
    """Every setting of a topic that rows go to."""
    return [judge(name, sink, target) for name, judge in {**DURABILITY, **TARGET}.items()]
