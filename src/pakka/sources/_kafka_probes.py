"""Settings of the topics that a Kafka source reads by which records go before they are read, or others come in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pakka.contract.audit import Finding, Probe
from pakka.errors import RefusedError
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_error import told
from pakka.kafka_line import Address
from pakka.kafka_topic import Kept, TopicFacts, grant, judge_retention, judge_unclean, not_known
from pakka.probing import BREAKS, FINE, WARNS, Round, worst
from pakka.sources._kafka_lookout import WHOSE
from pakka.sources._kafka_topics import Wanted

_REUSED = "other ones may come to stand under offsets that were read already, and these are passed over"
_KEPT = Kept(
    "of every key only the newest record stays: what compaction takes before it is read is never seen, and an epoch that runs again before "
    "its decision may find fewer records",
    "a pipeline that is down longer than this, or further behind, loses what is gone by then: it stops, or refuses to start",
    "what is beyond goes however new it is: a pipeline that is down or behind for more bytes than that loses them: it stops, or refuses to start",
    "there is time to start a pipeline again",
)
Judge = Callable[[str, Address, TopicFacts], Finding]


def kafka_probes(address: Address, wanted: Wanted) -> Sequence[Probe]:
    """Every setting that matters to a source. Making the list does no I/O."""
    look_round = Round(lambda: _read(address, wanted))

    def probe(name: str, judge: Judge) -> Probe:
        return Probe(name, lambda: _of_all(name, judge, address, look_round.facts(name)))

    return (
        Probe("source topics", lambda: _source_topics(address, wanted, look_round.facts("source topics"))),
        *(probe(name, judge) for name, judge in _JUDGES.items()),
    )


def _read(address: Address, wanted: Wanted) -> tuple[TopicFacts, ...]:
    cluster = Cluster(address, WHOSE)
    with told(WHOSE, address, cluster.grievance, refusal=RefusedError):
        brokers = len(cluster.brokers)
        names = wanted.names_in(cluster)
        seen = cluster.visible(names)
        settings = cluster.settings_of(name for name, topic in seen.items() if topic is not None)
    return tuple(_facts(name, brokers, name not in seen, seen.get(name), settings.get(name)) for name in names)


def _facts(
    name: str, brokers: int, is_hidden: bool, topic: Topic | None, settings: dict[str, str] | None
) -> TopicFacts:
    return TopicFacts(name, brokers, topic, topic.replicas if topic is not None else None, settings, is_hidden)


def _source_topics(address: Address, wanted: Wanted, topics: Sequence[TopicFacts]) -> Finding:
    name = "source topics"
    if not topics:
        why = f"no topic matches the pattern `{wanted.pattern}`, or none that the user of `settings` may see: nothing is read until one does"
        return Finding(name, WARNS, "none", why, "a pattern must match the whole name of a topic; see that it does")
    return worst([_there(name, address, topic) for topic in topics])


def _there(name: str, address: Address, topic: TopicFacts) -> Finding:
    if topic.is_hidden:
        why = "the user of `settings` may not see it"
        return Finding(name, BREAKS, f"{topic.name} is hidden", why, grant(address, "READ", topic.name))
    if topic.topic is None:
        fix = f"kafka-topics.sh --bootstrap-server {address.servers} --create --topic {topic.name}; or see that its name is right"
        return Finding(
            name, BREAKS, f"no topic {topic.name}", "there is nothing to read, and a run refuses to start", fix
        )
    # Brokers that name no operation do not tell.
    if topic.topic.operations and "READ" not in topic.topic.operations:
        why = "the user of `settings` may see it, and not read it"
        return Finding(name, BREAKS, f"no READ on {topic.name}", why, grant(address, "READ", topic.name))
    return Finding(name, FINE, "there", "and may be read")


def _of_all(name: str, judge: Judge, address: Address, topics: Sequence[TopicFacts]) -> Finding:
    """The worst. What is not there is told by another probe."""
    judged = [(topic, judge(name, address, topic)) for topic in topics if topic.topic is not None]
    if not judged:
        return Finding(name, FINE, "no topic", "there is none to be judged")
    found = worst(finding for _, finding in judged)
    of = next(topic.name for topic, finding in judged if finding is found)
    return found if found.severity is FINE or of in found.value else replace(found, value=f"{found.value} of {of}")


def _copies(name: str, address: Address, topic: TopicFacts) -> Finding:
    if (topic.replicas or 0) > 1:
        return Finding(name, FINE, str(topic.replicas), "what one broker loses, another one has")
    is_single = topic.brokers == 1
    where = "the cluster has one broker" if is_single else "it is on one broker"
    why = f"{where}, which does not wait for its disk: with its machine go records that nobody has read, and {_REUSED}"
    reassign = (
        f"kafka-reassign-partitions.sh --bootstrap-server {address.servers} --execute, with 3 replicas of {topic.name}"
    )
    fix = "run three brokers or more, and have three replicas of every topic" if is_single else reassign
    return Finding(name, WARNS, f"{topic.replicas} of {topic.name}", why, fix)


def _unclean(name: str, address: Address, topic: TopicFacts) -> Finding:
    why = f"a replica that is behind may lead: records vanish that nobody has read, and {_REUSED}"
    return judge_unclean(name, address, topic, why)


def _retention(name: str, address: Address, topic: TopicFacts) -> Finding:
    if topic.settings is None:
        return not_known(name, address, topic)
    return judge_retention(name, address, topic, topic.settings, _KEPT)


_JUDGES: dict[str, Judge] = {
    "replication factor": _copies,
    "unclean.leader.election.enable": _unclean,
    "retention": _retention,
}
