"""A state store in memory: for tests and simulation. What it holds outlives its coordinators, not the process.

It is held to the suite of the real stores (`tests/simulation/test_memory_store.py`), or the simulation would prove the
protocol over a store that nobody runs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pakka.contract.state import Decision, EpochRow, Owner, PipelineState
from pakka.errors import BugError, FencedError
from pakka.model.epoch import Count, Epoch
from pakka.model.phase import Phase

WINDOW = 1000
"""Settled epochs that are kept, counted by their numbers."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup of a store, as it was at one moment."""

    states: Mapping[str, PipelineState]
    rows: Mapping[str, Mapping[int, EpochRow]]


@dataclass
class MemoryStore:
    """The contract of `StateStore` over dictionaries, under one lock."""

    states: dict[str, PipelineState] = field(default_factory=dict)
    rows: dict[str, dict[int, EpochRow]] = field(default_factory=dict)
    writes: int = 0
    """How many durable writes a real store would have made."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def take_fence(self, pipeline: str, owner: Owner, at_least: int = 1) -> PipelineState:
        with self.lock:
            old = self.states.get(pipeline, PipelineState(pipeline, 0, None))
            return self._put(replace(old, fence=max(old.fence + 1, at_least), owner=owner))

    def decide(self, decision: Decision) -> None:
        with self.lock:
            state = self._owned(decision.epoch.pipeline, decision.fence)
            if decision.epoch.number <= _newest(state):
                # Deciding again after a lost answer is how the coordinator asks whether it was written.
                self._check_same(state, decision)
                return
            state = self._settled(state, decision.epoch.number - 1)
            self._put(replace(state, open=(decision,), is_reset=False))
            self._add_row(decision)

    def amend(self, decision: Decision) -> None:
        with self.lock:
            epoch = decision.epoch
            state = self._owned(epoch.pipeline, decision.fence)
            if epoch not in [d.epoch for d in state.open]:
                raise self._bug(state, f"epoch {epoch.number} ({epoch.origin}) is not open and cannot be amended")
            self._put(
                replace(state, open=tuple(decision if d.epoch == epoch else d for d in state.open)),
            )
            self._add_row(decision)

    def settle(self, pipeline: str, fence: int, epoch: int) -> None:
        with self.lock:
            state = self._owned(pipeline, fence)
            if epoch > _newest(state):
                raise self._bug(state, f"epoch {epoch} was never decided and cannot be committed")
            self._put(self._settled(state, epoch))

    def adopt(self, pipeline: str, fence: int, epoch: Epoch, base: int) -> None:
        with self.lock:
            state = self._owned(pipeline, fence)
            known = Epoch(pipeline, state.committed, state.origin) if state.origin else None
            if epoch.number <= state.committed and epoch != known:
                raise self._bug(state, f"epoch {epoch.number} cannot be adopted, {state.committed} is committed")
            state = replace(state, base=base)
            if epoch != known:
                if epoch not in [d.epoch for d in state.open]:
                    # One of the same number from other offsets is not what the sinks hold, and gives way.
                    self._add_row(Decision(epoch, fence, (), Count(), 0.0))
                    state = self._settled(state, epoch.number - 1)
                    left = tuple(d for d in state.open if d.epoch.number > epoch.number)
                    state = self._moved(state, epoch, Count(), left)
                state = self._settled(state, epoch.number)
            self._put(state)

    def reset(self, pipeline: str, base: int) -> None:
        with self.lock:
            old = self.states.get(pipeline, PipelineState(pipeline, 0, None))
            self._put(replace(old, base=base, is_reset=True))

    def forget(self, pipeline: str) -> None:
        with self.lock:
            self.states.pop(pipeline, None)
            self.rows.pop(pipeline, None)

    def read(self, pipeline: str) -> PipelineState | None:
        return self.states.get(pipeline)

    def pipelines(self) -> Sequence[str]:
        return sorted(self.states)

    def window(self, pipeline: str, limit: int = 100) -> Sequence[EpochRow]:
        with self.lock:
            rows = self.rows.get(pipeline, {})
            return [self._phased(rows[n]) for n in sorted(rows, reverse=True)[: max(limit, 0)]]

    def find(self, pipeline: str, epoch: int) -> EpochRow | None:
        with self.lock:
            row = self.rows.get(pipeline, {}).get(epoch)
            return self._phased(row) if row else None

    def describe(self) -> str:
        return "memory of this process"

    def is_shared(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def copy(self) -> Copy:
        """A backup, which `restore` brings back."""
        with self.lock:
            return Copy(dict(self.states), {name: dict(rows) for name, rows in self.rows.items()})

    def restore(self, copy: Copy) -> None:
        """All that was written since `copy` was made is gone."""
        with self.lock:
            self.states = dict(copy.states)
            self.rows = {name: dict(rows) for name, rows in copy.rows.items()}

    def _owned(self, pipeline: str, fence: int) -> PipelineState:
        """Make sure that `fence` is still the one that owns the pipeline."""
        state = self.states.get(pipeline)
        if state is not None and state.fence == fence:
            return state
        if state is not None and state.fence > fence:
            raise FencedError.of(f"pipeline `{pipeline}`", pipeline, fence, state.fence)
        raise FencedError.replaced(pipeline, fence, self.describe(), state.fence if state else None)

    def _check_same(self, state: PipelineState, decision: Decision) -> None:
        number = decision.epoch.number
        row = self.rows.get(state.pipeline, {}).get(number)
        records = {d.epoch.number: d.prepared for d in state.open}.get(number, decision.prepared)
        made = (decision.epoch, decision.fence, decision.count, dict(decision.sinks), decision.prepared)
        if row and (row.epoch, row.fence, row.count, dict(row.sinks), records) == made:
            return
        before = f"by fence {row.fence} with other records" if row else "or passed over, too long ago to compare"
        raise self._bug(state, f"epoch {number} was decided before, {before}; it is not decided again")

    def _settled(self, state: PipelineState, upto: int) -> PipelineState:
        for decision in [d for d in state.open if d.epoch.number <= upto]:
            left = tuple(d for d in state.open if d is not decision)
            state = self._moved(state, decision.epoch, decision.count, left)
        return state

    def _moved(self, state: PipelineState, epoch: Epoch, count: Count, left: tuple[Decision, ...]) -> PipelineState:
        """Move `committed` to `epoch`: fold its count and prune the window."""
        rows = self.rows[state.pipeline]
        for number in range(max(state.committed - WINDOW, 0), epoch.number - WINDOW + 1):
            if not rows or number > max(rows):
                break
            rows.pop(number, None)
        totals = state.totals + count
        return replace(state, committed=epoch.number, origin=epoch.origin, totals=totals, open=left)

    def _add_row(self, decision: Decision) -> None:
        rows = self.rows.setdefault(decision.epoch.pipeline, {})
        rows[decision.epoch.number] = EpochRow(
            decision.epoch, Phase.DECIDED, decision.fence, decision.count, decision.sinks, decision.at
        )

    def _phased(self, row: EpochRow) -> EpochRow:
        is_committed = row.epoch.number <= self.states[row.epoch.pipeline].committed
        return replace(row, phase=Phase.COMMITTED) if is_committed else row

    def _bug(self, state: PipelineState, what: str) -> BugError:
        return BugError(
            f"pipeline `{state.pipeline}`: {what}; nothing was changed",
            hint="this is a bug in pakka; stop the pipeline and keep its state store and checkpoint",
        )

    def _put(self, state: PipelineState) -> PipelineState:
        self.writes += 1
        self.states[state.pipeline] = state
        return state


def _newest(state: PipelineState) -> int:
    return state.open[-1].epoch.number if state.open else state.committed
