"""The other side: consumers that read what pakka writes, and producers beside it, that are set up against the guarantee.

What a program has set is in its own file. A broker knows little of it: see `consumer_group`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from pakka import registry
from pakka.audit.client_file import KAFKAJS, SUFFIXES, plain_name, read_client_file
from pakka.audit.report import Lint
from pakka.audit.run import versions
from pakka.contract.audit import Finding, Severity
from pakka.errors import ConfigError, UsageError
from pakka.registry import Role

FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS
_CONSUMER = (
    "group.id",
    "isolation.level",
    "enable.auto.commit",
    "auto.offset.reset",
    "max.poll.records",
    "deserializer",
)
_PRODUCER = (
    "transactional.id",
    "transaction.id.prefix",
    "enable.idempotence",
    "acks",
    "linger.ms",
    "batch.size",
    "compression.type",
    "serializer",
)
_LIBRDKAFKA = (
    "metadata.broker.list",
    "enable.partition.eof",
    "enable.auto.offset.store",
    "queued.min.messages",
    "queue.buffering.max.messages",
    "statistics.interval.ms",
    "sasl.username",
    "sasl.mechanisms",
    "ssl.ca.location",
    "go.delivery.reports",
)
"""Settings that only librdkafka has. Its clients read what is committed unless they are told otherwise."""
_IN_KAFKAJS = {
    "isolation.level": "readUncommitted: false",
    "enable.auto.commit": "autoCommit: false, and commit offsets with the result",
    "auto.offset.reset": "fromBeginning: true",
    "enable.idempotence": "idempotent: true",
    "max.in.flight.requests.per.connection": "maxInFlightRequests: 5",
}
"""What mends a setting in the words of kafkajs, which does not know Kafka's."""
_OF_A_PROCESS = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
    r"|uuid|random|host.?name|\bhost\b|pod.?(name|ip|uid)|\bpid\b|\$\$|process.?id|timestamp|\$\(|currenttime",
    re.IGNORECASE,
)


def lint(subjects: Sequence[str], servers: str | None, way_in: str | None) -> Lint:
    """Judge settings files, groups of a cluster, and the cluster's transactional ids.

    `way_in` is a file with librdkafka's settings for the cluster, as `--command-config` of Kafka's own tools is.
    """
    began = monotonic()
    files = [Path(subject) for subject in subjects if _is_file(subject)]
    groups = [subject for subject in subjects if not _is_file(subject)]
    if groups and servers is None:
        raise UsageError(
            f"`{groups[0]}` is no file, and taken for a consumer group: its cluster is needed",
            hint="add `--servers HOST:PORT`, or name a settings file",
        )
    if not subjects and servers is None:
        raise UsageError(
            "`--consumers` needs something to look at", hint="name groups with `--servers HOST:PORT`, or settings files"
        )
    findings = [finding for path in files for finding in _of_file(path)]
    if servers is not None:
        # Files are read without Kafka's libraries. If they are missing here, it says how to get them.
        registry.find(Role.SINK, "kafka")
        from pakka.audit.consumer_group import findings_of

        findings += findings_of(servers, read_client_file(Path(way_in)) if way_in else {}, groups)
    where = [f"kafka://{servers.replace('kafka://', '')}"] if servers else []
    return Lint(
        ", ".join([*map(str, files), *groups] or where), "consumers", tuple(findings), versions(), monotonic() - began
    )


def _is_file(subject: str) -> bool:
    return subject.endswith(SUFFIXES) or "/" in subject or Path(subject).is_file()


def _of_file(path: Path) -> Iterator[Finding]:
    given = read_client_file(path)
    is_consumer, is_producer = _has(given, _CONSUMER), _has(given, _PRODUCER)
    if not is_consumer and not is_producer:
        raise ConfigError(
            f"{path} has nothing of a Kafka consumer or producer",
            hint="name its settings file: properties, JSON, YAML or NAME=VALUE, with settings such as `group.id` or `acks`",
        )
    judges = {**(_OF_CONSUMERS if is_consumer else {}), **(_OF_PRODUCERS if is_producer else {})}
    for name, judge in judges.items():
        finding = _worst(given, name, judge)
        fix = _IN_KAFKAJS.get(name, finding.fix) if finding.fix and _is_kafkajs(given) else finding.fix
        yield replace(finding, name=f"{name} in {path}", fix=fix)


def _worst(given: Mapping[str, str], name: str, judge: Judge) -> Finding:
    """A file may hold several clients. Of those that have the setting, the worst is told, and where it stands."""
    found = _found(given, name, *_ALSO.get(name, ()))
    if not found:
        return judge(name, None, given)
    judged = [(key, judge(name, value, given)) for key, value in found.items()]
    key, worst = max(judged, key=lambda each: (FINE, WARNS, BREAKS).index(each[1].severity))
    return worst if len(found) == 1 else replace(worst, value=f"{worst.value} of {key.replace(KAFKAJS, '')}")


def _has(given: Mapping[str, str], names: Iterable[str]) -> bool:
    return bool(_found(given, *names))


