"""One desk for everything in doubt, in every sink: what it is, what becomes of it, and why.

Looking only reads. What becomes of a record follows from the decision in the state store and from nothing else: what a
decision names is committed, what none names is aborted. Resolving is `Recovery`, the very steps with which every run
begins, so that there is one protocol and not two; it takes the fence first, and a driver that still runs is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pakka.contract.doubt import Doubt, Doubting
from pakka.contract.sink import Committer, Ledger, Sink, chosen
from pakka.contract.state import Decision, Owner, PipelineState, StateStore
from pakka.errors import PakkaError, UnavailableError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared


class Fate(Enum):
    """What becomes of a record in doubt."""

    COMMIT = "commit"
    """A decision names it."""
    ABORT = "abort"
    """No decision names it, and none will."""
    IN_FLIGHT = "in flight"
    """No decision names it yet, and its driver may still write one."""
    UNKNOWN = "unknown"
    """Whoever could tell was not to be asked."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Case:
    """One record in doubt, and what becomes of it."""

    sink: str
    slot: Slot
    doubt: Doubt
    fate: Fate
    because: str


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything in doubt in a pipeline, at one moment."""

    pipeline: str
    state: PipelineState | None
    """None: there was no state store to ask."""
    is_alive: bool | None
    """Does the driver that holds the fence still run? None: that cannot be seen from here."""
    cases: tuple[Case, ...]
    foreign: tuple[tuple[str, Doubt], ...]
    """What others have prepared in the systems of these sinks, by sink. It is never touched."""
    unentered: tuple[int, ...]
    """Decided epochs that every sink holds already; only the state store does not know it yet."""
    ledgers: Mapping[str, Ledger]
    """What each sink that could be asked remembers."""
    troubles: tuple[PakkaError, ...]
    """What kept a sink from being asked."""

    @property
    def is_clear(self) -> bool:
        """There is nothing to settle. What only the state store lacks, a driver that runs enters with its next epoch."""
        return not self.cases and (not self.unentered or self.is_alive is not False)

    @property
    def oldest_s(self) -> float | None:
        return max((c.doubt.age_s for c in self.cases if c.doubt.age_s is not None), default=None)

    def of_sink(self, sink: str) -> Survey:
        return replace(self, cases=tuple(c for c in self.cases if c.sink == sink))


@dataclass(frozen=True, slots=True)
class _Told:
    """What one sink says."""

    doubts: tuple[Doubt, ...]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Desk:
    """Looks at one pipeline. Everything it needs of the world is passed in."""

    pipeline: str
    sinks: Mapping[str, Sink]
    slots: int | None
    """Those of the pipeline: with them its sinks choose what a run's have chosen."""
    spool: str
    clock: Callable[[], float]
    is_alive: Callable[[Owner], bool | None]

    def survey(self, store: StateStore | None) -> Survey:
        """Ask every sink, then the state store. A sink that cannot be asked does not keep the others from being told.

        The state store comes last: a record that was decided meanwhile is not taken for an undecided one.
        """
        fence = self._read(store).fence if store else 0
        told: dict[str, _Told] = {}
        troubles: list[PakkaError] = []
        for name, sink in self.sinks.items():
            answer = self._ask(Binding(self.pipeline, name, self.spool), sink, fence)
            if isinstance(answer, _Told):
                told[name] = answer
            else:
                troubles.append(answer)
        state = self._read(store) if store else None
        is_alive = self.is_alive(state.owner) if state and state.owner else False
        judge = _Judge(state, is_alive, self.clock())
        cases = [case for name, answer in told.items() for case in judge.cases(name, answer)]
        cases += judge.of_gone_sinks(self.sinks)
        return Survey(
            self.pipeline,
            state,
            is_alive,
            tuple(sorted(cases, key=lambda c: (c.slot.epoch, c.sink, c.slot.number, c.slot.fence, c.slot.attempt))),
            _foreign(told),
            judge.unentered(cases, troubles),
            {name: answer.ledger for name, answer in told.items()},
            tuple(troubles),
        )

    def _read(self, store: StateStore) -> PipelineState:
        return store.read(self.pipeline) or PipelineState(self.pipeline, 0, None)

    def _ask(self, binding: Binding, sink: Sink, fence: int) -> _Told | PakkaError:
        try:
            committer = chosen(sink, self.slots).open_committer(binding, fence)
            try:
                return _Told(tuple(_doubts(committer)), committer.ledger())
            finally:
                committer.close()
        except PakkaError as error:
            return error
        except Exception as error:
            return UnavailableError(
                f"{binding}: cannot be asked what is in doubt: {type(error).__name__}: {error}; nothing was changed",
                hint="see that it is there and may be read, then look again",
            )


