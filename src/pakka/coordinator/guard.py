"""The regress guard: do checkpoint, state store and sinks tell the same story?

It only looks, before anything is written. Equal or explainable: go on. A ledger ahead of a lost state store: adopt it.
Anything else is refused with the command that a person may choose; no epoch is skipped because its number was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pakka.contract.sink import Entry, Ledger
from pakka.contract.state import Decision, PipelineState
from pakka.errors import RegressError
from pakka.model.epoch import Checkpoint, Epoch, Origin

Totals = Mapping[str, tuple[int, str]]
"""By sink, the rows of an epoch and their checksum."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What recovery has to know: what to adopt, and the epoch number of Spark's batch 0."""

    adopt: Epoch | None = None
    base: int = 0


def examine(
    state: PipelineState,
    checkpoint: Checkpoint | None,
    ledgers: Mapping[str, Ledger],
    delivered: Totals | None,
) -> Finding:
    """Compare the three. `delivered` is what the state store says of its last committed epoch, by sink; None if that is not known."""
    _check_open_sinks(state, ledgers)
    entries = {s: ledger.last for s, ledger in ledgers.items() if ledger.keeps_epochs}
    written = {s: e for s, e in entries.items() if e is not None}
    if state.committed < 0 and not state.open:
        return _examine_new(state, checkpoint, entries, written)
    story = _Story(state, checkpoint, entries)
    story.check_checkpoint()
    story.check_origins()
    finding = story.adoption()
    # An adopted epoch is newer than every decision, and all sinks were just seen to hold it.
    if finding.adopt is not None:
        return finding
    story.check_sinks(state.committed, delivered)
    done = story.done()
    if done is not None:
        story.check_sinks(done.epoch.number, done.sinks)
    return finding


def _check_open_sinks(state: PipelineState, ledgers: Mapping[str, Ledger]) -> None:
    for decision in state.open:
        gone = {p.slot.sink for p in decision.prepared} - set(ledgers)
        if gone:
            raise RegressError(
                f"pipeline `{state.pipeline}`: epoch {decision.epoch.number} is decided for sink `{min(gone)}`, which the "
                "pipeline no longer has; nothing was changed",
                hint=f"put sink `{min(gone)}` back and run once, so that the epoch can be finished; then remove it",
            )


def _examine_new(
    state: PipelineState,
    checkpoint: Checkpoint | None,
    entries: Mapping[str, Entry | None],
    written: Mapping[str, Entry],
) -> Finding:
    """The state store knows nothing of this pipeline: it is new, or its state was lost."""
    acknowledged = checkpoint.acknowledged if checkpoint else -1
    if state.is_reset:
        return Finding(base=state.base)
    if not written:
        if acknowledged >= 0 and entries:
            raise RegressError(
                f"pipeline `{state.pipeline}`: its checkpoint has acknowledged {acknowledged + 1} epochs, which neither the "
                "state store nor any sink knows; nothing was changed",
                hint=f"restore state and outputs, or accept what the checkpoint has passed with "
                f"`pakka reset {state.pipeline} --checkpoint`",
            )
        # No sink could contradict the checkpoint; what it has passed was shown, at least once.
        return Finding(_acknowledged(state, checkpoint, state.base), state.base)
    if checkpoint is None or checkpoint.query is None:
        newest = max(written.values(), key=lambda e: e.epoch.number)
        raise RegressError(
            f"pipeline `{state.pipeline}`: state store and checkpoint are empty, but sinks hold epochs up to "
            f"{newest.epoch.number}; running would deliver those rows again; nothing was changed",
            hint=f"restore the checkpoint, or empty the sinks, or deliver the source again on top of them with "
            f"`pakka reset {state.pipeline} --checkpoint`",
        )
    any_entry = next(iter(written.values())).epoch
    base = any_entry.number - any_entry.origin.batch
    committed = base + acknowledged
    lost = PipelineState(state.pipeline, state.fence, state.owner, committed, None, base, open=())
    story = _Story(lost, checkpoint, entries)
    story.check_queries()
    story.check_sinks(committed, None)
    return Finding(_acknowledged(state, checkpoint, base), base)


def _acknowledged(state: PipelineState, checkpoint: Checkpoint | None, base: int) -> Epoch | None:
    """The newest epoch that Spark was told is done; None if there is none."""
    if checkpoint is None or checkpoint.query is None or checkpoint.acknowledged < 0:
        return None
    batch = checkpoint.acknowledged
    return Epoch(state.pipeline, base + batch, Origin(checkpoint.query, batch, checkpoint.digests.get(batch, "")))


