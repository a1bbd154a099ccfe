"""A sink in its place: the committer the driver holds, and how its records are settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pakka.contract.sink import Committer, EpochCommit, EpochEntry, Sink, SlotCommit
from pakka.contract.state import Decision
from pakka.coordinator.retry import Retry
from pakka.coordinator.tell import QUIET, Teller
from pakka.errors import FencedError, RefusedError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.event import Committed, Retried
from pakka.model.id import Binding
from pakka.model.outcome import Kind, Outcome
from pakka.model.prepared import Prepared
from pakka.points import reach

_PARALLEL_SLOTS = 8

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Station:
    """A sink, where it stands, and its committer."""

    binding: Binding
    sink: Sink
    committer: Committer

    @property
    def name(self) -> str:
        return self.binding.sink

    @classmethod
    def open(cls, binding: Binding, sink: Sink, fence: int) -> Station:
        committer = sink.open_committer(binding, fence)
        if isinstance(committer, SlotCommit) and not isinstance(committer, EpochCommit | EpochEntry):
            committer.close()
            # With the state store lost, nobody could tell an epoch in part from one of which an older copy was restored.
            raise SinkError(
                f"{binding}: its committer makes slots visible one by one and has no `enter_epoch`, so that its ledger never learns that "
                "an epoch is whole; no rows were changed",
                hint="whoever wrote the sink adds it: see `EpochEntry` in `pakka.contract.sink`",
            )
        return cls(binding, sink, committer)

    def enter(self, epoch: Epoch) -> Outcome:
        """Enter an epoch in the ledger of the sink, with no more rows than are there."""
        if isinstance(self.committer, EpochCommit):
            return self.committer.commit_epoch(epoch, ())
        assert isinstance(self.committer, EpochEntry)  # or it keeps no ledger
        return self.committer.enter_epoch(epoch)

    def commit(
        self,
        decision: Decision,
        retry: Retry,
        sleep: Callable[[float], None],
        pool: Executor,
        teller: Teller = QUIET,
    ) -> list[Prepared]:
        """Make this sink's part of a decided epoch visible. Returns the records the sink has lost.

        1. Ask the sink to commit what is not settled yet.
        2. RETRY and UNKNOWN are asked again after a wait: commit may be repeated, and looks into the ledger first. So is what a
           sink refuses: a full disk is a `SinkError` too, and to stop costs a restart of Spark where the waits cost seconds.
        3. REFUSED records are lost: they come back, and the epoch has to run again.
        4. Still unsettled after the last try: raise. The decision stands, and recovery goes on from here.
        """
        left: Sequence[Prepared] = decision.of_sink(self.name)
        lost: list[Prepared] = []
        waits = retry.waits()
        began, tries, was_unknown = teller.clock(), 0, False
        while True:
            outcome, left, gone = self._ask(decision, left, pool, is_lossy=bool(lost))
            lost += gone
            tries += 1
            if outcome.is_final or (lost and not left):
                if not lost:
                    teller.tell(self._committed(decision, tries, was_unknown, teller.clock() - began))
                return lost
            wait = next(waits, None)
            if wait is None:
                raise self._unsettled(decision.epoch, outcome, len(left))
            is_unknown = outcome.kind is Kind.UNKNOWN
            was_unknown = was_unknown or is_unknown
            pipeline, epoch = self.binding.pipeline, decision.epoch.number
            teller.tell(Retried(pipeline, epoch, self.name, is_unknown, outcome.reason, wait))
            sleep(wait)

    def _committed(self, decision: Decision, tries: int, was_unknown: bool, commit_s: float) -> Committed:
        rows = sum(p.rows for p in decision.of_sink(self.name))
        return Committed(self.binding.pipeline, decision.epoch.number, self.name, rows, tries, was_unknown, commit_s)

    def _ask(
        self, decision: Decision, left: Sequence[Prepared], pool: Executor, *, is_lossy: bool
    ) -> tuple[Outcome, Sequence[Prepared], list[Prepared]]:
        """Once: the worst outcome, what is still unsettled, and what is lost. Slots first, then the epoch as a whole; but never an epoch
        of which a slot is lost, now or before (`is_lossy`): its ledger would call whole what has a hole.
        """
        epoch = decision.epoch
        outcome = Outcome(Kind.COMMITTED)
        lost: list[Prepared] = []
        if isinstance(self.committer, SlotCommit):
            answers = self._ask_slots(self.committer, epoch, left, pool)
            unsettled = [(p, o) for p, o in zip(left, answers, strict=True) if o.kind in (Kind.RETRY, Kind.UNKNOWN)]
            lost = [p for p, o in zip(left, answers, strict=True) if o.kind is Kind.REFUSED]
            if unsettled:
                # An unknown answer outweighs a plain "not yet": the error must not promise that nothing happened.
                worst = max((o for _, o in unsettled), key=lambda o: o.kind is Kind.UNKNOWN)
                return worst, [p for p, _ in unsettled], lost
            if lost or is_lossy:
                return Outcome.refused("some slots are lost"), (), lost
        if isinstance(self.committer, EpochCommit):
            every = decision.of_sink(self.name)
            outcome = self._ask_epoch(self.committer, epoch, every)
            if outcome.kind is Kind.REFUSED:
                return outcome, (), list(every)
        elif isinstance(self.committer, EpochEntry):
            outcome = _answer(partial(self.committer.enter_epoch, epoch), lambda o: o)
        return outcome, () if outcome.is_final else left, lost

    def _ask_slots(
        self, committer: SlotCommit, epoch: Epoch, left: Sequence[Prepared], pool: Executor
    ) -> list[Outcome]:
        size = max(1, -(-len(left) // _PARALLEL_SLOTS))
        parts = [left[i : i + size] for i in range(0, len(left), size)]

        def ask(part: Sequence[Prepared]) -> Sequence[Outcome]:
            reach("commit.slot", epoch.number)
            return _answer(lambda: committer.commit(epoch, part), lambda o: [o] * len(part))

        return [outcome for answers in _side_by_side(pool, ask, parts) for outcome in answers]

    def _ask_epoch(self, committer: EpochCommit, epoch: Epoch, left: Sequence[Prepared]) -> Outcome:
        return _answer(lambda: committer.commit_epoch(epoch, left), lambda o: o)

    def _unsettled(self, epoch: Epoch, outcome: Outcome, records: int) -> Exception:
        what = f"{self.binding}: epoch {epoch.number} is decided and "
        finish = f"`pakka indoubt resolve {self.binding.pipeline}`, or the next `pakka run`"
        hint = f"do not replay by hand; {finish}, asks the sink again and finishes the epoch"
        if outcome.hint:
            # What the sink wants comes first: until it is done every run ends here, with the same rows.
            hint = (
                f"{outcome.hint}; epoch {epoch.number} is decided and its rows stay as they are: once the sink takes them, "
                f"{finish}, finishes it; do not replay by hand"
            )
        if outcome.kind is Kind.UNKNOWN:
            return UnknownOutcomeError(
                what + f"the visibility of {records} records is unknown: {outcome.reason}", hint=hint
            )
        return SinkError(what + f"not yet visible: {outcome.reason}", hint=hint)


def _side_by_side(pool: Executor, do: Callable[[S], T], parts: Sequence[S]) -> list[T]:
    """Do all parts, as far as the pool has threads to spare; what none of them has begun, the caller does itself.

    The callers, one a sink, are in the pool too. If they only waited, as many sinks as threads would wait for ever.
    """
    begun = [pool.submit(do, part) for part in parts]
    try:
        return [do(part) if future.cancel() else future.result() for part, future in zip(parts, begun, strict=True)]
    finally:
        for future in begun:
            future.cancel()


def _answer(ask: Callable[[], T], of: Callable[[Outcome], T]) -> T:
    """An exception out of commit tells nothing about what the sink did: it is UNKNOWN, except for the ones that know."""
    try:
        return ask()
    except FencedError:
        raise
    except (RefusedError, UnavailableError) as error:
        return of(Outcome.retry(error.message, error.hint))
    except Exception as error:  # the sink's own driver errors: all are "no answer", kept as the reason and asked again
        return of(Outcome.unknown(f"{type(error).__name__}: {error}"))
