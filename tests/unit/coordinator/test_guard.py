"""The regress guard: what it adopts, and what it refuses before anything is written."""

import uuid
from dataclasses import replace

import pytest

from pakka.errors import RegressError, SinkError
from pakka.sinks.memory import MemorySink, Space
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import MemoryStore
from tests.unit.coordinator.stage import Crash, Stage, crash_at


@pytest.fixture
def memory() -> MemorySink:
    return MemorySink(f"space-{uuid.uuid4()}")


@pytest.fixture
def stage(memory) -> Stage:
    stage = Stage({"whole": memory, "second": MemorySink(f"second-{uuid.uuid4()}")})
    stage.run(3)
    return stage


def rows_of(sink: MemorySink) -> list[int]:
    return sorted(i for table in Space.named(sink.space).rows for i in table.column("id").to_pylist())


def all_once(stage: Stage, upto: int) -> bool:
    return all(rows_of(sink) == stage.ids(upto) for sink in stage.sinks.values())


def refused(stage: Stage, words: str, command: str) -> None:
    before = {name: rows_of(sink) for name, sink in stage.sinks.items()}
    with pytest.raises(RegressError, match=words) as error:
        stage.run(stage.acknowledged + 1)
    assert command in error.value.hint
    assert {name: rows_of(sink) for name, sink in stage.sinks.items()} == before


def test_a_deleted_checkpoint_is_refused(stage):
    stage.query, stage.planned, stage.acknowledged = "q-2", -1, -1
    refused(stage, "is new, but epochs up to 3 were delivered by query q-1", "pakka reset refunds --checkpoint")


def test_the_checkpoint_of_another_pipeline_is_refused(stage):
    stage.query = "q-other"
    refused(stage, "belongs to query q-other", "pakka reset refunds --checkpoint")


def test_a_checkpoint_restored_from_an_older_copy_is_refused(stage):
    stage.planned = stage.acknowledged = 1
    refused(stage, "older than the pipeline", "pakka reset refunds --checkpoint")


def test_a_checkpoint_one_epoch_older_without_its_offsets_is_refused(stage):
    stage.planned = stage.acknowledged = 2
    refused(stage, "older than the pipeline", "pakka reset refunds --checkpoint")


def test_a_lost_state_store_is_adopted_from_the_ledgers(stage):
    stage.store = MemoryStore()
    stage.run(5)
    assert all_once(stage, 5)
    assert stage.store.read("refunds").fence > 1


def test_a_state_store_restored_from_an_older_copy_is_brought_up_to_date(stage):
    old = dict(stage.store.states)
    stage.run(5)
    stage.store.states = old
    stage.run(7)
    assert all_once(stage, 7)


