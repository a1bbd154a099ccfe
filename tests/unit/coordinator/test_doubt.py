"""The desk: what is in doubt, what becomes of it, and why; and settling it by recovery and nothing else."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from pakka.contract.doubt import Doubt, Doubting
from pakka.contract.sink import Committer, Sink
from pakka.contract.state import Decision, Owner
from pakka.coordinator.doubt import Desk, Fate, Survey
from pakka.coordinator.resolve import Deed, Do, Resolve
from pakka.coordinator.retry import Retry
from pakka.errors import RefusedError, RegressError, SinkError, UnavailableError
from pakka.model.epoch import Count, Epoch
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.sinks.memory import MemorySink
from pakka.testing.simulated import SimulatedCommitter, SimulatedSink, World
from tests.unit.coordinator.stage import Crash, Inline, Stage, crash_at

NOW = 600.0
FOREIGN = Doubt("payroll-17", None, age_s=9000.0, locks=("salaries RowExclusiveLock",))


class TellingCommitter(SimulatedCommitter):
    """Tells as much as a server does, and sees what others have prepared there."""

    def in_doubt(self) -> Sequence[Doubt]:
        told = [Doubt(f"{slot}/5.6", slot, age_s=42.0, locks=("rows locked",)) for slot in self.world.prepared]
        return [*told, FOREIGN]

    def abort(self, prepared: Sequence[Prepared]) -> None:
        assert FOREIGN.id not in {str(p.slot) for p in prepared}
        super().abort(prepared)


@dataclass(frozen=True, eq=False)
class TellingSink(SimulatedSink):
    def open_committer(self, binding: Binding, fence: int) -> Committer:
        return TellingCommitter(binding, fence, self.world)


def desk(stage: Stage, is_alive: bool | None = False, sinks: dict[str, Sink] | None = None) -> Desk:
    return Desk("refunds", sinks or stage.sinks, None, "spool", lambda: NOW, lambda _: is_alive)


def look(stage: Stage, is_alive: bool | None = False) -> Survey:
    return desk(stage, is_alive).survey(stage.store)


def resolve(stage: Stage, is_alive: bool | None = False) -> Resolve:
    owner = Owner("desk", 2, 0.0)
    return Resolve(desk(stage, is_alive), stage.store, owner, stage.waits.append, Inline(), Retry(attempts=3))


def crashed(stage: Stage, point: str, nth: int = 1) -> Stage:
    with crash_at(point, nth), pytest.raises(Crash):
        stage.run(stage.acknowledged + 1)
    return stage


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def stage(world) -> Stage:
    """Epoch 0 is delivered. One sink commits slot by slot and tells much, the other has nothing to list."""
    stage = Stage({"slots": TellingSink(world), "whole": MemorySink(f"space-{uuid.uuid4()}")})
    stage.run(0)
    return stage


def fates(survey: Survey) -> set[tuple[str, Fate]]:
    return {(case.sink, case.fate) for case in survey.cases}


def reasons(survey: Survey, sink: str = "slots") -> set[str]:
    return {case.because for case in survey.cases if case.sink == sink}


def test_a_settled_pipeline_has_nothing_in_doubt(stage):
    found = look(stage)
    assert (found.cases, found.unentered, found.is_clear, found.oldest_s) == ((), (), True, None)


def test_a_pipeline_that_never_ran_has_nothing_in_doubt(world):
    assert look(Stage({"slots": TellingSink(world)})).is_clear


def test_what_a_decision_names_will_be_committed(stage, world):
    crashed(stage, "decide.after")
    found = look(stage)
    assert fates(found) == {("slots", Fate.COMMIT), ("whole", Fate.COMMIT)}
    assert reasons(found) == {"decided by fence 2"}
    first = found.cases[0]
    assert first.doubt == Doubt(f"{first.slot}/5.6", first.slot, 42.0, 3, ("rows locked",))
    assert [case.slot.number for case in found.of_sink("slots").cases] == [0, 1]


def test_a_sink_that_lists_nothing_is_told_from_the_decision(stage):
    crashed(stage, "decide.after")
    found = look(stage)
    assert {(c.doubt.id, c.doubt.rows, c.doubt.age_s) for c in found.of_sink("whole").cases} == {
        (str(c.slot), 3, NOW) for c in found.cases if c.sink == "whole"
    }
    assert reasons(found, "whole") == {
        "decided by fence 2; the sink does not list it: its record is enough to commit it, or it is lost"
    }
    assert found.oldest_s == NOW
    assert found.of_sink("slots").oldest_s == 42.0


def test_what_no_decision_names_will_be_aborted(stage, world):
    crashed(stage, "decide.before")
    assert fates(look(stage)) == {("slots", Fate.ABORT)}
    assert reasons(look(stage)) == {"no decision names it, and its driver, process 1 on host, has ended"}
    assert {case.doubt.rows for case in look(stage).cases} == {None}


@pytest.mark.parametrize(
    ("is_alive", "because"),
    [
        (True, "not decided yet; its driver, process 1 on host, runs"),
        (None, "not decided; process 1 on host may still decide it; if that has ended, it is aborted"),
    ],
)
def test_what_a_driver_may_still_decide_is_in_flight(stage, is_alive, because):
    crashed(stage, "decide.before")
    found = look(stage, is_alive)
    assert fates(found) == {("slots", Fate.IN_FLIGHT)}
    assert reasons(found) == {because}


def test_what_a_running_driver_has_decided_it_commits_itself(stage):
    crashed(stage, "decide.after")
    assert reasons(look(stage, is_alive=True)) == {"decided by fence 2, whose driver runs and commits it"}


def test_what_an_older_fence_prepared_will_be_aborted_whoever_runs(stage):
    crashed(stage, "decide.before")
    stage.store.take_fence("refunds", Owner("host", 9, 0.0))
    found = look(stage, is_alive=True)
    assert fates(found) == {("slots", Fate.ABORT)}
    assert reasons(found) == {"no decision names it, and fence 2 is older than fence 3"}


def test_what_a_forgotten_fence_prepared_is_told_as_such(stage):
    crashed(stage, "decide.after")
    stage.store.forget("refunds")
    assert reasons(look(stage)) == {
        "no decision names it; the state store holds fence 0, and this is of fence 2: it was lost, or is an older copy"
    }


def test_what_is_left_over_from_a_committed_epoch_is_told_as_such(stage, world):
    litter = Slot("refunds", "slots", 0, 1, 0, 99)
    world.prepared[litter] = Prepared(litter, 3, "00")
    found = look(stage, is_alive=True)
    assert fates(found) == {("slots", Fate.ABORT)}
    assert reasons(found) == {"left over: epoch 0 is committed, and no decision that is open names it"}


def test_what_a_sink_holds_by_its_own_ledger_is_not_in_doubt(stage):
    crashed(stage, "commit.sink", nth=2)
    assert fates(look(stage)) == {("whole", Fate.COMMIT)}


def test_one_slot_of_two_is_in_doubt_if_the_other_is_committed(stage, world):

    def answer(step, record):
        if step == "after" and record.slot.number == 0:
            raise Crash
        return None

    world.answer = answer
    with pytest.raises(Crash):
        stage.run(1)
    assert [case.slot.number for case in look(stage).of_sink("slots").cases] == [1]


def test_an_epoch_that_only_the_state_store_lacks_is_no_record_in_doubt(stage):
    crashed(stage, "commit.after")
    found = look(stage)
    assert (found.cases, found.unentered, found.is_clear) == ((), (1,), False)
    # The driver enters it with its next epoch, or at its end.
    assert look(stage, is_alive=True).is_clear


def test_what_is_decided_for_a_sink_that_was_removed_is_not_passed_over(stage):
    crashed(stage, "decide.after")
    del stage.sinks["whole"]
    found = look(stage)
    assert ("whole", Fate.UNKNOWN) in fates(found)
    with pytest.raises(RegressError, match="is decided for sink `whole`, which the pipeline no longer has"):
        resolve(stage).plan(stage.checkpoint)


def test_without_a_state_store_nothing_is_said_of_what_becomes_of_it(stage):
    crashed(stage, "decide.after")
    found = desk(stage).survey(None)
    assert fates(found) == {("slots", Fate.UNKNOWN)}
    assert reasons(found) == {"there is no state store to ask for its decision"}


def test_what_others_have_prepared_is_shown_once_and_left_alone(stage, world):
    stage.sinks["second"] = TellingSink(World(), "second")
    assert look(stage).foreign in ((("second", FOREIGN),), (("slots", FOREIGN),))
    crashed(stage, "decide.before")
    resolve(stage).resolve(stage.checkpoint, take_over=False)
    assert [doubt for _, doubt in look(stage).foreign] == [FOREIGN]


def test_what_belongs_to_the_other_sink_on_the_same_server_is_not_foreign(stage, world):
    """Both ask one server, and each sees what the other has prepared."""
    other = World()

    class Neighbour(TellingCommitter):
        def in_doubt(self) -> Sequence[Doubt]:
            return [Doubt(f"{slot}/5.6", None) for slot in world.prepared]

    @dataclass(frozen=True, eq=False)
    class NeighbourSink(SimulatedSink):
        def open_committer(self, binding: Binding, fence: int) -> Committer:
            return Neighbour(binding, fence, other)

    crashed(stage, "decide.before")
    sinks = {**stage.sinks, "neighbour": NeighbourSink(other, "neighbour")}
    assert [doubt.id for _, doubt in desk(stage, sinks=sinks).survey(stage.store).foreign] == [FOREIGN.id]


class Silent:
    """A sink whose server does not answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SinkError("sink `refunds.silent`: no rights"), "sink `refunds.silent`: no rights"),
        (OSError("broken pipe"), "sink `refunds.silent`: cannot be asked what is in doubt: OSError: broken pipe; nothing was changed"),
    ],
    ids=["its own words", "a driver's error"],
)  # fmt: skip
def test_a_sink_that_cannot_be_asked_does_not_hide_the_others_and_is_not_resolved_around(stage, error, told):
    crashed(stage, "commit.after")
    stage.sinks["silent"] = Silent(error)
    found = look(stage)
    assert [trouble.message for trouble in found.troubles] == [told]
    assert found.unentered == ()
    with pytest.raises(type(error) if isinstance(error, SinkError) else UnavailableError):
        resolve(stage).resolve(stage.checkpoint, take_over=True)


