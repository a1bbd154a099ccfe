"""One epoch, from Spark's hand-over to the moment Spark may acknowledge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial

from pakka.contract.audit import Probing, probing_of
from pakka.contract.sink import Sink, Spread, Telling
from pakka.contract.state import Decision, Owner, StateStore
from pakka.coordinator.recent import Recent
from pakka.coordinator.recovery import (
    Look,
    Recovered,
    Recovery,
    abort_undecided,
    check_fence,
    close_all,
    commit_all,
)
from pakka.coordinator.redo import after_loss, beside_held
from pakka.coordinator.retry import Retry
from pakka.coordinator.tell import Teller, by_sink
from pakka.coordinator.watch import Watch
from pakka.errors import (
    AbortedError,
    BugError,
    RefusedError,
    RegressError,
    UnavailableError,
    UnknownOutcomeError,
)
from pakka.model.epoch import Checkpoint, Count, Epoch, Origin
from pakka.model.event import Aborted, Listen, Retried
from pakka.model.id import Binding
from pakka.model.latency import add_ages
from pakka.model.phase import Phase, move
from pakka.model.prepared import Prepared, SlotReport, totals
from pakka.points import reach


@dataclass(frozen=True, slots=True)
class Harvest:
    """What the writers of an epoch handed back, and how many of them there were."""

    slots: int
    reports: Sequence[SlotReport]


Prepare = Callable[[Epoch, int], Harvest]
"""Run the writers of an epoch under a fence and bring back their reports. The Spark job, or a test's stand-in."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What became of an epoch."""

    epoch: Epoch
    is_new: bool
    """False if it had been committed by an earlier run and Spark only had to be told."""
    count: Count
    sinks: Mapping[str, int]
    prepare_s: float = 0.0
    decide_s: float = 0.0
    commit_s: float = 0.0
    swept: Mapping[str, int] = field(default_factory=dict)
    """Records that were aborted because attempts have failed, by sink."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Rows by their age at the epoch's time; see `pakka.model.latency`."""


