"""Which guarantee a pipeline has, as data that explains itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """What a reader of the sinks may rely on."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"

    def __str__(self) -> str:
        return self.value


class Way(Enum):
    """Who holds a slot's rows between prepare and commit."""

    PREPARED = "prepared"
    """The sink's own transaction."""
    PUBLISHED = "published"
    """Files the table does not list yet."""
    SPOOLED = "spooled"
    """pakka's spool, applied at commit in one sink transaction together with the ledger row."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the things exactly-once needs: does it hold here, why, and what would mend it."""

    name: str
    holds: bool
    because: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """What a sink promises, in one sentence each: how rows stay invisible, and how far the promise goes."""

    level: Level
    way: Way
    because: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee of a pipeline. It is exactly-once only if every part holds."""

    parts: tuple[Part, ...]

    @property
    def level(self) -> Level:
        return Level.EXACTLY_ONCE if all(p.holds for p in self.parts) else Level.AT_LEAST_ONCE

    @property
    def missing(self) -> tuple[Part, ...]:
        return tuple(p for p in self.parts if not p.holds)

    def explain(self) -> str:
        """One sentence a part; the missing ones say what would mend them."""
        lines = [f"{self.level}:"]
        for part in self.parts:
            mend = f" ({part.mend})" if part.mend and not part.holds else ""
            lines.append(f"  {'yes' if part.holds else 'NO '} {part.name}: {part.because}{mend}")
        return "\n".join(lines)