@pytest.mark.parametrize("point", ["decide.after", "commit.sink", "commit.after", "acknowledge.before"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_state_store_lost_in_the_middle_of_an_epoch_loses_and_doubles_nothing(stage, point, nth):
    with crash_at(point, nth), pytest.raises(Crash):
        stage.run(5)
    stage.store = MemoryStore()
    stage.run(6)
    assert all_once(stage, 6)


def test_a_state_store_lost_between_two_slots_is_finished_by_comparing(memory):
    world = World()
    stage = Stage({"whole": memory, "slots": SimulatedSink(world)}, slots=12)
    with crash_at("commit.slot", nth=3), pytest.raises(Crash):
        stage.run(0)
    assert 0 < len(world.visible) < stage.slots
    stage.store = MemoryStore()
    stage.run(1)
    assert rows_of(memory) == stage.ids(1)
    assert sorted((s.epoch, s.number) for s in world.visible) == [(e, n) for e in (0, 1) for n in range(12)]


def test_a_state_store_lost_with_rows_that_came_out_differently_stops(memory):
    world = World()
    stage = Stage({"whole": memory, "slots": SimulatedSink(world)}, slots=12)
    with crash_at("commit.slot", nth=3), pytest.raises(Crash):
        stage.run(0)
    stage.store, stage.rows = MemoryStore(), 5
    with pytest.raises(RegressError, match="had to run again"):
        stage.run(0)


class TestAnAcknowledgedEpochThatASinkHoldsInPart:
    """Its output was restored from a copy that was made while the epoch was being committed; or only the mark is lost that it is whole."""

    @pytest.fixture
    def world(self):
        return World()

    @pytest.fixture(params=["settled", "open"])
    def stage(self, world, request):
        """In the state store the epoch is committed, or still decided: the next one's decision would have settled it."""
        stage = Stage({"slots": SimulatedSink(world)})
        if request.param == "settled":
            stage.run(3)
        else:
            with crash_at("begin", nth=5), pytest.raises(Crash):
                stage.run(4)
        world.is_whole = False
        return stage

    def test_is_refused_if_rows_of_it_are_gone(self, stage, world):
        del world.slots[0]
        with pytest.raises(
            RegressError, match=r"sink `slots` holds epoch 3 only in part .* but epochs up to 3"
        ) as error:
            stage.run(4)
        assert "pakka reset refunds --sink slots" in error.value.hint
        assert max(slot.epoch for slot in world.visible) == 3
        stage.reset().accept_sink("slots").apply()
        stage.run(4)
        assert max(slot.epoch for slot in world.visible) == 4

    def test_is_marked_again_if_its_slots_vouch_for_it(self, stage, world):
        """Or who loses the state store next is refused."""
        driver = stage.driver()
        driver.start(stage.checkpoint())
        driver.stop()
        assert (world.epoch.number, world.is_whole) == (3, True)

    def test_is_taken_for_whole_if_its_slots_vouch_for_it(self, stage, world):
        stage.run(4)
        assert sorted((s.epoch, s.number) for s in world.visible) == [(e, n) for e in range(5) for n in range(2)]

    def test_is_refused_if_the_state_store_that_could_tell_is_lost(self, stage):
        stage.store = MemoryStore()
        with pytest.raises(RegressError, match="holds epoch 3 only in part"):
            stage.run(4)


def test_a_lost_state_store_and_checkpoint_are_refused(stage):
    stage.store = MemoryStore()
    stage.query, stage.planned, stage.acknowledged = "q-2", -1, -1
    refused(stage, "sinks hold epochs up to 3", "pakka reset refunds --checkpoint")


def test_a_lost_state_store_with_a_foreign_checkpoint_is_refused(stage):
    stage.store, stage.query = MemoryStore(), "q-other"
    refused(stage, "holds epochs of query q-1", "pakka reset refunds --checkpoint")


def test_a_checkpoint_that_nobody_knows_is_refused(memory):
    stage = Stage({"whole": memory})
    stage.planned = stage.acknowledged = 7
    refused(stage, "has acknowledged 8 epochs, which neither", "pakka reset refunds --checkpoint")


def test_a_deleted_output_is_refused(stage, memory):
    Space._named.pop(memory.space)
    refused(stage, "sink `whole` holds nothing", "pakka reset refunds --sink whole")


def test_an_output_restored_from_an_older_copy_is_refused(stage, memory):
    space = Space.named(memory.space)
    saved = (list(space.rows), dict(space.ledger))
    stage.run(5)
    space.rows, space.ledger = saved
    refused(stage, "sink `whole` holds only epochs up to 3", "pakka reset refunds --sink whole")


def test_a_sink_that_remembers_no_epochs_still_tells_its_fence(memory):
    """Else a lost state store would begin below the fence that such a sink has seen, and be fenced out by it."""

    class Forgetful(MemorySink):
        def open_committer(self, binding, fence):
            committer = super().open_committer(binding, fence)
            ledger = committer.ledger
            committer.ledger = lambda: replace(ledger(), last=None, keeps_epochs=False)
            return committer

    stage = Stage({"shown": Forgetful(memory.space)})
    for _ in range(3):
        stage.run(stage.acknowledged + 1)
    stage.store = MemoryStore()
    stage.run(stage.acknowledged + 1)
    assert stage.store.read("refunds").fence == 4


def test_a_sink_added_to_a_running_pipeline_begins_with_the_next_epoch(stage):
    added = MemorySink(f"added-{uuid.uuid4()}")
    stage.sinks = {**stage.sinks, "added": added}
    stage.run(5)
    assert rows_of(added) == [i for i in stage.ids(5) if i not in stage.ids(3)]


def test_a_sink_removed_while_an_epoch_is_decided_for_it_is_refused(stage):
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(5)
    stage.sinks = {"whole": stage.sinks["whole"]}
    with pytest.raises(RegressError, match="decided for sink `second`"):
        stage.run(5)


def test_an_epoch_with_other_offsets_than_before_is_refused(stage):
    driver = stage.driver()
    driver.start(stage.checkpoint())
    stage.query = "q-9"
    with pytest.raises(RegressError, match="its rows are not the same"):
        driver.deliver(stage.origin(3), stage.prepare)


def test_an_epoch_that_leaves_a_gap_is_refused(stage):
    driver = stage.driver()
    driver.start(stage.checkpoint())
    with pytest.raises(RegressError, match="never delivered"):
        driver.deliver(stage.origin(6), stage.prepare)


def test_a_new_checkpoint_is_taken_after_a_reset(stage):
    delivered = [len(rows_of(s)) for s in stage.sinks.values()]
    stage.query, stage.planned, stage.acknowledged = "q-2", -1, -1
    stage.store.reset("refunds", 4)
    stage.run(1)
    assert [len(rows_of(s)) for s in stage.sinks.values()] == [n + 2 * stage.slots * stage.rows for n in delivered]
    assert stage.store.read("refunds").committed == 5
    stage.run(2)
    assert stage.store.read("refunds").committed == 6


def test_an_output_with_an_epoch_of_the_same_number_and_other_rows_is_refused(stage, memory):
    other = MemorySink(f"other-{uuid.uuid4()}")
    foreign = Stage({"whole": other})
    foreign.query = "q-foreign"
    foreign.run(3)
    Space._named[memory.space] = Space.named(other.space)
    refused(stage, "sink `whole` holds an epoch 3 of query q-foreig", "give sink `whole` another output")


def test_a_batch_of_another_key_is_not_taken_for_one_that_a_sink_already_holds(memory):
    """The state store is one epoch older than the sink, and there is no checkpoint to say so."""
    stage = Stage({"whole": memory})
    stage.run(0)
    old = dict(stage.store.states)
    stage.run(1)
    stage.store.states = old
    driver = stage.driver()
    driver.start(None)
    stage.query = "another key"
    with pytest.raises(RegressError, match="its rows are not the same"):
        driver.deliver(stage.origin(1), stage.prepare)


def test_an_epoch_that_one_sink_held_before_is_known_to_be_in_both(stage, memory):
    """Else that sink would look like a new one, and the loss of its output would go unnoticed."""
    with crash_at("commit.sink", nth=2), pytest.raises(Crash):
        stage.run(4)
    stage.store = MemoryStore()
    stage.run(4)
    Space._named.pop(memory.space)
    refused(stage, "sink `whole` holds nothing", "pakka reset refunds --sink whole")


class SlotsOnly:
    """A committer without `enter_epoch`."""

    def __init__(self, committer):
        self._committer = committer

    def __getattr__(self, name):
        if name == "enter_epoch":
            raise AttributeError(name)
        return getattr(self._committer, name)


class SlotsOnlySink(SimulatedSink):
    def open_committer(self, binding, fence):
        return SlotsOnly(super().open_committer(binding, fence))


def test_a_sink_that_cannot_be_told_that_an_epoch_is_whole_is_refused_before_its_first_row():
    world = World()
    stage = Stage({"slots": SlotsOnlySink(world)})
    with pytest.raises(SinkError, match="makes slots visible one by one and has no `enter_epoch`"):
        stage.run(0)
    with pytest.raises(SinkError, match="has no `enter_epoch`"):
        stage.reset().accept_sink("slots")
    assert (world.prepared, world.visible, world.fence) == ({}, {}, 0)
