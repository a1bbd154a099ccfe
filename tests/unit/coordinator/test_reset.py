"""What a person may accept: each plan says what it will do, does it, and the pipeline goes on as it said."""

import uuid
from dataclasses import dataclass

import pytest

from pakka.errors import (
    FencedError,
    RefusedError,
    RegressError,
    SinkError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from pakka.model.outcome import Outcome
from pakka.sinks.memory import MemoryCommitter, MemorySink, Space
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import MemoryStore
from tests.unit.coordinator.stage import Crash, Stage, crash_at

FENCE = "take the fence of pipeline `refunds`: a driver that still runs (the last was process 1 on host) will stop"


def memory() -> MemorySink:
    return MemorySink(f"space-{uuid.uuid4()}")


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"whole": memory(), "second": memory()})
    stage.run(3)
    return stage


def rows_of(sink: MemorySink) -> list[int]:
    return sorted(i for table in Space.named(sink.space).rows for i in table.column("id").to_pylist())


def new_checkpoint(stage: Stage) -> None:
    stage.query, stage.planned, stage.acknowledged = "q-2", -1, -1


def crash_after_decision(stage: Stage) -> None:
    """Epoch 4 is decided, and no sink has it."""
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(4)


def test_a_plan_changes_nothing(stage):
    writes = stage.store.writes
    new_checkpoint(stage)
    stage.reset().accept_checkpoint(stage.checkpoint())
    assert stage.store.writes == writes
    with pytest.raises(RegressError):
        stage.run(0)


def test_a_new_checkpoint_is_accepted_and_the_source_delivered_again(stage):
    new_checkpoint(stage)
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.lines == (
        FENCE,
        "deliver batch 0 of the checkpoint at ck as epoch 4",
        "the checkpoint is new: Spark reads the source from its beginning, and rows delivered before are delivered again",
    )
    plan.apply()
    stage.run(1)
    assert rows_of(stage.sinks["whole"]) == sorted(stage.ids(3) + stage.ids(1))
    assert stage.store.read("refunds").committed == 5


def test_an_older_checkpoint_is_accepted_and_says_which_epochs_come_again(stage):
    stage.planned = stage.acknowledged = 1
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.lines[1:] == (
        "deliver batch 2 of the checkpoint at ck as epoch 4",
        "the rows of epochs 2 to 3 are delivered again, under new numbers",
    )
    plan.apply()
    stage.run(3)
    assert rows_of(stage.sinks["whole"]) == sorted(stage.ids(3) + [i for i in stage.ids(3) if i not in stage.ids(1)])
    assert stage.store.read("refunds").committed == 5


def test_a_checkpoint_that_nobody_knows_is_accepted_and_says_what_is_lost():
    stage = Stage({"whole": memory()})
    stage.planned = stage.acknowledged = 7
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.lines == (
        "take the fence of pipeline `refunds`: a driver that still runs will stop",
        "deliver batch 8 of the checkpoint at ck as epoch 0",
        "what the checkpoint has passed, 8 batches, will never be delivered",
    )
    plan.apply()
    stage.run(8)
    assert rows_of(stage.sinks["whole"]) == [i for i in stage.ids(8) if i not in stage.ids(7)]
    stage.run(9)
    assert stage.store.read("refunds").committed == 1


def test_a_checkpoint_ahead_of_the_pipeline_says_how_much_is_left_out(stage):
    stage.planned = stage.acknowledged = 5
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.follows == ("the rows of the 2 batches after batch 3 will never be delivered",)
    plan.apply()
    stage.run(6)
    assert rows_of(stage.sinks["whole"]) == [i for i in stage.ids(6) if i in stage.ids(3) or i not in stage.ids(5)]


def test_the_checkpoint_of_another_query_is_accepted_without_a_promise(stage):
    stage.query = "q-other"
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.follows == (
        "the checkpoint belongs to query q-other, and epochs up to 3 to query q-1: whether rows are delivered again or never is "
        "not known",
    )


def test_a_checkpoint_that_fits_needs_no_reset_and_the_plan_says_so(stage):
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.follows == (
        "checkpoint, state store and sinks agree as they are: a run would go on without this reset",
        "no rows are delivered again, and none are left out",
    )
    plan.apply()
    stage.run(5)
    assert rows_of(stage.sinks["whole"]) == stage.ids(5)