class Coordinator:
    """Owns one pipeline for one run: `start`, `deliver` for each epoch, `stop`.

    It has no clock, no threads and no randomness of its own; they are passed in.
    """

    def __init__(
        self,
        pipeline: str,
        sinks: Mapping[str, Sink],
        store: StateStore,
        *,
        spool: str,
        owner: Owner,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        pool: Executor,
        retry: Retry | None = None,
        sweep_every: int = 100,
        probe_every: int = 20,
        probing: Mapping[str, Probing] | None = None,
        listen: Listen = lambda _: None,
        executors: Spread | None = None,
    ) -> None:
        """`probing` is what else has settings that matter, beside the sinks and the state store."""
        self.pipeline = pipeline
        self.sinks = sinks
        self.store = store
        self.spool = spool
        self.owner = owner
        self.clock = clock
        self.sleep = sleep
        self.pool = pool
        self.retry = retry or Retry()
        self.sweep_every = sweep_every
        self.executors = executors
        self.recent = Recent()
        self.teller = Teller(clock, self.recent.before(listen))
        subjects: dict[str, object] = {"the state store": store, **(probing or {})}
        for name, sink in sinks.items():
            subjects[f"sink `{name}`"] = probing_of(sink, Binding(pipeline, name, spool), partial(self.recent.of, name))
        self.watch = Watch(pipeline, subjects, probe_every, self.retry, sleep, listen)
        self._run: Recovered | None = None
        self._committed: Epoch | None = None
        self._unsettled: Epoch | None = None

    def start(self, checkpoint: Checkpoint | Look | None) -> Recovered:
        """Become the owner and recover. Refuses, before writing, if checkpoint, state and sinks contradict each other.

        Where another driver may be running, give a way to read the checkpoint rather than what it was before the start.
        """
        began = self.clock()
        means = (self.retry, self.sleep, self.pool, self.teller, self.executors)
        recovery = Recovery(self.pipeline, self.sinks, self.store, self.spool, self.owner, *means)
        self._run = recovery.run(checkpoint)
        self._committed = self._run.committed
        self.recent.start_s = self.clock() - began
        self.watch.begin()
        return self._run

    @property
    def run(self) -> Recovered:
        if self._run is None:
            raise BugError(f"pipeline `{self.pipeline}`: used before start; nothing was changed")
        return self._run

    @property
    def fence(self) -> int:
        return self.run.state.fence

    def check_fence(self) -> None:
        """Raise `FencedError` if a newer driver owns the pipeline. For whoever has failed, and does not know why."""
        check_fence(self.store, self.pipeline, self.fence)

    def deliver(self, origin: Origin, prepare: Prepare) -> EpochReport:
        """Deliver one epoch to every sink, exactly once. When this returns, Spark may acknowledge."""
        try:
            return self._deliver(origin, prepare)
        except RegressError:
            # A newer driver that went on is no contradiction, and nothing for a person to mend.
            self.check_fence()
            raise

    def _deliver(self, origin: Origin, prepare: Prepare) -> EpochReport:
        epoch = Epoch(self.pipeline, self.run.base + origin.batch, origin)
        # 1. Already committed? Decided, but a sink has lost its records? Held by sinks whose decision is gone?
        if self._is_committed(epoch):
            return EpochReport(epoch, False, Count(), {})
        redo = self.run.reopened if self.run.reopened and self.run.reopened.epoch == epoch else None
        phase = Phase.DECIDED if redo else Phase.BEGUN
        began = self.clock()
        # If this one fails, its error is the one to show: a stop that went on to write could only hide it behind another.
        self._unsettled = None
        reach("begin", epoch.number)
        try:
            # 2. One job: judge, write and prepare every slot of every sink.
            harvest = prepare(epoch, self.fence)
            reach("prepared", epoch.number)
            # 3. Exactly one report a slot, every sink in it, and every row accounted for.
            records = self._check(epoch, harvest)
            keep, drop = self._reconcile(epoch, records, redo)
            # A sink or a store that was weakened since the start is found while abort is still an answer.
            self.watch.check(epoch.number)
            self._check_position(origin)
        except BaseException as error:
            if not redo:
                move(self.pipeline, epoch.number, phase, Phase.ABORTED)
            self._abort(epoch, redo, error)
            raise
        if not redo:
            phase = move(self.pipeline, epoch.number, phase, Phase.PREPARED)
        prepared_at = self.clock()
        reach("decide.before", epoch.number)
        # 4. The decision is durable from here on. Abort is no longer an answer.
        count = sum((r.count for r in harvest.reports), Count())
        decision = Decision(epoch, self.fence, keep, count, prepared_at, totals(records))
        self._decide(decision, redo)
        phase = move(self.pipeline, epoch.number, phase, Phase.DECIDED)
        decided_at = self.clock()
        reach("decide.after", epoch.number)
        # 5. Commit every sink; repeated until each has answered.
        self._commit(decision)
        move(self.pipeline, epoch.number, phase, Phase.COMMITTED)
        reach("commit.after", epoch.number)
        self._committed = self._unsettled = epoch
        self.recent.delivered(self.clock() - began)
        # 6. Attempts that failed, lost a race or were replaced have left litter.
        swept = self._sweep(decision, drop or any(r.is_retried for r in harvest.reports))
        return EpochReport(
            epoch,
            True,
            count,
            {name: rows for name, (rows, _) in decision.sinks.items()},
            prepared_at - began,
            decided_at - prepared_at,
            self.clock() - decided_at,
            swept,
            add_ages([r.ages for r in harvest.reports]),
        )

    def stop(self) -> None:
        """Let go of every sink, and enter the last epoch as committed if it ended well; else the next run does."""
        if self._run is None:
            return
        run, self._run = self._run, None
        try:
            if self._unsettled is not None:
                self.store.settle(self.pipeline, run.state.fence, self._unsettled.number)
        finally:
            close_all(run.stations)

    def _is_committed(self, epoch: Epoch) -> bool:
        last = self._committed
        if last is None or epoch.number > last.number:
            self._check_next(epoch, last)
            return self._is_held_everywhere(epoch)
        known = last.origin
        if epoch.number < last.number:
            row = self.store.find(self.pipeline, epoch.number)
            known = row.epoch.origin if row else Origin("", -1, "")
        if known == epoch.origin or (known.query == epoch.origin.query and not known.digest):
            return True
        raise RegressError(
            f"pipeline `{self.pipeline}`: Spark runs epoch {epoch.number} ({epoch.origin}), but an epoch of that number was "
            f"committed ({known}); its rows are not the same; nothing was changed",
            hint=f"restore the checkpoint, or accept this one with `pakka reset {self.pipeline} --checkpoint`",
        )

    def _check_next(self, epoch: Epoch, last: Epoch | None) -> None:
        expected = last.number + 1 if last else self.run.base
        if epoch.number != expected and not self.run.state.is_reset:
            raise RegressError(
                f"pipeline `{self.pipeline}`: Spark runs epoch {epoch.number} after epoch {expected - 1}; the epochs between "
                "were acknowledged and never delivered; nothing was changed",
                hint=f"restore the checkpoint, or accept this one with `pakka reset {self.pipeline} --checkpoint`",
            )

    def _is_held_everywhere(self, epoch: Epoch) -> bool:
        """Every sink vouches for the whole epoch, though its decision was lost with the state store: adopt it."""
        held = {name: entry for name, entry in self.run.held.items() if entry.epoch == epoch and entry.slots is None}
        if len(held) < len(self.run.stations):
            return False
        self.store.adopt(self.pipeline, self.fence, epoch, self.run.base)
        self._committed = epoch
        return True

    def _check(self, epoch: Epoch, harvest: Harvest) -> list[Prepared]:
        """A task that handed nothing back looks like success to Spark, so the slots are counted here."""
        numbers = sorted(r.number for r in harvest.reports)
        where = f"pipeline `{self.pipeline}`: epoch {epoch.number}"
        if numbers != list(range(harvest.slots)):
            missing = sorted(set(range(harvest.slots)) - set(numbers))
            raise AbortedError(
                f"{where} has {harvest.slots} slots, and reports came from {numbers}; slots {missing} said nothing; the epoch "
                "was aborted and nothing of it is visible",
                hint="run the pipeline again; if it happens again, look for tasks that end early in Spark's log",
            )
        for report in harvest.reports:
            if sorted(p.slot.sink for p in report.prepared) != sorted(self.sinks):
                raise BugError(f"{where}, slot {report.number} did not prepare every sink; the epoch was aborted")
            if strange := [
                p.slot for p in report.prepared if (p.slot.epoch, p.slot.fence) != (epoch.number, self.fence)
            ]:
                raise BugError(f"{where}, slot {report.number} was prepared as {strange[0]}; the epoch was aborted")
            if not report.count.adds_up:
                raise BugError(
                    f"{where}, slot {report.number}: {report.count.rows_in} rows in, but {report.count.good} good, "
                    f"{report.count.dead} dead and {report.count.dropped} dropped; the epoch was aborted"
                )
        return [p for r in sorted(harvest.reports, key=lambda r: r.number) for p in r.prepared]

    def _reconcile(
        self, epoch: Epoch, records: list[Prepared], redo: Decision | None
    ) -> tuple[tuple[Prepared, ...], bool]:
        """What to decide, and whether some of what was prepared is left out because sinks already hold it."""
        if redo is not None:
            return after_loss(redo, self.run.lost, self.run.held, records), True
        held = {name: entry for name, entry in self.run.held.items() if entry.epoch.number == epoch.number}
        return (beside_held(epoch, held, records), True) if held else (tuple(records), False)

    def _check_position(self, origin: Origin) -> None:
        """What a sink tells others of the source goes with the rows, and must not keep a decided epoch from them."""
        for station in self.run.stations:
            if isinstance(station.committer, Telling):
                station.committer.check_position(origin.position)

    def _sweep(self, decision: Decision, has_litter: bool) -> dict[str, int]:
        """Abort what attempts have left that the decision does not name. Without any, only now and then."""
        is_due = self.sweep_every > 0 and decision.epoch.number % self.sweep_every == self.sweep_every - 1
        if not has_litter and not is_due:
            return {}
        return by_sink(abort_undecided(self.run.stations, (decision,), self.fence))

    def _abort(self, epoch: Epoch, redo: Decision | None, error: BaseException) -> None:
        """Before the decision: nothing of this attempt may stay. What cannot be undone now, recovery undoes."""
        undone: tuple[Prepared, ...] = ()
        try:
            undone = abort_undecided(self.run.stations, (redo,) if redo else (), self.fence)
        except Exception as trouble:
            error.add_note(f"the abort of epoch {epoch.number} was not finished: {trouble}; the next run finishes it")
        if redo is None:
            reason = getattr(error, "message", "") or str(error) or type(error).__name__
            self.teller.tell(Aborted(self.pipeline, epoch.number, reason, by_sink(undone)))

    def _decide(self, decision: Decision, redo: Decision | None) -> None:
        """Deciding twice is deciding once, so a lost answer is settled by writing the same decision again."""
        write = self.store.amend if redo else self.store.decide
        is_unknown = False
        waits = self.retry.waits()
        while True:
            try:
                write(decision)
                return
            except UnknownOutcomeError as error:
                is_unknown, trouble = True, error.message
            except UnavailableError as error:
                trouble = error.message
            wait = next(waits, None)
            if wait is None:
                raise self._undecided(decision, redo, is_unknown, trouble)
            self.teller.tell(Retried(self.pipeline, decision.epoch.number, None, is_unknown, trouble, wait))
            self.sleep(wait)

    def _undecided(self, decision: Decision, redo: Decision | None, is_unknown: bool, trouble: str) -> Exception:
        where = f"pipeline `{self.pipeline}`: the decision of epoch {decision.epoch.number}"
        if is_unknown:
            # The decision may be durable. Aborting now could undo a committed epoch.
            return UnknownOutcomeError(
                f"{where} was sent and no answer came: {trouble}; its rows are prepared and stay so",
                hint="run the pipeline again when the state store answers; it asks for the decision and acts on it",
            )
        error = AbortedError(
            f"{where} could not be written: {trouble}; what was prepared for it was aborted",
            hint="run the pipeline again when the state store answers; the epoch runs again with the same rows",
        )
        self._abort(decision.epoch, redo, error)
        return error

    def _commit(self, decision: Decision) -> None:
        lost = commit_all(self.run.stations, decision, self.retry, self.sleep, self.pool, self.teller)
        if lost:
            self._run = replace(self.run, lost=lost, reopened=decision)
            sink, records = next(iter(lost.items()))
            raise RefusedError(
                f"pipeline `{self.pipeline}`: epoch {decision.epoch.number} is decided, and sink `{sink}` has lost {len(records)} "
                "of its prepared records; the other sinks have committed",
                hint="run the pipeline again: Spark has not acknowledged the epoch, so what is missing is made again",
            )
