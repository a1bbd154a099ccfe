"""Offsets by topic and partition: as Spark writes them, and as `start` names them. Are those places at all, and ones that the topics have?"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pakka.errors import ConfigError

Offsets = dict[str, dict[int, int]]


def offsets_of(text: str) -> Offsets:
    """Spark's own form: `{"topic": {"partition": offset}}`."""
    return {str(t): {int(p): int(o) for p, o in parts.items()} for t, parts in json.loads(text).items()}


def position_at(cluster: str, group: str, offsets: Offsets) -> str:
    """Where a source stands, in words that a sink may know."""
    reached = {topic: {str(p): o for p, o in parts.items()} for topic, parts in offsets.items()}
    where = {"cluster": cluster, "group": group, "offsets": reached}
    return json.dumps({"kafka": where}, sort_keys=True, separators=(",", ":"))


def offsets_in(position: str) -> Offsets:
    """The offsets in what `position_at` has told; none if it is empty, or another source's."""
    where = json.loads(position).get("kafka", {}) if position else {}
    return offsets_of(json.dumps(where.get("offsets", {})))


def spelt(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{o} in partition {p}" for p, o in sorted(offsets.items())) or "nothing"


def named(whose: str, start: str | Mapping[str, Mapping[str, int]]) -> Offsets | None:
    """The offsets that `start` names, and all other partitions begin at their earliest; None if it names none, and they do not."""
    if isinstance(start, str):
        return {} if start == "earliest" else None
    for topic, offsets in start.items():
        for partition, offset in offsets.items():
            if not str(partition).isdecimal():
                raise ConfigError(
                    f"{whose}: `start` names partition `{partition}` of topic `{topic}`, which is no number",
                    hint='write it as `{settlements: {"0": 90210}}`',
                )
            # Spark takes -1 for the end, and -2 for the beginning.
            if not _is_offset(offset):
                raise ConfigError(
                    f"{whose}: `start` names offset {offset!r} of topic `{topic}` partition {partition}; an offset is a whole number from 0 on",
                    hint="leave the partition out to begin at its earliest, or write `start: latest` to begin at the end of all",
                )
    return {topic: {int(p): offset for p, offset in offsets.items()} for topic, offsets in start.items()}


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def misfit(
    topic: str, named: Mapping[int, int], firsts: Mapping[int, int], ends: Mapping[int, int], wholes: Mapping[int, int]
) -> str:
    """What is wrong with the offsets that `start` names of a topic; empty if nothing is. `ends` is how far committed records go, and
    `wholes` how far those of open transactions do.
    """
    for partition, offset in sorted(named.items()):
        first, end = firsts[partition], ends[partition]
        if first <= offset <= end:
            continue
        held = ""
        if end < offset <= wholes[partition]:
            held = f", and up to {wholes[partition]} behind a transaction that is still open"
        return (
            f"`start` says offset {offset} of topic `{topic}` partition {partition}, which has offsets from {first} on, and the next one is "
            f"{end}{held}"
        )
    return ""


def moved(topic: str, named: Mapping[int, int], begun: Mapping[int, int], firsts: Mapping[int, int]) -> str:
    """Where `start` has another place of a topic than the one that Spark has noted; empty if nowhere."""
    for partition, first in sorted(firsts.items()):
        offset, at = named.get(partition), begun.get(partition)
        if offset is None and (at is None or at <= first):
            # What retention has taken since is not what `start` says.
            continue
        if offset != at:
            says = f"offset {offset}" if offset is not None else f"the earliest, which is {first},"
            place = "does not know it yet" if at is None else f"begins at {at}"
            return f"`start` says {says} of topic `{topic}` partition {partition}, and the checkpoint, of which nothing is delivered, {place}"
    return ""
