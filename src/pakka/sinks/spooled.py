"""The public way to write a sink: say how to apply rows in one transaction, and pakka does the rest.

Rows wait in pakka's spool until the epoch is decided; then the whole epoch is applied in one transaction of your system,
together with a note that it was. You write two small classes (see docs/guides/custom-sink.md for one to copy):

- a frozen dataclass derived from `SpooledSink`, which says where the rows go and opens an applier;
- an `Applier`, which lives on the driver and holds the connection.

What makes it exactly-once is that three things change in ONE transaction: the rows, the epoch that was applied, and
nothing at all if that epoch was applied before or if the fence is no longer ours. Check either of them in a statement
before, or note the epoch in a statement after, and a crash or a second driver in between doubles or loses rows.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Committer, Entry, Ledger, Writer
from pakka.errors import (
    BugError,
    FencedError,
    PakkaError,
    RefusedError,
    SinkError,
    UnavailableError,
    UnknownOutcomeError,
)
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums
from pakka.points import reach
from pakka.sinks._spool import (
    SPOOL_BYTES_MAX,
    Encoder,
    SpoolReader,
    SpoolWriter,
    as_it_is,
    clear,
    spool_errors,
    staging_of,
)
from pakka.sinks._staging import not_aborted, write_durably


@dataclass(frozen=True, slots=True)
class Token:
    """Which epoch is applied, by whom, and what to remember of it. Its string form is an idempotency key."""

    sink: str
    """`pipeline.sink`, the key under which fence and entry are kept: several pipelines may share one system."""
    fence: int
    epoch: int
    rows: int
    checksum: str
    """Of all rows together, whatever their order; the same if the epoch is run again."""
    entry: str
    """What to remember: opaque text, a few hundred bytes and some ten more a slot. Give it back from `ledger`."""
    position: str = ""
    """Where the source stands after this epoch, in its own words; empty if it has none. For a system that can tell others
    in the same transaction; the source itself goes by Spark's checkpoint."""

    def __str__(self) -> str:
        return f"pakka.{self.sink}.{self.epoch}"


class Applier(ABC):
    """Holds the driver's connection to your system, for one sink of one pipeline.

    Your system keeps one row a sink: its fence, its newest epoch, and an opaque entry. Calls come one after another, but
    not always from the same thread. What you raise is understood so:

    - `UnavailableError`, `SinkError`, `SchemaError`: nothing was changed. The call is repeated, then the pipeline stops, and its last
      error has your hint.
    - anything else, such as your driver's own errors: it is not known whether something was changed. The ledger is asked
      before anything is applied again.
    """

    @abstractmethod
    def ledger(self) -> tuple[int, str] | None:
        """The fence and the entry as they are now; (0, "") before there are any. Changes nothing.

        None: this system cannot remember anything. Its sink is at-least-once, and must say so in `guarantee`.
        """

    @abstractmethod
    def raise_fence(self, fence: int) -> None:
        """Keep `fence`, durably, if it is higher than the one kept; else change nothing."""

    @abstractmethod
    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        """In one transaction: if `token.fence` is the fence kept and `token.epoch` is newer than the epoch kept, keep
        `token.epoch` and `token.entry` and apply all rows; True. Else change nothing; False.

        Take every batch: the rows are checked as they come, and an error out of the iterator must roll back all.
        """

    def check_position(self, position: str) -> None:
        """Asked before an epoch is decided, for a system that tells others of `Token.position`: raise `SinkError` if it could not."""
        return

    def close(self) -> None:
        """Let go of the connection. Twice is harmless."""
        return


@dataclass(frozen=True)
class SpooledSink(ABC):
    """A sink whose rows wait in pakka's spool and are applied at commit, in one transaction, by its applier.

    Derive a frozen dataclass from it. Making one does no I/O; it is pickled and sent to the executors.
    """

    spool_bytes_max: int = field(default=SPOOL_BYTES_MAX, kw_only=True)
    """At most so many bytes of spool a slot; an epoch with a larger one is aborted."""

    @abstractmethod
    def target(self) -> str:
        """Where the rows end, in words a user knows, with no secret. Two sinks with one target are refused."""

    @abstractmethod
    def open_applier(self, binding: Binding) -> Applier:
        """Connect. Called on the driver only, and changes nothing yet."""

    def open_encoder(self, binding: Binding, schema: pa.Schema) -> Encoder:
        """What becomes of each batch on its way into the spool; as it is, unless you say otherwise. Runs on executors.

        The place to refuse, with `SchemaError`, what `apply` could not store: before the decision an epoch can still be
        aborted, after it the pipeline can only stop.
        """
        return as_it_is

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(
            Level.EXACTLY_ONCE,
            Way.SPOOLED,
            "rows wait in pakka's spool, and are applied with fence and ledger in one transaction of its applier",
        )

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        encode = self.open_encoder(binding, schema)
        return SpoolWriter(staging_of(binding, slot.fence), slot, schema, encode, self.spool_bytes_max)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        is_exact = self.guarantee().level is Level.EXACTLY_ONCE
        return SpooledCommitter(binding, fence, self.open_applier(binding), is_exact)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is remembered of the sink: the fence, and the newest epoch with the slots that it was made of."""

    fence: int
    entry: Entry | None = None
    slots: frozenset[Slot] = frozenset()
    is_in_sink: bool = True
    """False: the sink remembers nothing, and this is the spool's note."""

    @property
    def epoch(self) -> int:
        return self.entry.epoch.number if self.entry else -1


