"""Settle what is in doubt, from the decision: first as a plan that changes nothing, then by `Recovery`.

The plan is what recovery would do, and it is refused where recovery would refuse. What was done is told from what recovery
reports under its fence, not from the plan: a driver that still ran may have gone on in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum

from pakka.contract.sink import chosen
from pakka.contract.state import Owner, PipelineState, StateStore
from pakka.coordinator.doubt import Desk, Fate, Survey
from pakka.coordinator.guard import examine
from pakka.coordinator.recovery import Look, Recovered, Recovery, close_all
from pakka.coordinator.retry import Retry
from pakka.errors import RefusedError, RegressError
from pakka.model.epoch import Checkpoint
from pakka.model.id import Slot

_LOOKS_MAX = 5
"""How often a refusal is looked at again while a driver goes on."""


class Do(Enum):
    """What is done about an epoch in a sink, or in the state store."""

    COMMIT = "commit"
    ABORT = "abort"
    ENTER = "enter"
    """The state store learns that every sink holds the epoch."""
    LOST = "lost"
    """Decided, and its sink can no longer commit it: the epoch has to run again. Known only once the sink was asked."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that is done, or would be."""

    do: Do
    epoch: int
    sink: str = ""
    """Empty for the state store."""
    records: int = 0
    rows: int | None = None
    """Known of what is decided."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was done, or would be, about what was found."""

    found: Survey
    deeds: tuple[Deed, ...]
    fence: int | None = None
    """The fence under which it was done; None: nothing was changed."""

    def count(self, do: Do) -> int:
        """Records, or epochs of the state store."""
        return sum(deed.records or 1 for deed in self.deeds if deed.do is do)

    @property
    def lost(self) -> tuple[Deed, ...]:
        return tuple(deed for deed in self.deeds if deed.do is Do.LOST)


@dataclass(frozen=True, slots=True)
class Resolve:
    """Settle one pipeline. Everything it needs of the world is passed in."""

    desk: Desk
    store: StateStore
    owner: Owner
    """Who holds the fence meanwhile: this very process."""
    sleep: Callable[[float], None]
    pool: Executor
    retry: Retry = field(default_factory=Retry)

    def plan(self, look: Look) -> Resolution:
        """What resolving would do. Changes nothing; raises where recovery would refuse, or where a sink cannot be asked."""
        found, adopted = self._look(look)
        entered = {d.epoch.number for d in found.state.open} if found.state else set()
        commits = [(c.slot, c.doubt.rows) for c in found.cases if c.fate is Fate.COMMIT]
        aborts = [(c.slot, None) for c in found.cases if c.fate is not Fate.COMMIT]
        return Resolution(found, _deeds(commits, aborts, entered | adopted))

    def resolve(self, look: Look, take_over: bool) -> Resolution:
        """Become the owner and settle. `take_over`: also from a driver that runs, or of which that is not known."""
        found, adopted = self._look(look)
        if found.is_clear:
            return Resolution(found, ())
        self._check_owner(found, take_over)
        desk = self.desk
        sinks = {name: chosen(sink, desk.slots) for name, sink in desk.sinks.items()}
        recovery = Recovery(desk.pipeline, sinks, self.store, desk.spool, self.owner, self.retry, self.sleep, self.pool)
        recovered = recovery.run(look)
        close_all(recovered.stations)
        return Resolution(found, _done(found, recovered, adopted), recovered.state.fence)

    def _look(self, look: Look) -> tuple[Survey, set[int]]:
        """What is in doubt, and the epoch that a lost state store takes over from the sinks.

        No fence is taken yet, and a driver that still runs makes the witnesses contradict each other by going on between two
        looks. So a refusal counts only if the checkpoint stood still meanwhile: nothing passes it by.
        """
        for _ in range(_LOOKS_MAX - 1):
            checkpoint = look()
            try:
                return self._compare(checkpoint)
            except RegressError:
                if look() == checkpoint:
                    raise
        return self._compare(look())

    def _compare(self, checkpoint: Checkpoint) -> tuple[Survey, set[int]]:
        found = self.desk.survey(self.store)
        if found.troubles:
            raise found.troubles[0]
        return found, set() if found.is_clear else self._examine(found, checkpoint)

    def _examine(self, found: Survey, checkpoint: Checkpoint) -> set[int]:
        """As recovery does, which takes the fence first; here nothing is changed yet if it refuses."""
        state = found.state or PipelineState(self.desk.pipeline, 0, None)
        row = self.store.find(self.desk.pipeline, state.committed)
        finding = examine(state, checkpoint, found.ledgers, row.sinks if row and row.sinks else None)
        return {finding.adopt.number} if finding.adopt else set()

    def _check_owner(self, found: Survey, take_over: bool) -> None:
        if take_over or found.is_alive is False or found.state is None or found.state.owner is None:
            return
        owner = found.state.owner
        runs = "runs" if found.is_alive else "may still run, which cannot be seen from here"
        raise RefusedError(
            f"pipeline `{self.desk.pipeline}`: its driver, process {owner.pid} on {owner.host}, {runs}; resolving would take the "
            "fence from it and stop it; nothing was changed",
            hint="a driver settles what it has in doubt by itself; stop it first, or take over from it with --yes",
        )


def _done(found: Survey, recovered: Recovered, adopted: set[int]) -> tuple[Deed, ...]:
    """What recovery did. Records that a sink was found to hold were not committed by it."""
    in_doubt = {case.slot for case in found.cases}
    held = {p.slot for d in (found.state.open if found.state else ()) for p in d.prepared} - in_doubt
    decided = [p for d in recovered.state.open for p in d.prepared if p.slot not in held]
    lost = {p.slot for records in recovered.lost.values() for p in records}
    return _deeds(
        [(p.slot, p.rows) for p in decided if p.slot not in lost],
        [(p.slot, None) for p in recovered.undone],
        {d.epoch.number for d in recovered.state.open[: recovered.finished]} | adopted,
        [(p.slot, p.rows) for p in decided if p.slot in lost],
    )


Told = Iterable[tuple[Slot, int | None]]


def _deeds(commits: Told, aborts: Told, entered: set[int], lost: Told = ()) -> tuple[Deed, ...]:
    """By epoch and sink, in the order in which recovery does it."""
    deeds = [*_grouped(Do.COMMIT, commits), *_grouped(Do.LOST, lost), *_grouped(Do.ABORT, aborts)]
    return (*deeds, *(Deed(Do.ENTER, epoch) for epoch in sorted(entered)))


def _grouped(do: Do, told: Told) -> list[Deed]:
    groups: dict[tuple[int, str], list[int | None]] = {}
    for slot, rows in told:
        groups.setdefault((slot.epoch, slot.sink), []).append(rows)
    deeds = []
    for (epoch, sink), counts in sorted(groups.items()):
        known = [rows for rows in counts if rows is not None]
        deeds.append(Deed(do, epoch, sink, len(counts), sum(known) if len(known) == len(counts) else None))
    return deeds