@dataclass(frozen=True, slots=True)
class _Story:
    """A pipeline with a past, told by three witnesses."""

    state: PipelineState
    checkpoint: Checkpoint | None
    entries: Mapping[str, Entry | None]

    @property
    def name(self) -> str:
        return self.state.pipeline

    @property
    def newest(self) -> int:
        """The newest epoch the state store has decided."""
        return max([self.state.committed, *(d.epoch.number for d in self.state.open)])

    def check_checkpoint(self) -> None:
        checkpoint, state = self.checkpoint, self.state
        if checkpoint is None or state.is_reset:
            return
        origin = max(state.open, key=lambda d: d.epoch.number).epoch.origin if state.open else state.origin
        if origin is not None and checkpoint.query != origin.query:
            whose = "is new" if checkpoint.query is None else f"belongs to query {checkpoint.query[:8]}"
            self._refuse(
                f"the checkpoint at {checkpoint.path} {whose}, but epochs up to {self.newest} were delivered by query "
                f"{origin.query[:8]}; going on would deliver the source again or skip rows",
                f"restore the checkpoint of query {origin.query[:8]}, or accept this one with "
                f"`pakka reset {self.name} --checkpoint`",
            )
        planned, acknowledged = state.base + checkpoint.planned, state.base + checkpoint.acknowledged
        if acknowledged < self.newest - 1 or planned < self.newest:
            self._refuse(
                f"the checkpoint at {checkpoint.path} has acknowledged epoch {acknowledged} and planned epoch {planned}, but "
                f"epoch {self.newest} was delivered: it is older than the pipeline, as from a backup",
                f"restore the newest checkpoint, or accept this one, and that its rows are delivered again, with "
                f"`pakka reset {self.name} --checkpoint`",
            )
        digest = checkpoint.digests.get(self.newest - state.base)
        if origin is not None and origin.digest and digest is not None and digest != origin.digest:
            self._refuse(
                f"epoch {self.newest} was delivered with other source offsets than the checkpoint at {checkpoint.path} has for "
                "it",
                f"restore the newest checkpoint, or accept this one with `pakka reset {self.name} --checkpoint`",
            )

    def check_origins(self) -> None:
        """An epoch of the right number may still be another one: a sink's output can be somebody else's backup."""
        origins = {d.epoch.number: d.epoch.origin for d in self.state.open}
        if self.state.origin is not None:
            origins[self.state.committed] = self.state.origin
        for sink, entry in self.entries.items():
            ours = origins.get(entry.epoch.number) if entry is not None else None
            if entry is not None and ours is not None and ours.digest and entry.epoch.origin != ours:
                self._refuse(
                    f"sink `{sink}` holds an epoch {entry.epoch.number} of {entry.epoch.origin}, and this pipeline's is of "
                    f"{ours}",
                    f"restore the output that belongs to this pipeline, or give sink `{sink}` another output",
                )

    def check_queries(self) -> None:
        """Without a state store the sinks' own memory must name this very checkpoint."""
        assert self.checkpoint is not None
        for sink, entry in self.entries.items():
            if entry is not None and entry.epoch.origin.query != self.checkpoint.query:
                self._refuse(
                    f"the state store is empty, and sink `{sink}` holds epochs of query {entry.epoch.origin.query[:8]}, "
                    f"while the checkpoint at {self.checkpoint.path} belongs to query {str(self.checkpoint.query)[:8]}",
                    f"restore the right checkpoint or the state store, or accept this checkpoint with "
                    f"`pakka reset {self.name} --checkpoint`",
                )

    def adoption(self) -> Finding:
        """An acknowledged epoch newer than the state: every sink must vouch for it, then it is adopted."""
        state, checkpoint = self.state, self.checkpoint
        if checkpoint is None or state.is_reset:
            return Finding(base=state.base)
        acknowledged = state.base + checkpoint.acknowledged
        if acknowledged <= self.newest:
            return Finding(base=state.base)
        self.check_sinks(acknowledged, None)
        return Finding(_acknowledged(state, checkpoint, state.base), state.base)

    def done(self) -> Decision | None:
        """The newest open decision that Spark was told is done. Then every sink has committed it, and Spark will not run it
        again: what a sink has lost of it since is lost for good, unless it is noticed here.
        """
        if self.checkpoint is None or self.state.is_reset:
            return None
        acknowledged = self.state.base + self.checkpoint.acknowledged
        decisions = [d for d in self.state.open if d.epoch.number <= acknowledged]
        return max(decisions, key=lambda d: d.epoch.number, default=None)

    def check_sinks(self, committed: int, delivered: Totals | None) -> None:
        """Every sink must hold `committed`, and nothing newer than what may be under way. `delivered` is what was committed to it."""
        for sink, entry in self.entries.items():
            number = entry.epoch.number if entry is not None else -1
            is_holed = entry is not None and number == committed and has_hole(entry, (delivered or {}).get(sink))
            if (number < committed or is_holed) and (delivered is None or sink in delivered):
                holds = f"only epochs up to {number}" if entry is not None else "nothing"
                holds = f"epoch {number} only in part" if is_holed else holds
                self._refuse(
                    f"sink `{sink}` holds {holds} of this pipeline, but epochs up to {committed} were committed to it: its "
                    "output was deleted or restored from an older copy",
                    f"restore the output, or accept that sink `{sink}` lacks those rows with "
                    f"`pakka reset {self.name} --sink {sink}`",
                )
            if number > max(committed, self.newest) + 1:
                self._refuse(
                    f"sink `{sink}` holds epoch {number}, but the newest this pipeline can have begun is "
                    f"{max(committed, self.newest) + 1}: state store and checkpoint are older than the sink",
                    "restore the newest state store and checkpoint; nothing can be delivered safely without them",
                )

    def _refuse(self, what: str, hint: str) -> None:
        raise RegressError(f"pipeline `{self.name}`: {what}; nothing was changed", hint=hint)


def has_hole(entry: Entry, delivered: tuple[int, str] | None) -> bool:
    """An epoch in part that was committed. The mark that it is whole can be lost with a server, and then its slots vouch for it."""
    return entry.slots is not None and (entry.rows, entry.checksum) != delivered