def _found(given: Mapping[str, str], *names: str) -> dict[str, str]:
    """Settings by Kafka's names for them, whatever stands before these in the file."""
    ends = tuple(f".{name}" for name in names)
    return {key: value for key, value in given.items() if f".{key}".endswith(ends)}


def _is_kafkajs(given: Mapping[str, str]) -> bool:
    return any(KAFKAJS in key for key in given)


def _isolation(name: str, value: str | None, given: Mapping[str, str]) -> Finding:
    fix = f"{name}=read_committed"
    if value is not None and plain_name(value) == "read.committed":
        return Finding(name, FINE, value, "it sees what is committed, and nothing else")
    why = "it sees records of epochs that are not committed and may be aborted, and then the same rows again"
    if value is not None:
        return Finding(name, BREAKS, value, why, fix)
    if _is_kafkajs(given) or _has(given, _LIBRDKAFKA):
        client = "kafkajs" if _is_kafkajs(given) else "librdkafka"
        return Finding(name, FINE, "not set", f"{client}, whose settings these are, reads what is committed")
    value = "not set, which is read_uncommitted"
    return Finding(name, BREAKS, value, f"but for clients of librdkafka and kafkajs: {why}", fix)


def _auto_commit(name: str, value: str | None, _: Mapping[str, str]) -> Finding:
    if value is not None and value.lower() == "false":
        return Finding(name, FINE, value, "offsets are committed when the program says that its work is done")
    why = "offsets are committed by the clock: after a crash records that were not worked on are passed over, or come twice"
    return Finding(
        name, BREAKS, value or "not set, which is true", why, f"{name}=false, and commit offsets with the result"
    )


def _reset(name: str, value: str | None, _: Mapping[str, str]) -> Finding:
    if value is not None and value.lower() in ("earliest", "smallest", "beginning", "none", "error"):
        return Finding(name, FINE, value, "a group whose offsets are gone passes over nothing in silence")
    why = (
        "a group that is new, or whose offsets have expired, begins at the end: what was committed before is never read"
    )
    return Finding(name, WARNS, value or "not set, which is latest", why, f"{name}=none, or earliest")


def _idempotence(name: str, value: str | None, given: Mapping[str, str]) -> Finding:
    has_id = any(_found(given, "transactional.id", *_ALSO["transactional.id"]).values())
    if has_id if value is None else value.lower() == "true":
        return Finding(name, FINE, value or "by the transaction", "a record that is sent again is written once")
    why = "a record whose acknowledgement was lost is sent again, and is there twice"
    if value is None:
        return Finding(
            name,
            WARNS,
            "not set",
            f"it depends on the client (Java's have it since 3.0); without it {why}",
            f"{name}=true",
        )
    return Finding(name, BREAKS, value, why, f"{name}=true")


def _acks(name: str, value: str | None, _: Mapping[str, str]) -> Finding:
    if value is None or value.lower() in ("all", "-1"):
        return Finding(name, FINE, value or "not set, which is all", "a record is on all replicas in sync")
    why = "a record is acknowledged before other brokers have it: it is lost with one of them, and idempotence is off or refused"
    return Finding(name, BREAKS, value, why, f"{name}=all")


def _in_flight(name: str, value: str | None, _: Mapping[str, str]) -> Finding:
    if not value or (value.isdigit() and int(value) <= 5):
        return Finding(
            name, FINE, value or "not set", "a broker keeps the order of five, and knows them if they come again"
        )
    why = "a broker remembers the last five requests: with more on the way a repetition is not known, and the order is lost"
    return Finding(name, BREAKS, value, why, f"{name}=5")


def _transactional_id(name: str, value: str | None, _: Mapping[str, str]) -> Finding:
    if not value:
        return Finding(name, FINE, "none", "it writes without transactions, each record by itself")
    here = socket.gethostname()
    if _OF_A_PROCESS.search(value) or (len(here) > 3 and here in value):
        why = (
            "each process has an id of its own: a new one does not shut out the one before it, whose open transaction holds readers back "
            "until it expires, and which may still commit when it wakes up"
        )
        return Finding(
            name, BREAKS, value, why, f"{name}=a name that the program has for ever, one for each of its parts"
        )
    return Finding(name, FINE, value, "who starts again under it shuts out the one before")


Judge = Callable[[str, str | None, Mapping[str, str]], Finding]
"""The setting, what it is set to, if it is, and the whole file."""
_OF_CONSUMERS: dict[str, Judge] = {
    "isolation.level": _isolation,
    "enable.auto.commit": _auto_commit,
    "auto.offset.reset": _reset,
}
_OF_PRODUCERS: dict[str, Judge] = {
    "enable.idempotence": _idempotence,
    "acks": _acks,
    "max.in.flight.requests.per.connection": _in_flight,
    "transactional.id": _transactional_id,
}
_ALSO = {
    "max.in.flight.requests.per.connection": ("max.in.flight",),
    "transactional.id": ("transaction.id.prefix",),
}
"""Other names of a setting: of librdkafka, and of Spring."""
