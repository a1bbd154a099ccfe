"""What a cluster knows of the other side. Of a consumer group it does not know `isolation.level`; but one that has gone further than
what is committed reaches has read what is not. And it knows which transactional ids there have been.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pakka.contract.audit import Finding, Severity
from pakka.errors import UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.kafka_error import told
from pakka.kafka_line import Address
from pakka.kafka_transactions import CannotAskError, Desk, desk

MANY = 10
"""So many transactional ids of one form are more than a program has that comes back under its own."""

_VARIABLE = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)
_OF_AN_AUDIT = re.compile(r"\.audit\.\w+\.audit-")


def findings_of(servers: str, settings: Mapping[str, str], groups: Sequence[str]) -> list[Finding]:
    """Judge each of these groups, and the transactional ids of their cluster."""
    address = Address.parse("--servers", servers, settings)
    cluster = Cluster(address, "--servers")
    with told("--servers", address, cluster.grievance):
        topics = frozenset(cluster.names())
    try:
        with desk(address) as there:
            known = there.groups()
            return [
                *(_group(group, cluster, there, topics) if group in known else _no_group(group) for group in groups),
                _ids(there),
            ]
    except CannotAskError as error:
        raise UnavailableError(
            f"{address}: the coordinators cannot be asked: {address.scrub(str(error))}; nothing was changed",
            hint="see that the user may DESCRIBE groups and transactional ids",
        ) from error


def _no_group(group: str) -> Finding:
    why = "there is no such group, or this user may not see it"
    return Finding(
        f"isolation.level of {group}", Severity.WARNS, "no group", why, "see the name: kafka-consumer-groups.sh --list"
    )


def _group(group: str, cluster: Cluster, there: Desk, topics: frozenset[str]) -> Finding:
    name = f"isolation.level of {group}"
    # A group remembers topics that are gone.
    reached = {place: offset for place, offset in there.reached(group).items() if place[0] in topics}
    partitions: dict[str, list[int]] = defaultdict(list)
    for topic, partition in reached:
        partitions[topic].append(partition)
    # In this order: what is committed meanwhile does not make a reader look further than it was.
    with told(name, cluster.address, cluster.grievance):
        stable = {
            (topic, p): end
            for topic, ps in partitions.items()
            for p, end in cluster.end_offsets(topic, ps, is_committed=True).items()
        }
    ahead = [place for place, offset in reached.items() if offset > stable[place]]
    if ahead:
        topic, partition = ahead[0]
        value = f"read_uncommitted: at offset {reached[ahead[0]]} of partition {partition} of {topic}"
        why = f"what is committed ends at {stable[ahead[0]]}, so it has read records that may yet be aborted"
        return Finding(name, Severity.BREAKS, value, why, "isolation.level=read_committed in its settings")
    why = (
        "a broker does not know it, nor whether offsets are committed by the clock; the group has not been seen to read further than "
        "what is committed"
    )
    return Finding(
        name, Severity.WARNS, "not known", why, "pakka audit --consumers FILE, with the group's settings file"
    )


def _ids(there: Desk) -> Finding:
    name = "transactional ids"
    forms: dict[str, list[str]] = defaultdict(list)
    for listed in there.listed():
        if not _OF_AN_AUDIT.search(listed.id):
            forms[_VARIABLE.sub("*", listed.id)].append(listed.id)
    many = {form: ids for form, ids in forms.items() if len(ids) >= MANY and not _are_parts(ids)}
    if not many:
        value, why = str(sum(map(len, forms.values()))), "no program was seen to take a new one at each start"
        return Finding(name, Severity.FINE, value, why)
    form, ids = max(many.items(), key=lambda entry: len(entry[1]))
    why = (
        "many ids of one form: if each is of one process, a new process does not shut out the one before it, and its open transaction "
        "holds readers back; right only for programs that end the old ones themselves, such as Kafka Streams and Flink"
    )
    fix = f"give each part of that program an id for ever; one is {ids[0]}"
    return Finding(name, Severity.WARNS, f"{len(ids)} like {form}", why, fix)


def _are_parts(ids: Sequence[str]) -> bool:
    """Whether what differs between ids of one form are numbers without gaps: parts of a program, counted, as pakka's slots are."""
    for values in map(set, zip(*(_VARIABLE.findall(id) for id in ids), strict=True)):
        if len(values) > 1 and not all(value.isdigit() and int(value) <= len(values) for value in values):
            return False
    return True