def test_an_epoch_with_other_offsets_makes_no_promise(stage):
    checkpoint = stage.checkpoint()
    checkpoint.digests[3] = "other"
    assert stage.reset().accept_checkpoint(checkpoint).follows == (
        "epoch 3 was delivered with other source offsets than the checkpoint has for it: whether rows are delivered again or "
        "never is not known",
    )


def test_a_decided_epoch_is_finished_before_a_new_checkpoint_is_accepted(stage):
    crash_after_decision(stage)
    new_checkpoint(stage)
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.steps == (
        FENCE,
        "finish epoch 4, which is decided: commit its records to sink `second`, `whole`",
        "deliver batch 0 of the checkpoint at ck as epoch 5",
    )
    plan.apply()
    assert [rows_of(sink) for sink in stage.sinks.values()] == [stage.ids(4)] * 2
    stage.run(0)
    assert stage.store.read("refunds").committed == 5


def test_the_part_of_a_sink_that_is_gone_is_given_up_in_so_many_words(stage):
    crash_after_decision(stage)
    stage.sinks = {"whole": stage.sinks["whole"]}
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.steps[1] == (
        "finish epoch 4, which is decided: commit its records to sink `whole`, and give up those of sink `second`, which the "
        "pipeline no longer has"
    )
    plan.apply()
    assert rows_of(stage.sinks["whole"]) == stage.ids(4)
    assert stage.store.read("refunds").open == ()


def test_what_is_prepared_and_undecided_does_not_keep_a_decided_epoch_from_being_finished():
    world = World()
    stage = Stage({"slots": SimulatedSink(world)})
    stage.run(1)
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(2)
    stage.write(stage.store.read("refunds").open[0].epoch, stage.store.read("refunds").fence, 0)
    new_checkpoint(stage)
    stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    assert world.prepared == {}
    assert [(s.epoch, s.number) for s in world.visible] == [(e, n) for e in range(3) for n in range(2)]


def test_records_that_a_sink_has_lost_keep_a_checkpoint_from_being_accepted():
    world = World()
    stage = Stage({"slots": SimulatedSink(world)})
    crash_after_decision(stage)
    world.prepared.clear()
    new_checkpoint(stage)
    with pytest.raises(RefusedError, match="sink `slots` has lost 2 of its prepared records") as error:
        stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    assert "pakka reset refunds --sink slots" in error.value.hint
    assert not stage.store.read("refunds").is_reset


def test_sinks_ahead_of_a_lost_state_store_are_entered_first(stage):
    stage.store = MemoryStore()
    new_checkpoint(stage)
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    assert plan.steps[1:] == (
        "enter epoch 3 as committed, which the sinks hold and the state store does not know",
        "deliver batch 0 of the checkpoint at ck as epoch 4",
    )
    plan.apply()
    stage.run(0)
    assert rows_of(stage.sinks["second"]) == sorted(stage.ids(3) + stage.ids(0))


def test_a_sink_behind_the_others_is_not_passed_over_by_accepting_a_checkpoint(stage):
    # The state store and the checkpoint are lost after only one of two sinks has committed epoch 4.
    with crash_at("commit.sink", nth=2), pytest.raises(Crash):
        stage.run(4)
    behind = next(n for n, sink in stage.sinks.items() if rows_of(sink) == stage.ids(3))
    stage.store = MemoryStore()
    new_checkpoint(stage)
    stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    with pytest.raises(RegressError, match=f"sink `{behind}` holds only epochs up to 3") as error:
        stage.run(0)
    assert f"pakka reset refunds --sink {behind}" in error.value.hint
    stage.reset().accept_sink(behind).apply()
    stage.run(0)
    assert stage.store.read("refunds").committed == 5


def test_sinks_ahead_of_an_older_state_store_are_entered_first(stage):
    old = dict(stage.store.states)
    stage.run(5)
    stage.store.states = old
    new_checkpoint(stage)
    stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    stage.run(0)
    assert stage.store.read("refunds").committed == 6


def test_an_epoch_committed_slot_by_slot_is_not_promised_to_be_whole():
    stage = Stage({"slots": SimulatedSink(World())})
    with crash_at("commit.slot", nth=2), pytest.raises(Crash):
        stage.run(0)
    stage.store = MemoryStore()
    new_checkpoint(stage)
    assert stage.reset().accept_checkpoint(stage.checkpoint()).follows[0] == (
        "sink `slots` committed epoch 0 slot by slot; whether all of it is there is not known"
    )


