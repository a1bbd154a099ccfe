"""Which topics the source reads: these, or all whose names a pattern matches. Spark matches by Java's rules, and the lookout by Python's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pakka.errors import ConfigError
from pakka.kafka_cluster import Cluster, Topic

_BOTH = "or name the topics in `topics`; a pattern may have what Java and Python read alike, as docs/reference/kafka-source.md has it"

_OPENS = re.compile(r"\[\^?\]?")
"""A bracket that closes nothing yet is a character."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The topics that the source reads: these, or all whose names match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def names_in(self, cluster: Cluster) -> tuple[str, ...]:
        if self.pattern is None:
            return self.names
        # As Spark does it: the whole name. What the two languages read differently is refused by `check_pattern`, as far as it is known
        # there, and else by the lookout, as soon as Spark names a topic that is not among these.
        whole = re.compile(self.pattern)
        return tuple(name for name in cluster.names() if whole.fullmatch(name))

    def of(self, cluster: Cluster) -> dict[str, Topic | None]:
        return cluster.topics(self.names_in(cluster))


def check_pattern(whose: str, pattern: str) -> None:
    """Refuse what only one of the two languages understands, and what means two things."""
    if (found := _in_class(pattern)) is not None:
        raise ConfigError(
            f"{whose}: pattern {pattern!r} has `{found}` inside of `[...]`, which Java reads as a class of its own, and Python as characters",
            hint=f"write `[a-pr-z]` for `[a-z&&[^q]]`, and `\\[` for the character, {_BOTH}",
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{whose}: pattern {pattern!r} is not a regular expression that Python reads too: {error}",
            hint=f"write it in another way, {_BOTH}",
        ) from error


def check_java(whose: str, spark: Any, pattern: str) -> None:
    """Refuse what Java does not understand, before the query asks for it."""
    from pyspark.errors import PySparkException

    try:
        spark._jvm.java.util.regex.Pattern.compile(pattern)
    except PySparkException as error:
        why = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{whose}: pattern {pattern!r} is not a regular expression of Java: {why}",
            hint=f"write it in another way, {_BOTH}",
        ) from error


def _in_class(pattern: str) -> str | None:
    """What stands in a class of characters and makes a class of several in Java: a union or an intersection."""
    at, is_inside = 0, False
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif not is_inside and (opened := _OPENS.match(pattern, at)):
            is_inside, at = True, opened.end() - 1
        elif is_inside and pattern[at] == "]":
            is_inside = False
        elif is_inside and (pattern[at] == "[" or pattern.startswith("&&", at)):
            return "[" if pattern[at] == "[" else "&&"
        at += 1
    return None
