"""What a person may accept when checkpoint, state store and sinks contradict each other.

The regress guard refuses and names one of three commands. Each becomes a plan that says what it would do and what
follows for the rows; nothing is changed before `apply`. Applying takes the fence first, so that a driver which still
runs is stopped and not surprised, and may be killed and begun again at any line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field

from pakka.contract.sink import Ledger, Sink
from pakka.contract.state import Decision, Owner, PipelineState, StateStore
from pakka.coordinator.guard import Totals, examine, has_hole
from pakka.coordinator.recovery import abort_undecided, close_all, commit_all
from pakka.coordinator.retry import Retry
from pakka.coordinator.station import Station
from pakka.errors import RefusedError, RegressError, SinkError, UnavailableError, UnknownOutcomeError, UsageError
from pakka.model.epoch import Checkpoint, Epoch
from pakka.model.id import Binding, nearest
from pakka.model.outcome import Kind


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` will do, step by step, and what follows for the rows."""

    steps: tuple[str, ...]
    follows: tuple[str, ...]
    apply: Callable[[], None] = field(compare=False)

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.steps, *self.follows)


@dataclass(frozen=True, slots=True)
class _Lack:
    """What a sink lacks: the newest committed epoch, decided ones, and one that no decision names."""

    held: int
    """The newest epoch it holds anything of; -1 for none."""
    have: int
    """The newest epoch it is known to hold whole."""
    committed: tuple[Epoch, ...]
    decided: tuple[Decision, ...]
    elsewhere: tuple[Epoch, ...]

    @property
    def is_any(self) -> bool:
        return bool(self.committed or self.decided or self.elsewhere)

    @classmethod
    def of(cls, state: PipelineState, ledgers: Mapping[str, Ledger], sink: str, delivered: Totals | None) -> _Lack:
        """`delivered` is what the state store says of its last committed epoch."""
        last = ledgers[sink].last
        held = last.epoch.number if last else -1
        # The rest of an epoch in part may be lost for ever.
        have = held - 1 if last and last.slots is not None else held
        known = max([have, state.committed, *(d.epoch.number for d in state.open)])
        newest = _newest(state, ledgers)
        committed = Epoch(state.pipeline, state.committed, state.origin) if state.origin else None
        is_holed = last is not None and held == state.committed and has_hole(last, (delivered or {}).get(sink))
        return cls(
            held,
            have,
            (committed,) if committed and (held < committed.number or is_holed) else (),
            tuple(d for d in state.open if d.of_sink(sink) and d.epoch.number > have),
            (newest,) if newest and newest.number > known else (),
        )


