"""The other side: consumers that read what pakka writes, and producers beside it, that are set up against the guarantee.

What a program has set is in its own file. A broker knows little of it: see `consumer_group`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic

from pakka import registry
from pakka.audit.client_file import SUFFIXES, plain_name, read_client_file
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
    where = [f"kafka://{servers}"] if servers else []
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
    judged: list[Finding] = []
    if is_consumer:
        judged += [_isolation(given), _auto_commit(given), _reset(given)]
    if is_producer:
        judged += [_idempotence(given), _acks(given), _in_flight(given), _transactional_id(given)]
    for finding in judged:
        yield Finding(f"{finding.name} in {path}", finding.severity, finding.value, finding.why, finding.fix)


def _has(given: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(_get(given, name) is not None for name in names)


def _get(given: Mapping[str, str], name: str) -> str | None:
    """A setting by Kafka's name for it, whatever stands before it in the file."""
    for key, value in given.items():
        if key == name or key.endswith(f".{name}"):
            return value
    return None


def _isolation(given: Mapping[str, str]) -> Finding:
    name, fix = "isolation.level", "isolation.level=read_committed"
    value = _get(given, name)
    if value is not None and plain_name(value) == "read.committed":
        return Finding(name, FINE, value, "it sees what is committed, and nothing else")
    why = "it sees records of epochs that are not committed and may be aborted, and then the same rows again"
    if value is not None:
        return Finding(name, BREAKS, value, why, fix)
    if _has(given, _LIBRDKAFKA):
        return Finding(name, FINE, "not set", "librdkafka, whose settings these are, reads what is committed")
    return Finding(name, BREAKS, "not set, which is read_uncommitted", f"but for clients of librdkafka: {why}", fix)


def _auto_commit(given: Mapping[str, str]) -> Finding:
    name, value = "enable.auto.commit", _get(given, "enable.auto.commit")
    if value == "false":
        return Finding(name, FINE, value, "offsets are committed when the program says that its work is done")
    why = "offsets are committed by the clock: after a crash records that were not worked on are passed over, or come twice"
    return Finding(
        name, BREAKS, value or "not set, which is true", why, f"{name}=false, and commit offsets with the result"
    )


def _reset(given: Mapping[str, str]) -> Finding:
    name, value = "auto.offset.reset", _get(given, "auto.offset.reset")
    if value in ("earliest", "smallest", "beginning", "none", "error"):
        return Finding(name, FINE, value, "a group whose offsets are gone passes over nothing in silence")
    why = (
        "a group that is new, or whose offsets have expired, begins at the end: what was committed before is never read"
    )
    return Finding(name, WARNS, value or "not set, which is latest", why, f"{name}=none, or earliest")


def _idempotence(given: Mapping[str, str]) -> Finding:
    name, value = "enable.idempotence", _get(given, "enable.idempotence")
    if value == "true" or (value is None and _get(given, "transactional.id")):
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


def _acks(given: Mapping[str, str]) -> Finding:
    name, value = "acks", _get(given, "acks")
    if value in (None, "all", "-1"):
        return Finding(name, FINE, value or "not set, which is all", "a record is on all replicas in sync")
    why = "a record is acknowledged before other brokers have it: it is lost with one of them, and idempotence is off or refused"
    return Finding(name, BREAKS, value, why, "acks=all")


def _in_flight(given: Mapping[str, str]) -> Finding:
    name = "max.in.flight.requests.per.connection"
    value = _get(given, name) or _get(given, "max.in.flight")
    if value is None or (value.isdigit() and int(value) <= 5):
        return Finding(
            name, FINE, value or "not set", "a broker keeps the order of five, and knows them if they come again"
        )
    why = "a broker remembers the last five requests: with more on the way a repetition is not known, and the order is lost"
    return Finding(name, BREAKS, value, why, f"{name}=5")


def _transactional_id(given: Mapping[str, str]) -> Finding:
    name, value = "transactional.id", _get(given, "transactional.id") or _get(given, "transaction.id.prefix")
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
