"""Settings of a Kafka cluster, of the topic that rows go to and of the ledger topics that weaken what the sink promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pakka.contract.audit import Finding, Probe, Took
from pakka.kafka_topic import TopicFacts, alter, configs, grant, not_known
from pakka.kafka_transactions import CannotAskError, Desk, Holder, Listed, desk
from pakka.model.id import Binding
from pakka.probing import BREAKS, FINE, WARNS, Round, age, worst
from pakka.sinks import _kafka_position, _kafka_rights, _kafka_timeout
from pakka.sinks._kafka_facts import Facts, read_facts
from pakka.sinks._kafka_judge import DURABILITY, TARGET
from pakka.sinks._kafka_judge import Judge as TopicJudge
from pakka.sinks._kafka_produce import REQUEST_BYTES

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink

OLDEST = (3, 0)
"""The first Kafka whose coordinators tell which transactions there are, and what became of them."""
OPEN_S = 60.0
"""Readers that wait longer than this for a transaction of somebody wait for one that was forgotten, or for a large one."""
_AROUND_BYTES = 64 << 10
"""Of a request, beside its batches."""
Judge = Callable[["KafkaSink", Facts], Finding]


@dataclass(frozen=True)
class PlacedSink:
    """A Kafka sink in its place, whose ledger and transactional id are known by name."""

    sink: KafkaSink
    binding: Binding
    took: Callable[[], Took] = Took
    position: Callable[[], str] = str

    def probes(self) -> Sequence[Probe]:
        return kafka_probes(self.sink, self.binding, self.took, self.position)


def kafka_probes(
    sink: KafkaSink,
    binding: Binding | None = None,
    took: Callable[[], Took] = Took,
    position: Callable[[], str] = str,
) -> Sequence[Probe]:
    """Every setting that matters for this sink. Making the list does no I/O."""
    look_round = Round(lambda: read_facts(sink, binding))

    def probe(name: str, judge: Judge) -> Probe:
        return Probe(name, lambda: judge(sink, look_round.facts(name)))

    return (
        Probe("server version", lambda: _server_version(sink), is_cheap=False),
        probe("rights", _kafka_rights.judge),
        Probe("group of the source", lambda: _kafka_position.judge(sink, binding, position())),
        probe("target topic", _target_topic),
        *(probe(name, partial(_of_each, name, judge)) for name, judge in DURABILITY.items()),
        probe("transaction log", _transaction_log),
        probe(_kafka_timeout.NAME, lambda sink, facts: _kafka_timeout.judge(sink, facts, took())),
        probe("transaction.partition.verification.enable", _verification),
        probe("socket.request.max.bytes", _request_bytes),
        probe("ledger topic", _ledger_topic),
        *(probe(name, partial(_of_targets, name, judge)) for name, judge in TARGET.items()),
        probe("open transactions", _open_transactions),
    )


def _server_version(sink: KafkaSink) -> Finding:
    name, oldest = "server version", ".".join(map(str, OLDEST))
    try:
        with desk(sink.address) as there:
            version, level = there.version(), there.transaction_version()
    except CannotAskError as error:
        return Finding(name, FINE, "not known", f"{error}; the sink itself says if the brokers are too old")
    if tuple(map(int, version.split("."))) < OLDEST:
        why = "what became of a transaction whose end was not answered, an older Kafka does not tell: the sink asks, and is refused"
        return Finding(name, BREAKS, version, why, f"use Kafka {oldest} or newer")
    value = version if level is None else f"{version}, transaction.version {level}"
    return Finding(name, FINE, value, "the sink ends transactions as protocol 1 has it, which these brokers know")


def _target_topic(sink: KafkaSink, facts: Facts) -> Finding:
    name = "target topic"
    if not sink.topic:
        return _named_topics(name, sink, facts)
    (target,) = facts.targets
    if target.topic is not None:
        return Finding(name, FINE, f"{len(target.topic.partitions)} partitions", "it is there")
    if target.is_hidden:
        return Finding(
            name, BREAKS, "hidden", "the user of `settings` may not see it", grant(sink.address, "WRITE", target.name)
        )
    if target.trouble:
        why = f"pakka cannot make it: {target.trouble}"
        return Finding(name, BREAKS, "no topic yet", why, "change `partitions` and `replication`, or make it yourself")
    if sink.create:
        return Finding(name, FINE, "no topic yet", "pakka makes it when the first rows come")
    why = "there is no such topic, and `create: false` forbids to make it"
    fix = f"kafka-topics.sh --bootstrap-server {sink.servers} --create --topic {target.name}; or `create: true`"
    return Finding(name, BREAKS, "no topic", why, fix)


def _named_topics(name: str, sink: KafkaSink, facts: Facts) -> Finding:
    new = "is judged when its first row comes, before that epoch is decided"
    if facts.targets:
        value = f"{len(facts.targets)} that rows have named"
        return Finding(name, FINE, value, f"the ledger has them from earlier epochs; one that it does not have {new}")
    why = f"column `{sink.topic_column}` names the topics, and none is known here; each {new}"
    return Finding(name, WARNS, "not known", why, f"pakka audit kafka://{sink.servers}/TOPIC, for each of them")


def _transaction_log(sink: KafkaSink, facts: Facts) -> Finding:
    """Its own three settings, judged as those of any topic: it is where the end of a transaction becomes durable."""
    name = "transaction log"
    if facts.log.replicas is None:
        return not_known(name, sink.address, facts.log)
    judged = {of: judge(of, sink, facts.log) for of, judge in DURABILITY.items()}
    found = worst(judged.values())
    if found.severity is FINE:
        in_sync = judged["min.insync.replicas"].value.split()[0]
        value = f"{facts.log.replicas} replicas, {in_sync} in sync"
        return Finding(name, FINE, value, "that a transaction was ended is on more than one broker before it is told")
    return Finding(name, found.severity, f"{found.name} {found.value}", found.why, found.fix)


def _verification(sink: KafkaSink, facts: Facts) -> Finding:
    name = "transaction.partition.verification.enable"
    if facts.settings is None:
        why = "the user of `settings` may not read the settings of brokers"
        return Finding(name, WARNS, "not known", why, grant(sink.address, "DESCRIBE_CONFIGS"))
    value = facts.settings.get(name)
    if value is None:
        return Finding(name, FINE, "no such setting", "these brokers are older than it")
    if value == "true":
        return Finding(name, FINE, "true", "a record that comes late does not open a transaction that nobody ends")
    why = "a record that comes after the end of its transaction opens one that nobody ends, and readers wait for ever"
    fix = f"{configs(sink.address)} --entity-type brokers --entity-default --add-config {name}=true"
    return Finding(name, WARNS, value, why, fix)


def _request_bytes(sink: KafkaSink, facts: Facts) -> Finding:
    name = "socket.request.max.bytes"
    if facts.settings is None:
        why = "the user of `settings` may not read the settings of brokers"
        return Finding(name, WARNS, "not known", why, grant(sink.address, "DESCRIBE_CONFIGS"))
    most = int(facts.settings[name])
    batches = [int((topic.settings or {}).get("max.message.bytes", 0)) for topic in facts.targets]
    wanted = max([REQUEST_BYTES, *batches]) + _AROUND_BYTES
    if most >= wanted:
        return Finding(
            name, FINE, str(most), "a broker takes as much at once as the sink sends, and as its topics take"
        )
    why = f"the sink may send {wanted} at once, after the decision, and a broker ends the line at that, each time it is tried"
    return Finding(
        name, BREAKS, str(most), why, f"set {name}={wanted} in server.properties of all brokers, and start them again"
    )


def _ledger_topic(sink: KafkaSink, facts: Facts) -> Finding:
    name = "ledger topic"
    if not facts.ledgers:
        return Finding(name, FINE, "none yet", "pakka makes it, compacted, of one partition")
    return worst([_ledger(name, sink, ledger) for ledger in facts.ledgers])


def _ledger(name: str, sink: KafkaSink, ledger: TopicFacts) -> Finding:
    if ledger.trouble:
        why = f"pakka cannot make {ledger.name}: {ledger.trouble}"
        return Finding(name, BREAKS, "none yet", why, "make it yourself: compacted, of one partition")
    if ledger.is_to_make:
        return Finding(name, FINE, "none yet", "pakka makes it, compacted, of one partition")
    partitions = len(ledger.topic.partitions) if ledger.topic is not None else 1
    if partitions != 1:
        why = "a ledger has one end: in several partitions there is no newest record, and the sink refuses it"
        fix = "make it anew if it is empty, or name another prefix in `ledger`"
        return Finding(name, BREAKS, f"{partitions} partitions of {ledger.name}", why, fix)
    if ledger.settings is None:
        return not_known(name, sink.address, ledger)
    policy = ledger.settings["cleanup.policy"]
    if policy != "compact":
        kept = age(int(ledger.settings.get("retention.ms", -1)) / 1000)
        why = f"after {kept} the ledger forgets: a fence and an epoch that are gone are refused no more, and rows come twice"
        return Finding(
            name, BREAKS, f"{policy} of {ledger.name}", why, alter(sink.address, ledger, "cleanup.policy=compact")
        )
    return Finding(name, FINE, f"compact, {ledger.name}", "its newest record is kept for ever")


def _of_targets(name: str, judge: TopicJudge, sink: KafkaSink, facts: Facts) -> Finding:
    """A setting of the topics that rows go to, the worst. That none is known is told once, by another probe."""
    judged = [(target, judge(name, sink, target)) for target in facts.targets]
    if not judged:
        return Finding(name, FINE, "not known", "rows name their topics")
    found = worst(finding for _, finding in judged)
    (of, *_) = [target.name for target, finding in judged if finding is found]
    # Of several topics, whose it is.
    return found if sink.topic else replace(found, value=f"{found.value} of {of}")


def _open_transactions(sink: KafkaSink, facts: Facts) -> Finding:
    name = "open transactions"
    old = [lag for lag in facts.held if lag.open_s is None or lag.open_s >= OPEN_S]
    if not old:
        return Finding(name, FINE, "none for long", "readers of committed records come up to the end")
    oldest = max(old, key=lambda lag: lag.open_s or 0)
    since = "a time that is not known" if oldest.open_s is None else age(oldest.open_s)
    value = f"partition {oldest.partition} of {oldest.topic} for {since}"
    where = f"--topic {oldest.topic} --partition {oldest.partition}"
    tool = f"kafka-transactions.sh --bootstrap-server {sink.servers}"
    why = f"nobody sees {oldest.held} records above it, whoever wrote them, until that transaction is ended"
    try:
        with desk(sink.address) as there:
            holder, of = _holder(there, (oldest.topic, oldest.partition))
    except CannotAskError:
        return Finding(name, WARNS, value, why, f"{tool} describe-producers {where}")
    value = f"{value}, of producer {holder.producer_id}"
    if of is None:
        # It may be an id that this user may not see: to abort what its program is about to commit would lose rows.
        why += "; no coordinator tells this user of it, so it may be at work, or hang for ever"
        return Finding(
            name, WARNS, value, why, f"{tool} find-hanging {where}, as a user who may see every transactional id"
        )
    value = f"{value}, transactional id {of.id}"
    if not of.is_over:
        return Finding(name, WARNS, value, why, f"{tool} describe --transactional-id {of.id}")
    why += f"; its coordinator has ended it ({_ENDED[of.is_commit]}) and will not do so again"
    if of.id.startswith(f"{sink.ledger}."):
        fix = "run its pipeline, which ends it as it was decided; to abort it by hand may lose rows that are committed"
    else:
        # Also of a last one that was aborted: what hangs may be an older one under the same id.
        fix = (
            f"save its records from offset {holder.offset} on, with a reader of read_uncommitted, unless its program is known to send them "
            f"again; then {tool} abort {where} --start-offset {holder.offset}, which takes them from readers for ever"
        )
    return Finding(name, WARNS, value, why, fix)


_ENDED = {True: "its last one was a commit", False: "its last one was an abort", None: "how is not known any more"}


def _holder(there: Desk, place: tuple[str, int]) -> tuple[Holder, Listed | None]:
    """The oldest open transaction of a partition, and what its coordinator says of it; None if there is none that says something."""
    holder = there.holders([place]).get(place)
    told = [each for each in there.listed() if holder is not None and each.producer_id == holder.producer_id]
    # Open before and after: whatever the coordinator says was said of this very transaction.
    if holder is None or there.holders([place]).get(place) != holder:
        raise CannotAskError("it has been ended meanwhile")
    return holder, told[0] if told else None


def _of_each(name: str, judge: TopicJudge, sink: KafkaSink, facts: Facts) -> Finding:
    """The worst of the targets and the ledgers; topics that are not there and cannot be judged are passed over."""
    judged = [judge(name, sink, t) for t in facts.topics if t.topic is not None or t.settings is not None]
    return worst(judged) if judged else Finding(name, FINE, "no topic yet", "there is none to be judged")