def test_a_plan_changes_nothing_and_is_what_is_done(stage, world):
    crashed(stage, "decide.after")
    writes, prepared = stage.store.writes, dict(world.prepared)
    planned = resolve(stage).plan(stage.checkpoint)
    assert (stage.store.writes, world.prepared, world.fence) == (writes, prepared, 2)
    assert planned.deeds == (
        Deed(Do.COMMIT, 1, "slots", 2, 6),
        Deed(Do.COMMIT, 1, "whole", 2, 6),
        Deed(Do.ENTER, 1),
    )
    done = resolve(stage).resolve(stage.checkpoint, take_over=False)
    assert (done.deeds, done.fence) == (planned.deeds, 3)
    assert (done.count(Do.COMMIT), done.count(Do.ABORT), done.count(Do.ENTER)) == (4, 0, 1)
    assert look(stage).is_clear
    stage.run(2)
    assert sorted(slot.epoch for slot in world.visible) == [0, 0, 1, 1, 2, 2]


def test_undecided_records_are_aborted_and_the_epoch_runs_again(stage, world):
    crashed(stage, "decide.before")
    done = resolve(stage).resolve(stage.checkpoint, take_over=False)
    assert done.deeds == (Deed(Do.ABORT, 1, "slots", 2),)
    assert world.prepared == {}
    stage.run(1)
    assert sorted(slot.epoch for slot in world.visible) == [0, 0, 1, 1]