def test_a_reset_that_was_cut_off_can_be_done_again(stage):
    crash_after_decision(stage)
    new_checkpoint(stage)
    with crash_at("commit.sink", nth=2), pytest.raises(Crash):
        stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    stage.run(0)
    assert [rows_of(sink) for sink in stage.sinks.values()] == [sorted(stage.ids(4) + stage.ids(0))] * 2


def test_a_driver_that_still_runs_is_fenced_out_by_a_reset(stage):
    driver = stage.driver()
    driver.start(stage.checkpoint())
    stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    with pytest.raises(FencedError):
        driver.deliver(stage.origin(4), stage.prepare)


def test_a_pipeline_that_went_on_since_the_plan_is_not_reset(stage):
    plan = stage.reset().accept_checkpoint(stage.checkpoint())
    stage.run(4)
    with pytest.raises(RefusedError, match="went on while this reset was planned"):
        plan.apply()
    assert not stage.store.read("refunds").is_reset


def test_a_deleted_output_is_accepted_and_the_pipeline_goes_on(stage):
    sink = stage.sinks["whole"]
    Space._named.pop(sink.space)
    plan = stage.reset().accept_sink("whole")
    assert plan.lines == (
        FENCE,
        f"enter epoch 3 in the ledger of sink `whole` (memory:{sink.space}), with no rows",
        "the rows of epochs 0 to 3 that are not in sink `whole` now will never be there",
        "no other sink is touched",
    )
    plan.apply()
    stage.run(5)
    assert rows_of(sink) == [i for i in stage.ids(5) if i not in stage.ids(3)]
    assert rows_of(stage.sinks["second"]) == stage.ids(5)


def test_an_output_restored_from_an_older_copy_is_accepted(stage):
    space = Space.named(stage.sinks["whole"].space)
    saved = (list(space.rows), dict(space.ledger))
    stage.run(4)
    space.rows, space.ledger = saved
    plan = stage.reset().accept_sink("whole")
    assert plan.follows[0] == "the rows of epoch 4 that are not in sink `whole` now will never be there"
    plan.apply()
    stage.run(5)
    assert rows_of(stage.sinks["second"]) == stage.ids(5)


def test_accepting_a_sink_commits_what_is_decided_for_it(stage):
    crash_after_decision(stage)
    Space._named.pop(stage.sinks["whole"].space)
    plan = stage.reset().accept_sink("whole")
    assert plan.steps[2] == "commit what sink `whole` still has of epoch 4, which is decided"
    plan.apply()
    assert rows_of(stage.sinks["whole"]) == [i for i in stage.ids(4) if i not in stage.ids(3)]
    stage.run(5)
    assert rows_of(stage.sinks["second"]) == stage.ids(5)


@dataclass(frozen=True)
class LosingSink(MemorySink):
    """Has lost whatever was prepared in it."""

    def open_committer(self, binding, fence):
        committer = super().open_committer(binding, fence)
        enter = committer.commit_epoch
        committer.commit_epoch = lambda epoch, prepared: Outcome.refused("gone") if prepared else enter(epoch, prepared)
        return committer


def test_decided_records_that_a_sink_has_lost_are_given_up(stage):
    crash_after_decision(stage)
    stage.sinks = {**stage.sinks, "whole": LosingSink(stage.sinks["whole"].space)}
    plan = stage.reset().accept_sink("whole")
    assert plan.lines == (
        FENCE,
        "commit what sink `whole` still has of epoch 4, which is decided",
        "what sink `whole` has lost of epoch 4 will never be there",
        "no other sink is touched",
    )
    plan.apply()
    stage.sinks = {**stage.sinks, "whole": MemorySink(stage.sinks["whole"].space)}
    stage.run(5)
    assert rows_of(stage.sinks["whole"]) == [i for i in stage.ids(5) if i in stage.ids(3) or i not in stage.ids(4)]
    assert rows_of(stage.sinks["second"]) == stage.ids(5)


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (Outcome.retry("disk full", "make room"), SinkError, "was not entered in its ledger: disk full"),
        (Outcome.unknown("no answer", "make room"), UnknownOutcomeError, "was entered in its ledger is not known"),
    ],
)
def test_an_epoch_that_is_not_entered_is_told_with_what_the_sink_wants(stage, monkeypatch, outcome, error, words):
    Space._named.pop(stage.sinks["whole"].space)
    plan = stage.reset().accept_sink("whole")
    monkeypatch.setattr(MemoryCommitter, "commit_epoch", lambda *_: outcome)
    with pytest.raises(error, match=words) as raised:
        plan.apply()
    assert raised.value.hint == "make room; then do it again: entering an epoch twice is entering it once"


