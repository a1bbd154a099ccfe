"""The protocol with one step removed, reordered or done wrong, by patching it in the test's own process.

The steps are those of `docs/concepts/protocol.md`: S1 to S4 at the start of a run, E1 to E6 of an epoch, K for what the
sinks and the state store themselves must keep.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from pakka.contract.state import PipelineState
from pakka.coordinator import epoch as epoch_module
from pakka.coordinator import guard as guard_module
from pakka.coordinator import recovery as recovery_module
from pakka.coordinator.epoch import Coordinator
from pakka.coordinator.guard import Finding
from pakka.coordinator.recovery import Recovery
from pakka.coordinator.station import Station
from pakka.errors import AbortedError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch, Origin
from pakka.model.outcome import COMMITTED, Kind, Outcome
from pakka.testing.simulation import spark as spark_module
from pakka.testing.simulation.place import Place
from pakka.testing.simulation.sinks import PlaceCommitter, SpooledCommitter
from pakka.testing.store import MemoryStore


@dataclass(frozen=True)
class Mutant:
    """What is wrong, in which step, and how it is made so."""

    step: str
    name: str
    patches: tuple[tuple[object, str, Any], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, wrong in self.patches:
                stack.enter_context(patch.object(target, attribute, wrong))
            yield

    def __str__(self) -> str:
        return f"{self.step}: {self.name}"


# What is right, kept from before anything is patched.
_take_fence = MemoryStore.take_fence
_recovery_take_fence = Recovery._take_fence
_recovery_run = Recovery.run
_commit_all = recovery_module.commit_all
_abort_undecided = recovery_module.abort_undecided
_decide = Coordinator._decide
_commit = Coordinator._commit
_check = Coordinator._check
_ask = Station._ask
_ask_slots = Station._ask_slots
_ask_epoch = Station._ask_epoch
_after_loss = epoch_module.after_loss
_enter = Recovery._enter
_prepare = Place.prepare
_show = Place._show


# The start of a run.


def _fence_stays(self, pipeline, owner, at_least=1):
    state = _take_fence(self, pipeline, owner, at_least)
    kept = replace(state, fence=max(state.fence - 1, at_least))
    self.states[pipeline] = kept
    return kept


def _fence_below_sinks(self):
    state = self.store.take_fence(self.pipeline, self.owner, 1)
    return state, self._open(state.fence)


def _look_before_fence(self, checkpoint):
    return _recovery_run(self, checkpoint() if callable(checkpoint) else checkpoint)


def _settle_before_raise(self, state, stations):
    lost = self._commit_open(state, stations)
    aborted = _abort_undecided(stations, state.open, state.fence)
    for station in stations:
        station.committer.raise_fence()
    return lost, aborted


def _open_forgotten(self):
    state, stations = _recovery_take_fence(self)
    return replace(state, open=()), stations


def _enter_without_commit(self, state, stations):
    return {}


def _presume_commit(stations, decided, fence):
    winners = {p.slot for d in decided for p in d.prepared}
    for station in stations:
        for record in station.committer.pending():
            if record.slot not in winners:
                epoch = Epoch(record.slot.pipeline, record.slot.epoch, Origin("presumed", record.slot.epoch, ""))
                commit = getattr(station.committer, "commit_epoch", None) or station.committer.commit
                commit(epoch, [record])
    return ()


def _not_entered(self, *rest):
    return replace(_enter(self, *rest), committed=None)


# An epoch.


def _first_slot_is_enough(self, epoch, harvest):
    return [p for report in harvest.reports[:1] for p in report.prepared]


def _slots_not_counted(self, epoch, harvest):
    return [p for report in harvest.reports for p in report.prepared]


def _commit_then_decide(self, decision, redo):
    _commit(self, decision)
    _decide(self, decision, redo)


def _unknown_decision_is_success(self, decision, redo):
    try:
        (self.store.amend if redo else self.store.decide)(decision)
    except UnknownOutcomeError:
        return


def _unknown_decision_is_failure(self, decision, redo):
    try:
        (self.store.amend if redo else self.store.decide)(decision)
    except (UnknownOutcomeError, UnavailableError) as error:
        self._abort(decision.epoch, redo, error)
        raise AbortedError("the decision was taken for failed") from error


def _settle_then_commit(self, decision):
    self.store.settle(self.pipeline, self.fence, decision.epoch.number)
    _commit(self, decision)


def _sweep_then_commit(self, decision):
    _abort_undecided(self.run.stations, (), self.fence)
    _commit(self, decision)


def _one_sink_is_enough(stations, decision, *means):
    return _commit_all(stations[:1], decision, *means)


def _answers(change: Mapping[Kind, Outcome]) -> tuple[tuple[object, str, Any], ...]:
    """Take one kind of answer to commit for another."""

    def of_slots(self, committer, epoch, left, pool):
        return [change.get(o.kind, o) for o in _ask_slots(self, committer, epoch, left, pool)]

    def of_epoch(self, committer, epoch, left):
        outcome = _ask_epoch(self, committer, epoch, left)
        return change.get(outcome.kind, outcome)

    return ((Station, "_ask_slots", of_slots), (Station, "_ask_epoch", of_epoch))


def _loss_is_forgotten(self, decision, left, pool, *, is_lossy):
    return _ask(self, decision, left, pool, is_lossy=False)


def _only_lost_numbers(decision, lost, held, records):
    """As it was: slots that the decision did not have are left out, unless the sink has lost all it had."""
    numbers = {(p.slot.sink, p.slot.number) for ps in lost.values() for p in ps}
    whole = {sink for sink, ps in lost.items() if len(ps) == len(decision.of_sink(sink))}
    taken = _after_loss(decision, lost, held, records)
    known = {p.slot for p in decision.prepared}
    return tuple(p for p in taken if p.slot in known or p.slot.sink in whole or (p.slot.sink, p.slot.number) in numbers)


def _sweep_nothing(stations, decided, fence):
    return () if decided else _abort_undecided(stations, decided, fence)


def _sweep_all(stations, decided, fence):
    return _abort_undecided(stations, (), fence)


def _any_holder_is_enough(self, epoch):
    if not any(entry.epoch == epoch for entry in self.run.held.values()):
        return False
    self.store.adopt(self.pipeline, self.fence, epoch, self.run.base)
    self._committed = epoch
    return True


# The sinks and the state store.


def _lacks_without_ledger(self, epoch, prepared, fence):
    self.check_fence(fence, self.fence)
    gone = [p.slot for p in prepared if not self._is_whole(p)]
    return Outcome.refused("gone") if gone else None


def _report_and_not_prepare(self, slot, rows):
    record = _prepare(self, slot, rows)
    del self.staged[slot]
    return record


def _show_one_by_one(self, epoch, prepared, fence):
    for record in prepared:
        _show(self, epoch, (record,), fence)


def _owned_by_anybody(self, pipeline, fence):
    return self.states.get(pipeline, PipelineState(pipeline, fence, None))


def _nothing(*args, **kwargs):
    return None


def _yes(*args, **kwargs):
    return True


def _no(*args, **kwargs):
    return False


def _one(target: object, attribute: str, wrong: Callable[..., Any]) -> tuple[tuple[object, str, Any], ...]:
    return ((target, attribute, wrong),)


MUTANTS = (
    Mutant("S1", "the state store gives the same fence again", _one(MemoryStore, "take_fence", _fence_stays)),
    Mutant("S1", "the fence is not taken above the sinks'", _one(Recovery, "_take_fence", _fence_below_sinks)),
    Mutant("S2", "the checkpoint is read before the fence is taken", _one(Recovery, "run", _look_before_fence)),
    Mutant(
        "S2",
        "the witnesses are not compared",
        _one(recovery_module, "examine", lambda state, *_: Finding(base=state.base)),
    ),
    Mutant("S2", "an epoch in part is taken for a whole one", _one(guard_module, "has_hole", _no)),
    Mutant("S2", "offsets have no digest", _one(spark_module, "digest_of", lambda batch: "")),
    Mutant(
        "S3",
        "the fence is not raised in the sinks",
        ((PlaceCommitter, "raise_fence", _yes), (SpooledCommitter, "raise_fence", _yes)),
    ),
    Mutant("S3", "settled before the fence is raised", _one(Recovery, "_raise_and_settle", _settle_before_raise)),
    Mutant("S3", "open decisions are not looked at", _one(Recovery, "_take_fence", _open_forgotten)),
    Mutant("S3", "open decisions are entered and not committed", _one(Recovery, "_commit_open", _enter_without_commit)),
    Mutant("S3", "what is undecided is not aborted", _one(recovery_module, "abort_undecided", lambda *_: ())),
    Mutant("S3", "what is undecided is presumed committed", _one(recovery_module, "abort_undecided", _presume_commit)),
    Mutant("S3", "what is decided is aborted too", _one(recovery_module, "abort_undecided", _sweep_all)),
    Mutant("S4", "what recovery has committed is forgotten", _one(Recovery, "_enter", _not_entered)),
    Mutant("E1", "nobody asks whether the epoch is committed", _one(Coordinator, "_is_committed", _no)),
    Mutant(
        "E1", "one sink that holds the epoch is enough", _one(Coordinator, "_is_held_everywhere", _any_holder_is_enough)
    ),
    Mutant("E2", "a slot is reported and not prepared", _one(Place, "prepare", _report_and_not_prepare)),
    Mutant("E3", "decided when the first slot is prepared", _one(Coordinator, "_check", _first_slot_is_enough)),
    Mutant("E3", "slots are not counted", _one(Coordinator, "_check", _slots_not_counted)),
    Mutant("E4", "committed before the decision", _one(Coordinator, "_decide", _commit_then_decide)),
    Mutant("E4", "no decision is written", _one(Coordinator, "_decide", _nothing)),
    Mutant(
        "E4", "an unknown decision is taken for success", _one(Coordinator, "_decide", _unknown_decision_is_success)
    ),
    Mutant(
        "E4", "an unknown decision is taken for failure", _one(Coordinator, "_decide", _unknown_decision_is_failure)
    ),
    Mutant("E4", "the amended decision is not written", _one(MemoryStore, "amend", _nothing)),
    Mutant("E5", "acknowledged before the commit", _one(Coordinator, "_commit", _nothing)),
    Mutant("E5", "settled before the commit", _one(Coordinator, "_commit", _settle_then_commit)),
    Mutant("E5", "only one sink is committed", _one(epoch_module, "commit_all", _one_sink_is_enough)),
    Mutant("E5", "an unknown commit is taken for success", _answers({Kind.UNKNOWN: COMMITTED})),
    Mutant("E5", "a commit not done is taken for success", _answers({Kind.RETRY: COMMITTED})),
    Mutant("E5", "a lost record is passed over", _answers({Kind.REFUSED: COMMITTED})),
    Mutant("E5", "a lost record is forgotten when another is asked again", _one(Station, "_ask", _loss_is_forgotten)),
    Mutant("E5", "only the slots that were lost are made again", _one(epoch_module, "after_loss", _only_lost_numbers)),
    Mutant("E5", "an unknown commit is taken for failure", _answers({Kind.UNKNOWN: Outcome.refused("taken for lost")})),
    Mutant("E6", "litter is not swept", _one(epoch_module, "abort_undecided", _sweep_nothing)),
    Mutant("E6", "swept before the commit", _one(Coordinator, "_commit", _sweep_then_commit)),
    Mutant(
        "K",
        "the state store does not check the fence",
        _one(MemoryStore, "_owned", _owned_by_anybody),
    ),
    Mutant("K", "the sinks do not check the fence", _one(Place, "check_fence", _nothing)),
    Mutant("K", "the ledger is not asked", _one(Place, "lacks", _lacks_without_ledger)),
    Mutant("K", "an epoch is shown slot by slot", _one(Place, "_show", _show_one_by_one)),
)
