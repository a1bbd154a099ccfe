"""What Spark says of Kafka when a query fails, found in its errors."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DENIED = re.compile(r"TopicAuthorizationException: (.*)")
_MISTIMED = re.compile(r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+)")
_LOSS = re.compile(r"KAFKA_DATA_LOSS|[Ss]ome data may have been (lost|missed)|OffsetOutOfRange")
_DEEP = 10
"""Of so many errors, each the cause of the one before, the last ones say nothing of records."""


@dataclass(frozen=True, slots=True)
class Mistimed:
    """A record whose time Spark cannot make one of its own of."""

    topic: str
    partition: int
    offset: int
    ms: str


def denied(error: BaseException) -> str:
    """What Spark is not let do; empty if that is not it."""
    found = _DENIED.search(str(error))
    return found[1].strip() if found else ""


def mistimed(error: BaseException) -> Mistimed | None:
    """Of a task that failed, our own error keeps only the last cause, which does not name the record."""
    said: list[str] = []
    at: BaseException | None = error
    while at is not None and len(said) < _DEEP:
        said.append(str(at))
        at = at.__cause__ or at.__context__
    found = _MISTIMED.search("\n".join(said))
    return Mistimed(found[1], int(found[2]), int(found[3]), found[4]) if found else None


def lost(error: BaseException) -> str:
    """The line that says that records are gone; empty if none does."""
    found = [line.strip() for line in str(error).splitlines() if _LOSS.search(line)]
    return found[0][:400] if found else ""