def test_a_sink_that_lacks_what_the_others_hold_without_a_decision_is_accepted(stage):
    # The state store is lost after only one of two sinks has committed epoch 4, and the epoch comes out differently.
    with crash_at("commit.sink", nth=2), pytest.raises(Crash):
        stage.run(4)
    behind, ahead = sorted(stage.sinks, key=lambda name: len(rows_of(stage.sinks[name])))
    stage.store, stage.rows = MemoryStore(), 5
    with pytest.raises(RegressError, match="had to run again"):
        stage.run(4)
    with pytest.raises(RefusedError, match=f"sink `{ahead}` holds epoch 4") as error:
        stage.reset().accept_sink(ahead)
    assert error.value.hint == f"sink `{behind}` does: `pakka reset refunds --sink {behind}`"
    plan = stage.reset().accept_sink(behind)
    assert plan.steps[1].startswith("enter epoch 4, which sinks hold and no decision names, in the ledger of sink")
    assert plan.follows[0] == f"the rows of epoch 4 that are not in sink `{behind}` now will never be there"
    plan.apply()
    stage.run(5)
    assert stage.store.read("refunds").committed == 5


def test_a_sink_that_lacks_nothing_is_refused(stage):
    with pytest.raises(
        RefusedError, match="sink `whole` holds epoch 3, the newest of pipeline `refunds`: it lacks nothing"
    ):
        stage.reset().accept_sink("whole")


def test_a_sink_that_does_not_exist_is_refused_with_the_nearest(stage):
    with pytest.raises(UsageError) as error:
        stage.reset().accept_sink("hole")
    assert error.value.hint == "did you mean `whole`?"


def test_a_fence_that_cannot_be_raised_ends_the_reset():
    world = World()
    stage = Stage({"slots": SimulatedSink(world)})
    crash_after_decision(stage)
    held = dict(world.prepared)

    class Stubborn(dict):
        def pop(self, *_):
            return None

    world.prepared = Stubborn(held)
    new_checkpoint(stage)
    with pytest.raises(UnavailableError, match="something prepared is in its way; the reset was not done"):
        stage.reset().accept_checkpoint(stage.checkpoint()).apply()
    assert stage.waits


def test_a_pipeline_with_outputs_is_not_forgotten(stage):
    with pytest.raises(RefusedError, match="sink `whole` holds epochs up to 3 in memory:") as error:
        stage.reset().forget("ck")
    assert error.value.hint.startswith("remove these outputs first")


def test_a_pipeline_without_outputs_is_forgotten_and_can_begin_again(stage):
    crash_after_decision(stage)
    for sink in stage.sinks.values():
        Space._named.pop(sink.space)
    plan = stage.reset().forget("ck")
    assert plan.lines == (
        FENCE,
        "abort whatever is still prepared in the sinks",
        "remove pipeline `refunds` from state store memory of this process",
        "epoch 4 is decided and was never finished; it is given up",
        "delete the checkpoint at ck too, or the next run refuses it",
    )
    plan.apply()
    assert stage.store.read("refunds") is None
    new_checkpoint(stage)
    stage.run(1)
    assert rows_of(stage.sinks["whole"]) == stage.ids(1)


def test_forgetting_leaves_nothing_prepared():
    world = World()
    stage = Stage({"slots": SimulatedSink(world)})
    with crash_at("decide.before"), pytest.raises(Crash):
        stage.run(0)
    assert world.prepared
    stage.reset().forget("ck").apply()
    assert world.prepared == {}


def test_a_pipeline_that_nobody_knows_is_not_forgotten(stage):
    with pytest.raises(UsageError, match="knows no pipeline `refunds`"):
        Stage(stage.sinks).reset().forget("ck")