def test_nothing_in_doubt_is_nothing_done_and_no_fence_taken(stage):
    writes = stage.store.writes
    done = resolve(stage, is_alive=True).resolve(stage.checkpoint, take_over=True)
    assert (done.deeds, done.fence, stage.store.writes) == ((), None, writes)


@pytest.mark.parametrize(
    ("is_alive", "said"), [(True, "runs;"), (None, "may still run, which cannot be seen from here;")]
)
def test_a_driver_that_may_run_is_taken_over_from_only_if_told_so(stage, is_alive, said):
    crashed(stage, "decide.before")
    writes = stage.store.writes
    with pytest.raises(RefusedError) as error:
        resolve(stage, is_alive).resolve(stage.checkpoint, take_over=False)
    assert f"its driver, process 1 on host, {said}" in error.value.message
    assert stage.store.writes == writes
    assert resolve(stage, is_alive).resolve(stage.checkpoint, take_over=True).fence == 3


def test_a_record_that_its_sink_has_lost_is_told_and_its_epoch_stays_open(stage, world):
    crashed(stage, "decide.after")
    world.lose(next(iter(world.prepared)))
    done = resolve(stage).resolve(stage.checkpoint, take_over=False)
    assert done.deeds == (
        Deed(Do.COMMIT, 1, "slots", 1, 3),
        Deed(Do.COMMIT, 1, "whole", 2, 6),
        Deed(Do.LOST, 1, "slots", 1, 3),
    )
    assert done.lost == done.deeds[2:]
    assert fates(look(stage)) == {("slots", Fate.COMMIT)}
    stage.run(1)
    assert sorted(slot.epoch for slot in world.visible) == [0, 0, 1, 1]


