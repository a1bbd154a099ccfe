"""What a sink may answer to commit: a closed set in which "already" and "unknown" are words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The five answers."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    RETRY = "retry"
    """Not done, and known to be not done. The same call may succeed later."""
    REFUSED = "refused"
    """Not done, and never will be: the record is gone. Spark has not acknowledged, so the epoch runs again."""
    UNKNOWN = "unknown"
    """Asked, and no answer. Settled by asking again, never by assuming."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, with the sink's reason where it is not plain success."""

    kind: Kind
    reason: str = ""
    hint: str = ""
    """What a person can do about it, in the sink's own words."""

    @property
    def is_final(self) -> bool:
        """Visible in the sink, now or before."""
        return self.kind in (Kind.COMMITTED, Kind.ALREADY_COMMITTED)

    @classmethod
    def retry(cls, reason: str, hint: str = "") -> Outcome:
        return cls(Kind.RETRY, reason, hint)

    @classmethod
    def refused(cls, reason: str) -> Outcome:
        return cls(Kind.REFUSED, reason)

    @classmethod
    def unknown(cls, reason: str, hint: str = "") -> Outcome:
        return cls(Kind.UNKNOWN, reason, hint)


COMMITTED = Outcome(Kind.COMMITTED)
ALREADY_COMMITTED = Outcome(Kind.ALREADY_COMMITTED)
