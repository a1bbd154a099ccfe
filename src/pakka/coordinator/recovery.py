"""The start of a run: become the owner, finish what was decided, undo what was not.

Whatever the last driver was doing when it died, the answer is the same four steps, and they may be killed and begun
again at any line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pakka.contract.sink import Entry, Ledger, Sink, Spread, Spreading
from pakka.contract.state import Decision, EpochRow, Owner, PipelineState, StateStore
from pakka.coordinator.guard import Finding, examine, has_hole
from pakka.coordinator.retry import Retry
from pakka.coordinator.station import Station
from pakka.coordinator.tell import QUIET, Teller
from pakka.errors import FencedError, RegressError, SinkError, UnavailableError
from pakka.model.epoch import Checkpoint, Epoch
from pakka.model.id import Binding
from pakka.model.prepared import Prepared
from pakka.points import reach

T = TypeVar("T")
_FENCES_MAX = 5
"""How often a fence is taken in one start. The second is above all that the sinks have seen, unless another driver is at work."""
Look = Callable[[], Checkpoint]
"""Reads Spark's checkpoint. It is read once the fence is taken: what is read before that may be overtaken by a driver that
still runs, and would then be taken for an older copy."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a run begins."""

    state: PipelineState
    stations: tuple[Station, ...]
    committed: Epoch | None
    """The newest epoch that every sink holds."""
    base: int
    finished: int
    """Decided epochs that were committed again."""
    undone: tuple[Prepared, ...]
    """Prepared records that no decision named, and that were aborted."""
    lost: Mapping[str, tuple[Prepared, ...]]
    """Records of the last decided epoch that a sink can no longer commit, by sink; the epoch has to run again."""
    reopened: Decision | None
    """The decision those records belong to."""
    held: Mapping[str, Entry]
    """Sinks that already hold the next epoch, though no decision for it is left."""

    @property
    def aborted(self) -> int:
        return len(self.undone)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recover one pipeline. Everything it needs of the world is passed in."""

    pipeline: str
    sinks: Mapping[str, Sink]
    store: StateStore
    spool: str
    owner: Owner
    retry: Retry
    sleep: Callable[[float], None]
    pool: Executor
    teller: Teller = QUIET
    executors: Spread | None = None

    def run(self, checkpoint: Checkpoint | Look | None) -> Recovered:
        """1. Take the fence.  2. Compare the witnesses.  3. Raise the fence in every sink and settle.  4. Enter it."""
        # 1. The fence must be above every fence a sink has seen: the state store may be new, or an old copy.
        state, stations = self._take_fence()
        reach("recover.fenced", state.committed + 1)
        try:
            return self._recover(state, stations, checkpoint() if callable(checkpoint) else checkpoint)
        except BaseException:
            close_all(stations)
            raise

    def _recover(self, state: PipelineState, stations: tuple[Station, ...], checkpoint: Checkpoint | None) -> Recovered:
        # 2. Nothing has been written to a sink yet; a contradiction ends the run here.
        ledgers = {s.name: self._ask(s.committer.ledger) for s in stations}
        row = self.store.find(self.pipeline, state.committed)
        try:
            finding = examine(state, checkpoint, ledgers, row.sinks if row and row.sinks else None)
        except RegressError:
            # Then there is nothing for a person to mend.
            check_fence(self.store, self.pipeline, state.fence)
            raise
        if finding.adopt is not None:
            self.store.adopt(self.pipeline, state.fence, finding.adopt, finding.base)
        reach("recover.examined", state.committed + 1)
        # 3. A sink whose prepared transactions block the fence says so; settling them unblocks it. Settling comes last,
        #    because an older driver may have prepared something up to the moment the fence was raised.
        lost, undone = self._raise_and_settle(state, stations)
        if row is not None:
            self._mark(stations, ledgers, row)
        reach("recover.settled", state.committed + 1)
        # 4. What is committed everywhere is entered, so that the next recovery has nothing to do.
        return self._enter(state, stations, finding, lost, undone)

    def _take_fence(self) -> tuple[PipelineState, tuple[Station, ...]]:
        at_least, seen = 1, 0
        for _ in range(_FENCES_MAX):
            state = self.store.take_fence(self.pipeline, self.owner, at_least)
            stations = self._open(state.fence)
            try:
                seen = max((self._ask(s.committer.ledger).fence for s in stations), default=0)
            except BaseException:
                close_all(stations)
                raise
            if seen < state.fence:
                return state, stations
            close_all(stations)
            # A newer driver may have raised it meanwhile. Then the pipeline is not ours any more, and is not taken back.
            check_fence(self.store, self.pipeline, state.fence)
            at_least = seen + 1
        raise SinkError(
            f"pipeline `{self.pipeline}`: a sink remembers fence {seen} and every one that was taken above it, {_FENCES_MAX} times; "
            "no rows were changed",
            hint="a sink may keep a fence in `raise_fence` only, and not when it is opened",
        )

    def _open(self, fence: int) -> tuple[Station, ...]:
        stations: list[Station] = []
        try:
            for name, sink in self.sinks.items():
                binding = Binding(self.pipeline, name, self.spool)
                stations.append(Station.open(binding, sink, fence))
                if self.executors is not None and isinstance(stations[-1].committer, Spreading):
                    stations[-1].committer.spread(self.executors)
        except BaseException:
            close_all(stations)
            raise
        return tuple(stations)

    def _raise_and_settle(
        self, state: PipelineState, stations: tuple[Station, ...]
    ) -> tuple[dict[str, tuple[Prepared, ...]], tuple[Prepared, ...]]:
        undone: tuple[Prepared, ...] = ()
        waits = self.retry.waits()
        while True:
            blocked = [s for s in stations if not self._ask(s.committer.raise_fence)]
            # A state store that is lost before any sink has seen a fence gives the same fence to the next driver. The sinks
            # cannot tell the two apart, so the one that the state store does not name must not settle anything.
            self._check_owner(state.fence)
            reach("recover.raised", state.committed + 1)
            lost = self._commit_open(state, stations)
            reach("recover.committed", state.committed + 1)
            undone += self._ask(lambda: abort_undecided(stations, state.open, state.fence))
            if not blocked:
                return lost, undone
            wait = next(waits, None)
            if wait is None:
                raise UnavailableError(
                    f"{blocked[0].binding}: the fence cannot be raised to {state.fence}: something prepared is in its way",
                    hint=f"see what it is with `pakka indoubt list {self.pipeline}`, then run again",
                )
            self.sleep(wait)

    def _check_owner(self, fence: int) -> None:
        now = self.store.read(self.pipeline)
        if now is not None and now.fence > fence:
            raise FencedError.of(f"pipeline `{self.pipeline}`", self.pipeline, fence, now.fence)
        if now is None or (now.fence, now.owner) != (fence, self.owner):
            raise FencedError(
                f"pipeline `{self.pipeline}`: state store {self.store.describe()} no longer names this driver as the owner of fence "
                f"{fence}: it was removed, or replaced by an older copy; nothing was settled",
                hint="run the pipeline again; the next run compares the state store with the sinks",
            )

    def _commit_open(self, state: PipelineState, stations: tuple[Station, ...]) -> dict[str, tuple[Prepared, ...]]:
        lost: dict[str, tuple[Prepared, ...]] = {}
        for decision in state.open:
            lost = commit_all(stations, decision, self.retry, self.sleep, self.pool, self.teller)
        return lost

    def _mark(self, stations: tuple[Station, ...], ledgers: Mapping[str, Ledger], row: EpochRow) -> None:
        """A server may have lost that the last epoch is whole, and all its slots are there. Who loses the state store next could not tell."""
        for station in stations:
            last = ledgers[station.name].last
            is_in_part = last is not None and last.slots is not None and last.epoch == row.epoch
            if last is not None and is_in_part and not has_hole(last, row.sinks.get(station.name)):
                # Nothing waits for the answer: where it is no yes, the next run asks again.
                self._ask(partial(station.enter, row.epoch))

    def _enter(
        self,
        state: PipelineState,
        stations: tuple[Station, ...],
        finding: Finding,
        lost: Mapping[str, tuple[Prepared, ...]],
        undone: tuple[Prepared, ...],
    ) -> Recovered:
        finished = len(state.open) - (1 if lost else 0)
        committed = finding.adopt
        if committed is None and state.origin is not None:
            committed = Epoch(self.pipeline, state.committed, state.origin)
        for decision in state.open[:finished]:
            if committed is None or decision.epoch.number > committed.number:
                committed = decision.epoch
        if finished:
            self.store.settle(self.pipeline, state.fence, state.open[finished - 1].epoch.number)
        reach("recover.entered", state.committed + 1)
        reopened = state.open[-1] if lost else None
        known = [finding.base - 1, state.committed, *(d.epoch.number for d in state.open)]
        # A reopened epoch runs next, and sinks may hold slots of it that its decision does not name.
        upcoming = reopened.epoch.number if reopened else max([*known, committed.number] if committed else known) + 1
        held = self._held(stations, upcoming)
        return Recovered(state, stations, committed, finding.base, finished, undone, lost, reopened, held)

    def _held(self, stations: tuple[Station, ...], epoch: int) -> dict[str, Entry]:
        """Sinks that already hold this epoch: it was decided by a state store that is gone.

        Asked only once the fence stands in every sink. Up to then an older driver may go on committing the epoch, and what
        it adds would be delivered a second time.
        """
        ledgers = {s.name: self._ask(s.committer.ledger) for s in stations}
        entries = {name: ledger.last for name, ledger in ledgers.items() if ledger.keeps_epochs}
        return {name: entry for name, entry in entries.items() if entry is not None and entry.epoch.number == epoch}

    def _ask(self, call: Callable[[], T]) -> T:
        """Ask a sink. The driver that is being replaced may still have it locked."""
        return self.retry.ask(call, self.sleep)


def check_fence(store: StateStore, pipeline: str, fence: int) -> None:
    """Raise `FencedError` if a newer driver owns the pipeline: what looks like another trouble may be its doing."""
    now = store.read(pipeline)
    if now is not None and now.fence > fence:
        raise FencedError.of(f"pipeline `{pipeline}`", pipeline, fence, now.fence)


def commit_all(
    stations: tuple[Station, ...],
    decision: Decision,
    retry: Retry,
    sleep: Callable[[float], None],
    pool: Executor,
    teller: Teller = QUIET,
) -> dict[str, tuple[Prepared, ...]]:
    """Commit a decided epoch in every sink, sinks in parallel. Returns what was lost, by sink.

    One sink's failure does not keep the others from committing: the decision stands for all of them.
    """
    if len(stations) == 1:
        lost = stations[0].commit(decision, retry, sleep, pool, teller)
        return {stations[0].name: tuple(lost)} if lost else {}

    def commit(station: Station) -> tuple[Station, list[Prepared] | Exception]:
        reach("commit.sink", decision.epoch.number)
        try:
            return station, station.commit(decision, retry, sleep, pool, teller)
        except Exception as error:  # raised below, once every sink has been asked
            return station, error

    results = list(pool.map(commit, stations))
    errors = [r for _, r in results if isinstance(r, Exception)]
    if errors:
        raise errors[0]
    return {s.name: tuple(r) for s, r in results if r and not isinstance(r, Exception)}


def abort_undecided(stations: tuple[Station, ...], decided: tuple[Decision, ...], fence: int) -> tuple[Prepared, ...]:
    """Presumed abort: what is pending under this fence or an older one, and named by no decision, vanishes.

    Returns what did.
    """
    winners = {p.slot for d in decided for p in d.prepared}
    undone: list[Prepared] = []
    for station in stations:
        litter = [p for p in station.committer.pending() if p.slot.fence <= fence and p.slot not in winners]
        if litter:
            station.committer.abort(litter)
            undone += litter
    return tuple(undone)


def close_all(stations: tuple[Station, ...] | list[Station]) -> None:
    """Close committers in the reverse order of their creation; one that fails does not keep the others open."""
    errors: list[Exception] = []
    for station in reversed(stations):
        try:
            station.committer.close()
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("closing the sinks", errors)
