"""What a sink must do. Read `pakka.sinks.memory` beside it: the shortest true implementation.

A sink is split by role and by the place where it runs::

    Sink        a frozen, picklable description; no I/O when it is made
    Writer      on an executor, for one attempt at one slot: write, prepare
    Committer   on the driver: commit, abort, and tell what is pending and what is committed

A committer has one or both of two powers, as small mix-ins: `SlotCommit` makes each slot visible on its own and in
parallel; `EpochCommit` makes the whole epoch visible in one operation, after the slots. A reader of a sink that has
only `SlotCommit` can see a part of an epoch for a moment; a reader of one with `EpochCommit` never does. A committer with
`SlotCommit` alone must have `EpochEntry` too, by which its ledger learns that an epoch is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pakka.model.epoch import Epoch
from pakka.model.guarantee import SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Outcome
from pakka.model.prepared import Prepared

if TYPE_CHECKING:
    import pyarrow as pa


Spread = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]
"""Has pieces of work done wherever there is room for them, and hands back what each returns, in order.

A piece is pickled. It may be done more than once, and by somebody who was thought to be dead.
"""


@runtime_checkable
class Writer(Protocol):
    """One attempt at one slot. Lives on an executor and may die at any line."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows. Nothing may become visible. Blocking here is the back-pressure."""

    def prepare(self, checksum: str) -> Prepared:
        """Make the rows durable, still invisible, and describe them so that any process can finish them.

        `checksum` is the order-free checksum of all rows written; it goes into the record. After this returns the
        machine may lose power and the rows must still be there. An older fence must be refused with `FencedError`.
        """

    def discard(self) -> None:
        """Undo what this attempt staged; called when the task fails. May be called at any time, more than once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One committed epoch, as the sink itself remembers it, inside the same transaction as the rows."""

    epoch: Epoch
    rows: int
    checksum: str
    slots: Mapping[int, tuple[int, str]] | None = None
    """Rows and checksum of each committed slot, from sinks that commit slot by slot; None: the epoch is whole."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a sink remembers of one pipeline: the highest fence it has seen and the newest committed epoch."""

    fence: int
    last: Entry | None
    keeps_epochs: bool = True
    """False: this sink cannot remember what it has committed, and is at-least-once."""


@runtime_checkable
class Committer(Protocol):
    """Holds the driver's connection to a sink, for one pipeline and one fence.

    Everything may be repeated freely. Calls come one after another, but not always from the same thread.
    """

    def raise_fence(self) -> bool:
        """From a True answer on, no older fence can prepare or commit here. False: something pending is in the way.

        Raises `FencedError` if the sink has already seen a newer fence.
        """

    def abort(self, prepared: Sequence[Prepared]) -> None:
        """Make these vanish. What is already gone is fine; what is committed must be refused with `SinkError`."""

    def pending(self) -> Sequence[Prepared]:
        """All that is staged here for this pipeline and sink, of any epoch and fence, finished or not.

        What comes back is enough to abort. To commit, the record in the decision is used.
        """

    def ledger(self) -> Ledger:
        """What the sink remembers. It changes nothing, and is asked before the fence is raised."""

    def close(self) -> None:
        """Let go of connections. Twice is harmless."""


@runtime_checkable
class SlotCommit(Protocol):
    """The power to make slots visible one by one."""

    def commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Sequence[Outcome]:
        """Make these slots visible; one answer each, in order. Called from several threads with different slots.

        Ask the ledger before answering REFUSED: what is missing may be what is already committed. A slot that the ledger
        holds is ALREADY_COMMITTED, whichever attempt at it comes.
        """


@runtime_checkable
class EpochCommit(Protocol):
    """The power to make a whole epoch visible at one instant."""

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        """Make the epoch visible and enter it in the ledger, atomically. `prepared` holds every slot, or none at all.

        With no records the epoch is only entered in the ledger. An epoch of the same number and another origin has other
        rows: that is no ALREADY_COMMITTED, and is refused with `SinkError`.
        """


@runtime_checkable
class EpochEntry(Protocol):
    """The power to enter an epoch in the ledger once all its slots are visible. For sinks that commit slot by slot."""

    def enter_epoch(self, epoch: Epoch) -> Outcome:
        """Every slot of this epoch is visible, or it has none: from now on the ledger calls it whole.

        Also if a person has accepted that the rest is lost (`pakka reset --sink`): then no slot of it is REFUSED any more.
        """


@runtime_checkable
class Telling(Protocol):
    """The power to tell others, together with the rows, where the source stands. For committers."""

    def check_position(self, position: str) -> None:
        """Before an epoch is decided: raise what would keep `position` from being told after it. Changes nothing."""


@runtime_checkable
class Spreading(Protocol):
    """The power to have the executors do a part of a commit. For committers; one that is not told of executors does it all itself."""

    def spread(self, over: Spread) -> None:
        """From here on there are executors."""


@runtime_checkable
class Sink(Protocol):
    """Where rows go. Making one does no I/O; it is pickled and sent to the executors."""

    def guarantee(self) -> SinkGuarantee:
        """What this sink promises, and how it keeps it."""

    def target(self) -> str:
        """Where the rows end, in words a user knows, with no secret. Two sinks with one target are refused."""

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        """Begin one attempt at one slot. Rows that do not fit are refused here with `SchemaError`."""

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        """Connect as the driver that holds `fence`. Changes nothing yet; `raise_fence` does."""


@runtime_checkable
class Choosing(Protocol):
    """The power to leave a choice to the system. For sinks; asked once, on the driver, before a run begins."""

    def choose(self, slots: int | None = None) -> Sink:
        """This sink with every choice made, by looking at the system. Its `guarantee` says which and why.

        `slots` is how many an epoch has at most, where the pipeline says so.
        """


@runtime_checkable
class Spooling(Protocol):
    """The power to say whether pakka's spool is rested on, where the way does not tell. For sinks."""

    @property
    def uses_spool(self) -> bool:
        """Whether rows, a copy of them or a fence are kept in the spool: then the sink is no more durable than it is."""


def uses_spool(sink: Sink) -> bool:
    """Whether what a sink promises rests on pakka's spool: as it says itself, or by its way."""
    return sink.uses_spool if isinstance(sink, Spooling) else sink.guarantee().way is Way.SPOOLED


def chosen(sink: Sink, slots: int | None) -> Sink:
    """The sink as a run of its pipeline has it. Whoever settles what a run has left must have the very same one."""
    return sink.choose(slots) if isinstance(sink, Choosing) else sink
