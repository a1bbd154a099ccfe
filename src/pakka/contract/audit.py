"""What a sink adds so that it can be audited, and its settings read.

Small powers, each on its own. `Auditable` lends the auditor a scratch area of the live system: a sink like this one,
on a table or a directory of its own, and a way to look at it as any program would. `Probing` names the settings that can
weaken a guarantee without anybody noticing, and how to read them; `Placed` those of one pipeline's place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from pakka.contract.sink import Sink
from pakka.model.id import Binding

AUDIT_ID = "audit_id"
"""The column by which a reader of a scratch area tells rows apart; a string."""


def audit_pipeline(token: str) -> str:
    """The pipeline under whose name an audit works: a sink that shares tables with others finds its rows by it."""
    return f"audit-{token}"


class ContractGuarantee(Enum):
    """The four guarantees of the sink contract. Exactly-once needs all of them."""

    ISOLATION = "isolation"
    """A reader sees none of an epoch before its commit, and all of it at once after."""
    SEPARATION = "prepare/commit separation"
    """What is prepared outlives the process that prepared it, and any other process can finish or undo it."""
    IDEMPOTENCE = "idempotent commit and abort"
    """Commit and abort may be repeated freely, also by whoever does not know whether it was done before."""
    REJECTION = "duplicate-id rejection"
    """The system itself refuses an older fence and an id that was used, where the rows become durable."""

    def __str__(self) -> str:
        return self.value


class Severity(Enum):
    """What a setting does to the guarantee."""

    FINE = "fine"
    WARNS = "warns"
    """The guarantee holds; something else suffers, or holds only for crashes of the process and not of the machine."""
    BREAKS = "breaks"
    """The guarantee does not hold with this setting, however well the protocol is kept."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting as it was found: its value, what follows from it, and the statement that mends it."""

    name: str
    severity: Severity
    value: str
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One setting, and how to read it. Reading changes nothing."""

    name: str
    look: Callable[[], Finding]
    is_cheap: bool = True
    """May be read again and again while a pipeline runs."""


@runtime_checkable
class Probing(Protocol):
    """The power to say which settings can weaken the guarantee. For sources, sinks and state stores."""

    def probes(self) -> Sequence[Probe]:
        """Every setting that matters. Making the list does no I/O; `Probe.look` does."""


@dataclass(frozen=True, slots=True)
class Took:
    """How long the steps of a run took lately, the longest, in seconds. None: not known, as before the first epoch."""

    epoch_s: float | None = None
    """An epoch, from its first row until every sink has committed it."""
    commit_s: float | None = None
    """A commit of this sink that went through at its first try."""
    start_s: float | None = None
    """From the moment the driver began to take over until it had recovered."""


@runtime_checkable
class Placed(Protocol):
    """The power to say it of one place in a pipeline. For sinks whose names in their system are made of it, and so the rights to them."""

    def probing(self, binding: Binding, took: Callable[[], Took] = Took, position: Callable[[], str] = str) -> Probing:
        """The settings that matter to the sink in this place. `took` and `position` are asked at each look; the second is where the source
        stands, in its own words, or empty if that is not known.
        """


def probing_of(
    sink: Sink, binding: Binding, took: Callable[[], Took] = Took, position: Callable[[], str] = str
) -> object:
    """What has the settings of a sink in its place."""
    return sink.probing(binding, took, position) if isinstance(sink, Placed) else sink


@runtime_checkable
class Scratch(Protocol):
    """A part of the live system that belongs to one audit."""

    @property
    def sink(self) -> Sink:
        """A sink like the audited one, whose rows go to the scratch area. It takes rows with the column `AUDIT_ID`."""

    def make(self) -> None:
        """Make what must be there before the sink is used. Raises `PakkaError` if there are no rights or no answer."""

    def read(self) -> list[str]:
        """`AUDIT_ID` of every row a reader sees now, doubles included; with a connection of its own, never the sink's code."""

    def stored(self) -> frozenset[str]:
        """Names of all that is stored in the scratch area, visible or not, so that what an abort leaves is found."""

    def remove(self) -> None:
        """Make the scratch area vanish, and put back what making it changed. Twice is harmless."""


@runtime_checkable
class Auditable(Protocol):
    """The power to be audited. For sinks."""

    def scratch(self, token: str) -> Scratch:
        """The scratch area of this token, lower-case letters, digits and `_`; the same token always means the same area.

        Changes nothing yet, so that an area can also be named to be removed.
        """

    def scratch_tokens(self) -> Sequence[str]:
        """Tokens of all scratch areas that are there now, left by audits that were killed."""


@runtime_checkable
class Addressable(Protocol):
    """The power to be named by a URL, whose scheme is the sink's registered name. For sinks."""

    @classmethod
    def from_url(cls, url: str) -> Sink:
        """The sink that `NAME:...` or `NAME://...` means; what the URL does not say has its default. Does no I/O."""
