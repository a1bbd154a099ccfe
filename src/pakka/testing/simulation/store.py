"""The state store of the simulated world: a `MemoryStore` with the network before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pakka.contract.state import Decision, EpochRow, Owner, PipelineState
from pakka.model.epoch import Epoch
from pakka.testing.simulation.judge import Judge
from pakka.testing.simulation.world import STORE, World
from pakka.testing.store import Copy, MemoryStore

T = TypeVar("T")


class PlaceStore:
    """One connection's view of the store; all drivers share the store behind it."""

    def __init__(self, world: World, judge: Judge, memory: MemoryStore) -> None:
        self.world = world
        self.judge = judge
        self.memory = memory

    def take_fence(self, pipeline: str, owner: Owner, at_least: int = 1) -> PipelineState:
        def work() -> PipelineState:
            state = self.memory.take_fence(pipeline, owner, at_least)
            self.judge.taken(state.fence, owner.host)
            return state

        return self._write(pipeline, "take the fence", work, at_least)

    def decide(self, decision: Decision) -> None:
        self._decide("decide", self.memory.decide, decision)

    def amend(self, decision: Decision) -> None:
        self._decide("amend", self.memory.amend, decision)

    def _decide(self, what: str, write: Callable[[Decision], None], decision: Decision) -> None:
        def work() -> None:
            write(decision)
            self.judge.decides(decision)

        detail = f"epoch {decision.epoch.number}, fence {decision.fence}, {[str(p.slot) for p in decision.prepared]}"
        self._write(decision.epoch.pipeline, what, work, detail)
        self.world.counts[f"decisions: {what}"] += 1

    def settle(self, pipeline: str, fence: int, epoch: int) -> None:
        def work() -> None:
            self.memory.settle(pipeline, fence, epoch)
            self.judge.wrote(fence)

        self._write(pipeline, "settle", work, f"epoch {epoch}, fence {fence}")

    def adopt(self, pipeline: str, fence: int, epoch: Epoch, base: int) -> None:
        def work() -> None:
            self.memory.adopt(pipeline, fence, epoch, base)
            self.judge.wrote(fence)

        self._write(pipeline, "adopt", work, f"epoch {epoch.number}, fence {fence}")
        self.world.counts["epochs adopted"] += 1

    def reset(self, pipeline: str, base: int) -> None:
        self._write(pipeline, "reset", lambda: self.memory.reset(pipeline, base), base)

    def forget(self, pipeline: str) -> None:
        self._write(pipeline, "forget", lambda: self.memory.forget(pipeline))

    def read(self, pipeline: str) -> PipelineState | None:
        return self.world.ask(STORE, "read", lambda: self.memory.read(pipeline))

    def pipelines(self) -> Sequence[str]:
        return self.world.ask(STORE, "pipelines?", self.memory.pipelines)

    def window(self, pipeline: str, limit: int = 100) -> Sequence[EpochRow]:
        return self.world.ask(STORE, "window?", lambda: self.memory.window(pipeline, limit))

    def find(self, pipeline: str, epoch: int) -> EpochRow | None:
        return self.world.ask(STORE, "find", lambda: self.memory.find(pipeline, epoch), epoch)

    def describe(self) -> str:
        return self.memory.describe()

    def is_shared(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def replace(self, pipeline: str, copy: Copy) -> None:
        """Another store stands in its place: an older copy, or an empty one."""
        self.memory.restore(copy)
        self.world.lives[STORE] += 1
        self.judge.holds(self.memory.read(pipeline))

    def _write(self, pipeline: str, what: str, work: Callable[[], T], detail: object = "") -> T:
        def effect() -> T:
            answer = work()
            self.judge.holds(self.memory.read(pipeline))
            return answer

        return self.world.tell(STORE, what, effect, detail)
