"""What a state store must do: fences and decisions, durable, one transaction each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.phase import Phase
from pakka.model.prepared import Prepared, totals


@dataclass(frozen=True, slots=True)
class Owner:
    """The driver that holds a fence: enough for a person to find it."""

    host: str
    pid: int
    since: float
    metrics: str = ""
    """Where it serves its metrics; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Commit this epoch, these records. Written once, it is the commit point."""

    epoch: Epoch
    fence: int
    prepared: tuple[Prepared, ...]
    count: Count
    at: float
    made: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Rows and checksum by sink of all that the epoch's run made: more than its records, if sinks held some before."""

    @property
    def sinks(self) -> Mapping[str, tuple[int, str]]:
        """Rows and checksum that each sink holds of the epoch once it is committed."""
        return self.made or totals(self.prepared)

    def of_sink(self, sink: str) -> tuple[Prepared, ...]:
        return tuple(p for p in self.prepared if p.slot.sink == sink)


@dataclass(frozen=True, slots=True)
class EpochRow:
    """A decided epoch as `status` and `verify` see it. `sinks` maps a sink's name to [rows, checksum]."""

    epoch: Epoch
    phase: Phase
    fence: int
    count: Count
    sinks: Mapping[str, tuple[int, str]]
    at: float


@dataclass(frozen=True, slots=True)
class PipelineState:
    """All the store knows of a pipeline, apart from the window of settled epochs."""

    pipeline: str
    fence: int
    owner: Owner | None
    committed: int = -1
    """The newest epoch known here to be committed in every sink; -1 for none."""
    origin: Origin | None = None
    """Where that epoch came from."""
    base: int = 0
    """Epoch number of Spark's batch 0. Moves only when a person accepts a new checkpoint with `pakka reset`."""
    is_reset: bool = False
    """A person has accepted whatever checkpoint comes next; cleared by the next decision."""
    totals: Count = field(default_factory=Count)
    open: tuple[Decision, ...] = ()
    """Decided and not known here to be committed: what recovery commits again."""


class StateStore(Protocol):
    """Durable fences and decisions. Every write is one transaction that first checks the fence inside itself.

    A write by an older fence raises `FencedError` and changes nothing. A write whose answer was lost raises
    `UnknownOutcomeError`; one that was never sent raises `UnavailableError`.
    """

    def take_fence(self, pipeline: str, owner: Owner, at_least: int = 1) -> PipelineState:
        """Raise the pipeline's fence by one, or to `at_least`, and return the state under it.

        Creates the pipeline if it is new. Two callers never get the same fence.
        """

    def decide(self, decision: Decision) -> None:
        """The commit point. In the same write every older open epoch of the pipeline is marked committed.

        The same decision twice is one decision; another one for the same epoch and no newer fence raises `BugError`.
        """

    def amend(self, decision: Decision) -> None:
        """Replace the records of an open decision, after a sink lost some of them and the epoch was run again."""

    def settle(self, pipeline: str, fence: int, epoch: int) -> None:
        """Mark `epoch` and every older open one committed. `decide` does it for the one before; this is for the last."""

    def adopt(self, pipeline: str, fence: int, epoch: Epoch, base: int) -> None:
        """Take over from the sinks' ledgers what this store has lost: `epoch` and all before it are committed."""

    def reset(self, pipeline: str, base: int) -> None:
        """A person accepts the next checkpoint, whatever it is; Spark's batch 0 is epoch `base` from now on."""

    def forget(self, pipeline: str) -> None:
        """Remove every trace of the pipeline."""

    def read(self, pipeline: str) -> PipelineState | None:
        """The state, without taking anything."""

    def pipelines(self) -> Sequence[str]:
        """The names of all pipelines, sorted."""

    def window(self, pipeline: str, limit: int = 100) -> Sequence[EpochRow]:
        """The newest epochs, newest first. Bounded: the store keeps about a thousand."""

    def find(self, pipeline: str, epoch: int) -> EpochRow | None:
        """One epoch, if it is still in the window."""

    def describe(self) -> str:
        """Where this store is, in words a user knows, with no secret."""

    def is_shared(self) -> bool:
        """Can drivers on several machines reach it?"""

    def close(self) -> None:
        """Let go of connections. Twice is harmless."""