@dataclass(frozen=True, slots=True)
class Reset:
    """The three resets of one pipeline. Everything they need of the world is passed in."""

    pipeline: str
    sinks: Mapping[str, Sink]
    store: StateStore
    spool: str
    owner: Owner
    sleep: Callable[[float], None]
    pool: Executor
    retry: Retry = field(default_factory=Retry)

    def accept_checkpoint(self, checkpoint: Checkpoint) -> Plan:
        """Go on with the checkpoint as it is, whatever it has passed or will repeat."""
        state, ledgers = self._read()
        gone = {p.slot.sink for d in state.open for p in d.prepared} - set(self.sinks)
        newest = _newest(state, ledgers)
        base = newest.number + 1 - (checkpoint.acknowledged + 1) if newest else -checkpoint.acknowledged - 1
        held = max((ledger.last.epoch.number for ledger in ledgers.values() if ledger.last), default=-1)
        decided = max([state.committed, *(d.epoch.number for d in state.open)])
        steps = [self._fence_step(state)]
        steps += [_finish_step(decision, gone) for decision in state.open]
        if newest and held > decided:
            steps.append(f"enter epoch {held} as committed, which the sinks hold and the state store does not know")
        next_epoch = base + checkpoint.acknowledged + 1
        steps.append(
            f"deliver batch {checkpoint.acknowledged + 1} of the checkpoint at {checkpoint.path} as epoch {next_epoch}"
        )

        def apply() -> None:
            with self._fenced(state, ledgers) as (fence, taken, stations):
                if taken.open:
                    self._finish(fence, taken, stations)
                if newest and held > decided:
                    self.store.adopt(self.pipeline, fence, newest, base)
                self.store.reset(self.pipeline, base)

        return Plan(tuple(steps), self._checkpoint_follows(state, checkpoint, ledgers, newest), apply)

    def accept_sink(self, name: str) -> Plan:
        """Accept that a sink lacks epochs: its output was deleted, or restored from an older copy."""
        if name not in self.sinks:
            raise UsageError(f"pipeline `{self.pipeline}` has no sink `{name}`", hint=nearest(name, self.sinks))
        state, ledgers = self._read()
        if name not in ledgers:
            raise RefusedError(
                f"sink `{name}` keeps no ledger, so it lacks no epoch that pakka could know of; nothing was changed"
            )
        delivered = self._delivered(state)
        lack = _Lack.of(state, ledgers, name, delivered)
        if not lack.is_any:
            others = [n for n in ledgers if n != name and _Lack.of(state, ledgers, n, delivered).is_any]
            raise RefusedError(
                f"sink `{name}` holds epoch {lack.held}, the newest of pipeline `{self.pipeline}`: it lacks nothing; nothing was "
                "changed",
                hint="; ".join(f"sink `{n}` does: `pakka reset {self.pipeline} --sink {n}`" for n in others),
            )
        steps, follows = [self._fence_step(state)], []
        where = f"in the ledger of sink `{name}` ({self.sinks[name].target()}), with no rows"
        for epoch in lack.committed:
            steps.append(f"enter epoch {epoch.number} {where}")
            missing = (
                f"epoch {epoch.number}"
                if lack.have == epoch.number - 1
                else f"epochs {lack.have + 1} to {epoch.number}"
            )
            follows.append(f"the rows of {missing} that are not in sink `{name}` now will never be there")
        for decision in lack.decided:
            steps.append(f"commit what sink `{name}` still has of epoch {decision.epoch.number}, which is decided")
            follows.append(f"what sink `{name}` has lost of epoch {decision.epoch.number} will never be there")
        for epoch in lack.elsewhere:
            steps.append(f"enter epoch {epoch.number}, which sinks hold and no decision names, {where}")
            follows.append(f"the rows of epoch {epoch.number} that are not in sink `{name}` now will never be there")
        follows.append("no other sink is touched")

        def apply() -> None:
            with self._fenced(state, ledgers, only=name) as (fence, taken, stations):
                self._enter_sink(fence, taken, stations[0], lack)

        return Plan(tuple(steps), tuple(follows), apply)

    def forget(self, checkpoint_path: str) -> Plan:
        """Drop the pipeline from the state store, so that its name can begin again."""
        if self.store.read(self.pipeline) is None:
            raise UsageError(
                f"state store {self.store.describe()} knows no pipeline `{self.pipeline}`",
                hint=nearest(self.pipeline, self.store.pipelines()),
            )
        state, ledgers = self._read()
        full = {n: ledger.last.epoch.number for n, ledger in ledgers.items() if ledger.last}
        if full:
            held = ", ".join(f"sink `{n}` holds epochs up to {e} in {self.sinks[n].target()}" for n, e in full.items())
            raise RefusedError(
                f"pipeline `{self.pipeline}` cannot be forgotten: {held}; a pipeline that began again under this name would "
                "take its new epochs for those; nothing was changed",
                hint="remove these outputs first, with their ledgers, or give the new pipeline another name",
            )
        steps = [self._fence_step(state), "abort whatever is still prepared in the sinks"]
        steps.append(f"remove pipeline `{self.pipeline}` from state store {self.store.describe()}")
        follows = [f"epoch {d.epoch.number} is decided and was never finished; it is given up" for d in state.open]
        follows.append(f"delete the checkpoint at {checkpoint_path} too, or the next run refuses it")

        def apply() -> None:
            with self._fenced(state, ledgers) as (fence, _, stations):
                littered = tuple(s for s in stations if s.committer.pending())
                self._raise(littered, (), fence)
                self.store.forget(self.pipeline)

        return Plan(tuple(steps), tuple(follows), apply)

    def _read(self) -> tuple[PipelineState, dict[str, Ledger]]:
        """What state store and sinks say now. Sinks that cannot remember anything are left out."""
        state = self.store.read(self.pipeline) or PipelineState(self.pipeline, 0, None)
        ledgers: dict[str, Ledger] = {}
        for station in (stations := self._open(state.fence)):
            try:
                ledger = station.committer.ledger()
            except BaseException:
                close_all(stations)
                raise
            if ledger.keeps_epochs:
                ledgers[station.name] = ledger
        close_all(stations)
        return state, ledgers

    def _delivered(self, state: PipelineState) -> Totals | None:
        row = self.store.find(self.pipeline, state.committed)
        return row.sinks if row and row.sinks else None

    def _open(self, fence: int, only: str | None = None) -> tuple[Station, ...]:
        stations: list[Station] = []
        try:
            for name, sink in self.sinks.items():
                if only in (None, name):
                    binding = Binding(self.pipeline, name, self.spool)
                    stations.append(Station.open(binding, sink, fence))
        except BaseException:
            close_all(stations)
            raise
        return tuple(stations)

    @contextmanager
    def _fenced(
        self, seen: PipelineState, ledgers: Mapping[str, Ledger], only: str | None = None
    ) -> Iterator[tuple[int, PipelineState, tuple[Station, ...]]]:
        """Own the pipeline, above every fence that a sink has seen, with the sinks open."""
        at_least = max((ledger.fence for ledger in ledgers.values()), default=0) + 1
        taken = self.store.take_fence(self.pipeline, self.owner, at_least)
        if (taken.committed, taken.open) != (seen.committed, seen.open):
            raise RefusedError(
                f"pipeline `{self.pipeline}` went on while this reset was planned; only its fence was taken",
                hint="make sure that no driver runs, and look again what the reset would do",
            )
        stations = self._open(taken.fence, only)
        try:
            yield taken.fence, taken, stations
        finally:
            close_all(stations)

    def _finish(self, fence: int, state: PipelineState, stations: tuple[Station, ...]) -> None:
        """Commit what is decided. The part of a sink that the pipeline no longer has is given up."""
        self._raise(stations, state.open, fence)
        for decision in state.open:
            lost = commit_all(stations, decision, self.retry, self.sleep, self.pool)
            if lost:
                sink = next(iter(lost))
                raise RefusedError(
                    f"pipeline `{self.pipeline}`: epoch {decision.epoch.number} is decided, and sink `{sink}` has lost "
                    f"{len(lost[sink])} of its prepared records; the checkpoint was not accepted",
                    hint=f"accept that sink `{sink}` lacks those rows with `pakka reset {self.pipeline} --sink {sink}`, then "
                    "accept the checkpoint",
                )
            self.store.settle(self.pipeline, fence, decision.epoch.number)

    def _raise(self, stations: tuple[Station, ...], decided: tuple[Decision, ...], fence: int) -> None:
        """Raise the fence in these sinks, and settle what is prepared in them: it may be in the way."""
        waits = self.retry.waits()
        while True:
            blocked = [s for s in stations if not s.committer.raise_fence()]
            for decision in decided if blocked else ():
                commit_all(stations, decision, self.retry, self.sleep, self.pool)
            abort_undecided(stations, decided, fence)
            if not blocked:
                return
            wait = next(waits, None)
            if wait is None:
                raise UnavailableError(
                    f"{blocked[0].binding}: the fence cannot be raised to {fence}: something prepared is in its way; the reset "
                    "was not done",
                    hint="do it again in a while",
                )
            self.sleep(wait)

    def _enter_sink(self, fence: int, state: PipelineState, station: Station, lack: _Lack) -> None:
        self._raise((station,), state.open, fence)
        for epoch in lack.committed:
            self._enter(station, epoch)
        for decision in lack.decided:
            if station.commit(decision, self.retry, self.sleep, self.pool):
                self._enter(station, decision.epoch)
        for epoch in lack.elsewhere:
            self._enter(station, epoch)

    def _enter(self, station: Station, epoch: Epoch) -> None:
        outcome = station.enter(epoch)
        if outcome.is_final:
            return
        again = "do it again: entering an epoch twice is entering it once"
        hint = f"{outcome.hint}; then {again}" if outcome.hint else again
        reason = outcome.reason or outcome.kind.value
        if outcome.kind is Kind.UNKNOWN:
            raise UnknownOutcomeError(
                f"{station.binding}: whether epoch {epoch.number} was entered in its ledger is not known: {reason}",
                hint=hint,
            )
        raise SinkError(f"{station.binding}: epoch {epoch.number} was not entered in its ledger: {reason}", hint=hint)

    def _fence_step(self, state: PipelineState) -> str:
        owner = f" (the last was process {state.owner.pid} on {state.owner.host})" if state.owner else ""
        return f"take the fence of pipeline `{self.pipeline}`: a driver that still runs{owner} will stop"

    def _checkpoint_follows(
        self, state: PipelineState, checkpoint: Checkpoint, ledgers: Mapping[str, Ledger], newest: Epoch | None
    ) -> tuple[str, ...]:
        """What becomes of the rows, as far as it can be known."""
        follows = [
            f"sink `{n}` committed epoch {ledger.last.epoch.number} slot by slot; whether all of it is there is not known"
            for n, ledger in ledgers.items()
            if ledger.last and ledger.last.slots is not None and ledger.last.epoch.number > state.committed
        ]
        told = {n: ledgers.get(n, Ledger(0, None, keeps_epochs=False)) for n in self.sinks}
        try:
            examine(state, checkpoint, told, self._delivered(state))
        except RegressError:
            return (*follows, _rows_follow(checkpoint, newest))
        agree = "checkpoint, state store and sinks agree as they are: a run would go on without this reset"
        return (agree, *follows, _rows_follow(checkpoint, newest))


