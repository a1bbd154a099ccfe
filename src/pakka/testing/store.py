"""A state store in memory: for tests and simulation. What it holds outlives its coordinators, not the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pakka.contract.state import Decision, EpochRow, Owner, PipelineState
from pakka.errors import BugError, FencedError, UsageError
from pakka.model.epoch import Epoch
from pakka.model.phase import Phase

_WINDOW = 1000


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
            state = self._mine(decision.epoch.pipeline, decision.fence)
            number = decision.epoch.number
            if any(d.epoch == decision.epoch and d.prepared == decision.prepared for d in state.open):
                return
            if number <= max([state.committed, *(d.epoch.number for d in state.open)]):
                raise BugError(f"pipeline `{state.pipeline}`: epoch {number} was decided before; nothing was changed")
            state = self._settled(state, number - 1)
            self._row(decision, Phase.DECIDED)
            self._put(replace(state, open=(*state.open, decision), is_reset=False))

    def amend(self, decision: Decision) -> None:
        with self.lock:
            state = self._mine(decision.epoch.pipeline, decision.fence)
            others = tuple(d for d in state.open if d.epoch != decision.epoch)
            if len(others) == len(state.open):
                raise BugError(
                    f"pipeline `{state.pipeline}`: epoch {decision.epoch.number} is not open; nothing was changed"
                )
            self._row(decision, Phase.DECIDED)
            self._put(replace(state, open=(*others, decision)))

    def settle(self, pipeline: str, fence: int, epoch: int) -> None:
        with self.lock:
            self._put(self._settled(self._mine(pipeline, fence), epoch))

    def adopt(self, pipeline: str, fence: int, epoch: Epoch, base: int) -> None:
        with self.lock:
            state = self._mine(pipeline, fence)
            left = tuple(d for d in state.open if d.epoch.number > epoch.number)
            self._put(replace(state, committed=epoch.number, origin=epoch.origin, base=base, open=left))

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
        rows = self.rows.get(pipeline, {})
        return [rows[n] for n in sorted(rows, reverse=True)[:limit]]

    def find(self, pipeline: str, epoch: int) -> EpochRow | None:
        return self.rows.get(pipeline, {}).get(epoch)

    def describe(self) -> str:
        return "memory of this process"

    def is_shared(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def _mine(self, pipeline: str, fence: int) -> PipelineState:
        state = self.states.get(pipeline)
        if state is None:
            raise UsageError(f"there is no pipeline `{pipeline}` in {self.describe()}")
        if state.fence != fence:
            raise FencedError.of(f"pipeline `{pipeline}`", pipeline, fence, state.fence)
        return state

    def _settled(self, state: PipelineState, upto: int) -> PipelineState:
        for decision in [d for d in state.open if d.epoch.number <= upto]:
            number = decision.epoch.number
            self.rows[state.pipeline][number] = replace(self.rows[state.pipeline][number], phase=Phase.COMMITTED)
            state = replace(
                state,
                committed=number,
                origin=decision.epoch.origin,
                totals=state.totals + decision.count,
                open=tuple(d for d in state.open if d is not decision),
            )
        return state

    def _row(self, decision: Decision, phase: Phase) -> None:
        rows = self.rows.setdefault(decision.epoch.pipeline, {})
        rows[decision.epoch.number] = EpochRow(
            decision.epoch, phase, decision.fence, decision.count, decision.sinks, decision.at
        )
        rows.pop(decision.epoch.number - _WINDOW, None)

    def _put(self, state: PipelineState) -> PipelineState:
        self.writes += 1
        self.states[state.pipeline] = state
        return state