def _from_text(binding: Binding, fence: int, text: str) -> _Memory:
    if not text:
        return _Memory(fence)
    data = json.loads(text)
    if data["v"] > 1:
        raise SinkError(
            f"{binding}: its ledger was written by a newer pakka (version {data['v']}, and 1 is known here); nothing was "
            "changed",
            hint="run the newer pakka",
        )
    epoch = Epoch.from_json(data["epoch"])
    slots = (Slot(binding.pipeline, binding.sink, epoch.number, f, n, a) for n, f, a in data["slots"])
    return _Memory(fence, Entry(epoch, data["rows"], data["checksum"]), frozenset(slots))


class SpooledCommitter:
    """Settles spooled epochs through an applier: everything of the contract that is the same for all of them."""

    def __init__(self, binding: Binding, fence: int, applier: Applier, is_exact: bool) -> None:
        self.binding = binding
        self.fence = fence
        self.applier = applier
        self.is_exact = is_exact
        self.staging = staging_of(binding, fence)
        self._bug: BugError | None = None

    def ledger(self) -> Ledger:
        memory = self._recall()
        with spool_errors(self.staging):
            seen = self.staging.seen()
        if not memory.is_in_sink:
            return Ledger(seen, None, keeps_epochs=False)
        # The spool may have seen a newer fence than the sink: a driver died between raising the two.
        return Ledger(max(memory.fence, seen), memory.entry)

    def raise_fence(self) -> bool:
        """First where rows become visible, then in the spool. What the spool still has of committed epochs goes."""
        self.applier.raise_fence(self.fence)
        memory = self._recall()
        self._check_fence(memory)
        if memory.is_in_sink and memory.fence < self.fence:
            raise BugError(
                f"{self.binding}: fence {self.fence} was raised, and its applier remembers fence {memory.fence}; no rows were "
                "changed",
                hint="`raise_fence` of the applier must keep the fence, and `ledger` give it back",
            )
        with spool_errors(self.staging):
            self.staging.raise_fence()
            self.staging.sweep(self._recall().epoch)
        return True

    def check_position(self, position: str) -> None:
        self.applier.check_position(position)

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        try:
            return self._commit(epoch, prepared)
        except (UnavailableError, RefusedError) as error:
            return Outcome.retry(error.message, error.hint)
        except UnknownOutcomeError as error:
            return Outcome.unknown(error.message, error.hint)

    def abort(self, prepared: Sequence[Prepared]) -> None:
        memory = self._recall()
        self._check_fence(memory)
        for slot in (p.slot for p in prepared):
            is_staged = self.staging.attempt(slot).exists()
            # Which slots an epoch was made of is known of the newest one only. A record of an older epoch that is not
            # staged any more may be visible: to call it aborted could be a lie.
            if slot in memory.slots or (slot.epoch < memory.epoch and not is_staged):
                raise not_aborted(self.binding, slot)
            with spool_errors(self.staging):
                self.staging.remove(slot)

    def pending(self) -> Sequence[Prepared]:
        with spool_errors(self.staging):
            return self.staging.pending()

    def in_doubt(self) -> Sequence[Doubt]:
        with spool_errors(self.staging):
            return self.staging.in_doubt(self.staging.slots())

    def close(self) -> None:
        self.applier.close()

    def _commit(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        if self._bug is not None:
            raise self._bug
        # 1. Ask the ledger: what is gone from the spool may be what is committed.
        memory = self._recall()
        if self._is_committed(epoch, memory):
            self._empty(prepared)
            return ALREADY_COMMITTED
        self._check_records(prepared)
        # 2. Every byte is verified before one row is applied.
        reader = SpoolReader(self.staging, prepared)
        trouble = reader.verify()
        if trouble is not None:
            return Outcome.refused(trouble)
        # 3. Rows, fence and ledger, in one transaction of the sink.
        token = self._token(epoch, prepared)
        flow = _Flow(reader.batches(), epoch.number)
        if not self.applier.apply(token, flow):
            return self._not_applied(epoch, prepared)
        self._check_drained(token, flow)
        reach("commit.applied", epoch.number)
        # 4. The epoch is visible; its copy in the spool goes.
        if not memory.is_in_sink:
            self._note(token)
        self._empty(prepared)
        return COMMITTED

    def _check_records(self, prepared: Sequence[Prepared]) -> None:
        """Raise `SinkError` if these are not for this sink as it is now. They are not committed yet."""
        return

    def _token(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Token:
        sink = f"{self.binding.pipeline}.{self.binding.sink}"
        rows = sum(p.rows for p in prepared)
        checksum = add_checksums(p.checksum for p in prepared)
        slots = [[p.slot.number, p.slot.fence, p.slot.attempt] for p in prepared]
        entry = {"v": 1, "epoch": epoch.to_json(), "rows": rows, "checksum": checksum, "slots": slots}
        text = json.dumps(entry, separators=(",", ":"))
        return Token(sink, self.fence, epoch.number, rows, checksum, text, epoch.origin.position)

    def _not_applied(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        """The sink's own transaction found the epoch or a newer fence: only its ledger can tell which."""
        if self._is_committed(epoch, self._recall()):
            self._empty(prepared)
            return ALREADY_COMMITTED
        raise SinkError(
            f"{self.binding}: its applier refused epoch {epoch.number}, which its ledger does not hold, under fence "
            f"{self.fence}; nothing was changed",
            hint="`apply` may answer False only if the epoch is not newer than the one kept, or the fence is not the one kept",
        )

    def _check_drained(self, token: Token, flow: _Flow) -> None:
        """It cannot be undone, and the ledger will call the epoch whole. All that is left is to stop, and to say so."""
        if flow.is_drained:
            return
        self._bug = BugError(
            f"{self.binding}: its applier committed epoch {token.epoch} before it had taken all of its {token.rows} rows; the "
            "epoch is only partly visible",
            hint="`apply` must take every batch before it commits; mend the applier, and add the missing rows by hand",
        )
        raise self._bug

    def _is_committed(self, epoch: Epoch, memory: _Memory) -> bool:
        self._check_fence(memory)
        if memory.entry is not None and epoch.number == memory.epoch and epoch != memory.entry.epoch:
            raise SinkError(
                f"{self.binding}: holds epoch {epoch.number} of {memory.entry.epoch.origin}, and was asked to commit one of "
                f"{epoch.origin}; its rows are not the same; nothing was changed",
                hint="restore the state store and the checkpoint that belong to this sink",
            )
        return epoch.number <= memory.epoch

    def _recall(self) -> _Memory:
        found = self.applier.ledger()
        if found is not None:
            return _from_text(self.binding, *found)
        if self.is_exact:
            raise SinkError(
                f"{self.binding}: says that it is exactly-once, and its applier has no ledger; nothing was changed",
                hint="keep a ledger, or say at-least-once in `guarantee` of the sink",
            )
        with spool_errors(self.staging):
            fence = self.staging.seen()
            text = self._notes.read_text() if self._notes.exists() else ""
        return replace(_from_text(self.binding, fence, text), is_in_sink=False)

    @property
    def _notes(self) -> Path:
        return self.staging.path / "applied.json"

    def _note(self, token: Token) -> None:
        """Of a sink without a memory of its own the spool notes what was applied, or a finished epoch would be applied
        again by every recovery. The note comes after the rows: a crash in between applies them twice, and never loses them.
        """
        with spool_errors(self.staging):
            write_durably(self._notes, token.entry.encode())

    def _check_fence(self, memory: _Memory) -> None:
        if memory.fence > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, memory.fence)

    def _empty(self, prepared: Sequence[Prepared]) -> None:
        """What cannot be removed, now or by this driver, is left to the sweep: the epoch is committed all the same."""
        for record in prepared:
            with suppress(OSError, PakkaError):
                clear(self.staging, record.slot)


class _Flow:
    """The rows on their way into the sink's transaction. Knows whether all were taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch], epoch: int) -> None:
        self.batches = batches
        self.epoch = epoch
        self.is_drained = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self.batches)
        except StopIteration:
            self.is_drained = True
            reach("commit.apply", self.epoch)
            raise