def test_a_lost_state_store_is_taken_over_from_the_sinks_as_recovery_does(stage, world):
    crashed(stage, "decide.after")
    stage.store.forget("refunds")
    planned = resolve(stage).plan(stage.checkpoint)
    assert planned.deeds == (Deed(Do.ABORT, 1, "slots", 2), Deed(Do.ENTER, 0))
    done = resolve(stage).resolve(stage.checkpoint, take_over=False)
    assert done.deeds == planned.deeds
    assert stage.store.read("refunds").committed == 0


@pytest.mark.parametrize("do", ["plan", "resolve"])
def test_what_recovery_refuses_is_refused_before_the_fence_is_taken(stage, do):
    crashed(stage, "decide.after")
    stage.store.forget("refunds")
    stage.query = "q-2"
    writes = stage.store.writes
    with pytest.raises(RegressError, match="holds epochs of query q-1"):
        resolve(stage).plan(stage.checkpoint) if do == "plan" else resolve(stage).resolve(stage.checkpoint, True)
    assert stage.store.writes == writes


def test_a_checkpoint_that_moved_while_it_was_compared_is_compared_again(stage):
    """A driver that runs goes on between two looks: that is no contradiction. One that stood still is."""
    crashed(stage, "decide.after")
    newest = stage.checkpoint()
    older = replace(newest, planned=-1, acknowledged=-1)
    looks = iter([older, newest, newest])
    assert resolve(stage).plan(lambda: next(looks)).count(Do.COMMIT) == 4
    looks = iter([older, older])
    with pytest.raises(RegressError):
        resolve(stage).plan(lambda: next(looks))
    moving = (replace(older, path=f"ck{n}") for n in range(100))
    with pytest.raises(RegressError):
        resolve(stage).plan(lambda: next(moving))


def test_what_a_driver_decides_in_between_is_committed_and_not_what_the_plan_said(stage, world):
    """It went on after the survey and before the fence: only what recovery finds under its fence counts."""
    crashed(stage, "decide.before")

    def decide_while_it_is_looked_at():
        if stage.store.read("refunds").fence == 2:
            epoch = Epoch("refunds", 1, stage.origin(1))
            stage.store.decide(Decision(epoch, 2, tuple(world.prepared.values()), Count(6, 6), 0.0))
        return stage.checkpoint()

    done = resolve(stage).resolve(decide_while_it_is_looked_at, take_over=False)
    assert done.deeds == (Deed(Do.COMMIT, 1, "slots", 2, 6), Deed(Do.ENTER, 1))


def test_the_power_to_tell_more_is_recognised(world):
    binding = Binding("refunds", "slots", "spool")
    assert isinstance(TellingSink(world).open_committer(binding, 1), Doubting)
    assert not isinstance(SimulatedSink(world).open_committer(binding, 1), Doubting)