def _doubts(committer: Committer) -> Iterator[Doubt]:
    if isinstance(committer, Doubting):
        yield from committer.in_doubt()
        return
    for record in committer.pending():
        # `pending` says enough to abort, and need not know the rows.
        yield Doubt(str(record.slot), record.slot, rows=record.rows or None)


def _foreign(told: Mapping[str, _Told]) -> tuple[tuple[str, Doubt], ...]:
    """Each once: two sinks on one server see the same things, and what is foreign to one may belong to the other."""
    ours = {d.id for answer in told.values() for d in answer.doubts if d.slot is not None}
    found = {
        d.id: (name, d) for name, answer in told.items() for d in answer.doubts if d.slot is None and d.id not in ours
    }
    return tuple(sorted(found.values(), key=lambda pair: (pair[0], pair[1].id)))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says of each record what becomes of it, from what the state store knows."""

    state: PipelineState | None
    is_alive: bool | None
    now: float

    def cases(self, sink: str, told: _Told) -> Iterator[Case]:
        """What a sink has prepared, and what is decided for it, except for what its ledger says it has committed."""
        decided = {p.slot: (d, p) for d in self._open for p in d.of_sink(sink)}
        listed = {d.slot: d for d in told.doubts if d.slot is not None}
        for slot, (decision, record) in decided.items():
            if not _is_held(told.ledger, decision.epoch, slot.number):
                yield self._decided(sink, decision, record, listed.get(slot))
        for slot, doubt in listed.items():
            if slot not in decided:
                yield Case(sink, slot, doubt, *self._undecided(slot))

    def of_gone_sinks(self, sinks: Mapping[str, Sink]) -> list[Case]:
        """Decided for a sink that the pipeline no longer has: nobody can finish it, and it must not be passed over."""
        because = "decided for a sink that the pipeline no longer has; put it back, so that the epoch can be finished"
        return [
            Case(p.slot.sink, p.slot, self._aged(Doubt(str(p.slot), p.slot, rows=p.rows), d), Fate.UNKNOWN, because)
            for d in self._open
            for p in d.prepared
            if p.slot.sink not in sinks
        ]

    def unentered(self, cases: Sequence[Case], troubles: Sequence[PakkaError]) -> tuple[int, ...]:
        """A sink that was not to be asked may hold an epoch or not: then nothing is said."""
        if troubles:
            return ()
        open_ = {c.slot.epoch for c in cases if c.fate in (Fate.COMMIT, Fate.UNKNOWN)}
        return tuple(d.epoch.number for d in self._open if d.epoch.number not in open_)

    @property
    def _open(self) -> tuple[Decision, ...]:
        return self.state.open if self.state else ()

    def _decided(self, sink: str, decision: Decision, record: Prepared, doubt: Doubt | None) -> Case:
        because = f"decided by fence {decision.fence}"
        if self.is_alive and self.state and decision.fence == self.state.fence:
            because += ", whose driver runs and commits it"
        elif doubt is None:
            because += "; the sink does not list it: its record is enough to commit it, or it is lost"
        told = doubt or Doubt(str(record.slot), record.slot)
        return Case(sink, record.slot, self._aged(replace(told, rows=record.rows), decision), Fate.COMMIT, because)

    def _aged(self, doubt: Doubt, decision: Decision) -> Doubt:
        """A sink that cannot tell since when: at least since the decision."""
        return doubt if doubt.age_s is not None else replace(doubt, age_s=max(0.0, self.now - decision.at))

    def _undecided(self, slot: Slot) -> tuple[Fate, str]:
        state = self.state
        if state is None:
            return Fate.UNKNOWN, "there is no state store to ask for its decision"
        if slot.epoch <= state.committed:
            return Fate.ABORT, f"left over: epoch {slot.epoch} is committed, and no decision that is open names it"
        if slot.fence > state.fence:
            holds = f"the state store holds fence {state.fence}, and this is of fence {slot.fence}"
            return Fate.ABORT, f"no decision names it; {holds}: it was lost, or is an older copy"
        if slot.fence < state.fence:
            return Fate.ABORT, f"no decision names it, and fence {slot.fence} is older than fence {state.fence}"
        owner = f"process {state.owner.pid} on {state.owner.host}" if state.owner else "its driver"
        if self.is_alive is None:
            return Fate.IN_FLIGHT, f"not decided; {owner} may still decide it; if that has ended, it is aborted"
        if self.is_alive:
            return Fate.IN_FLIGHT, f"not decided yet; its driver, {owner}, runs"
        return Fate.ABORT, f"no decision names it, and its driver, {owner}, has ended"


def _is_held(ledger: Ledger, epoch: Epoch, slot: int) -> bool:
    """Does the sink itself say that it has committed this slot of this epoch?"""
    last = ledger.last
    if last is None or epoch.number > last.epoch.number:
        return False
    if epoch.number < last.epoch.number:
        return True
    return epoch == last.epoch and (last.slots is None or slot in last.slots)