def _newest(state: PipelineState, ledgers: Mapping[str, Ledger]) -> Epoch | None:
    """The newest epoch that anybody has committed or decided."""
    known = [ledger.last.epoch for ledger in ledgers.values() if ledger.last]
    known += [d.epoch for d in state.open]
    if state.origin is not None:
        known.append(Epoch(state.pipeline, state.committed, state.origin))
    return max(known, key=lambda e: e.number, default=None)


def _finish_step(decision: Decision, gone: set[str]) -> str:
    named = sorted({p.slot.sink for p in decision.prepared})
    kept, lost = [f"`{n}`" for n in named if n not in gone], [f"`{n}`" for n in named if n in gone]
    parts = [f"commit its records to sink {', '.join(kept)}"] if kept else []
    parts += [f"give up those of sink {', '.join(lost)}, which the pipeline no longer has"] if lost else []
    return f"finish epoch {decision.epoch.number}, which is decided: {', and '.join(parts)}"


def _rows_follow(checkpoint: Checkpoint, newest: Epoch | None) -> str:
    if newest is None:
        passed = checkpoint.acknowledged + 1
        return (
            f"what the checkpoint has passed, {passed} batches, will never be delivered"
            if passed
            else "no rows are affected"
        )
    if checkpoint.query is None:
        return "the checkpoint is new: Spark reads the source from its beginning, and rows delivered before are delivered again"
    if checkpoint.query != newest.origin.query:
        return (
            f"the checkpoint belongs to query {checkpoint.query[:8]}, and epochs up to {newest.number} to query "
            f"{newest.origin.query[:8]}: whether rows are delivered again or never is not known"
        )
    digest = checkpoint.digests.get(newest.origin.batch)
    if digest is not None and newest.origin.digest and digest != newest.origin.digest:
        return (
            f"epoch {newest.number} was delivered with other source offsets than the checkpoint has for it: whether rows are "
            "delivered again or never is not known"
        )
    ahead = checkpoint.acknowledged - newest.origin.batch
    if ahead < 0:
        first = newest.number + ahead + 1
        again = f"epoch {newest.number}" if first == newest.number else f"epochs {first} to {newest.number}"
        return f"the rows of {again} are delivered again, under new numbers"
    if ahead == 0:
        return "no rows are delivered again, and none are left out"
    return f"the rows of the {ahead} batches after batch {newest.origin.batch} will never be delivered"
