"""One epoch, from hand-over to acknowledgement, with every kind of answer on the way."""

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from pakka import points
from pakka.coordinator.epoch import Harvest
from pakka.errors import (
    AbortedError,
    BugError,
    FencedError,
    RefusedError,
    RegressError,
    SinkError,
    UnavailableError,
    UnknownOutcomeError,
)
from pakka.model.epoch import Count
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Outcome
from pakka.model.prepared import SlotReport, checksum_of
from pakka.sinks.memory import MemorySink, Space
from pakka.testing.crash import POINTS
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import MemoryStore
from tests.unit.coordinator.stage import SCHEMA, Crash, Stage, crash_at


@pytest.fixture
def memory() -> MemorySink:
    return MemorySink(f"space-{uuid.uuid4()}")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def stage(memory, world) -> Stage:
    return Stage({"whole": memory, "slots": SimulatedSink(world)})


def rows_of(memory: MemorySink) -> list[int]:
    return sorted(i for table in Space.named(memory.space).rows for i in table.column("id").to_pylist())


def slots_of(world: World) -> list[tuple[int, int]]:
    return sorted((s.epoch, s.number) for s in world.visible)


def assert_exactly_once(stage: Stage, memory: MemorySink, world: World, upto: int) -> None:
    assert rows_of(memory) == stage.ids(upto)
    assert slots_of(world) == [(e, n) for e in range(upto + 1) for n in range(stage.slots)]
    assert world.prepared == {}


def test_epochs_land_once_in_every_sink(stage, memory, world):
    stage.run(4)
    assert_exactly_once(stage, memory, world, 4)


def test_the_happy_path_makes_one_durable_write_an_epoch(stage):
    driver = stage.driver()
    driver.start(stage.checkpoint())
    before = stage.store.writes
    for batch in range(10):
        driver.deliver(stage.origin(batch), stage.prepare)
    assert stage.store.writes - before == 10


def test_an_epoch_that_was_committed_is_not_run_again(stage, memory, world):
    stage.run(2)
    stage.acknowledged = 1

    def never(epoch, fence):
        raise AssertionError("the writers ran again")

    driver = stage.driver()
    driver.start(stage.checkpoint())
    assert driver.deliver(stage.origin(2), never).is_new is False
    assert_exactly_once(stage, memory, world, 2)


REACHED_HERE = sorted(p for p in POINTS if p.split(".")[0] in ("begin", "prepared", "decide", "acknowledge", "recover"))


@pytest.mark.parametrize("point", [*REACHED_HERE, "commit.sink", "commit.slot", "commit.after", "task.prepared"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_at_any_point_ends_exactly_once(stage, memory, world, point, nth):
    with crash_at("decide.after", nth=2), pytest.raises(Crash):
        stage.run(4)
    try:
        with crash_at(point, nth):
            stage.run(4)
    except Crash:
        stage.run(4)
    assert_exactly_once(stage, memory, world, 4)
    state = stage.store.read("refunds")
    assert (state.committed, state.open) == (4, ())


def test_every_point_of_this_test_is_reached(stage):
    seen = set()
    from pakka import points

    with crash_at("decide.after", nth=2), pytest.raises(Crash):
        stage.run(3)
    points.arm(lambda name, epoch: seen.add(name))
    try:
        stage.run(3)
    finally:
        points.arm(None)
    assert set(REACHED_HERE) <= seen


def test_a_slot_that_says_nothing_aborts_the_epoch(stage, memory, world):
    def half(epoch, fence):
        return Harvest(stage.slots, [stage.write(epoch, fence, 0)])

    with pytest.raises(AbortedError, match=r"slots \[1\] said nothing"):
        stage.run(0, prepare=half)
    assert rows_of(memory) == []
    assert world.prepared == {}
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_a_slot_reported_twice_aborts_the_epoch(stage, memory):
    def twice(epoch, fence):
        return Harvest(stage.slots, [stage.write(epoch, fence, n) for n in (0, 0)])

    with pytest.raises(AbortedError):
        stage.run(0, prepare=twice)
    assert rows_of(memory) == []


def test_rows_that_do_not_add_up_abort_the_epoch(stage, memory):
    def leaky(epoch, fence):
        harvest = stage.prepare(epoch, fence)
        first = harvest.reports[0]
        return Harvest(stage.slots, [replace(first, count=replace(first.count, good=1)), *harvest.reports[1:]])

    with pytest.raises(BugError, match="3 rows in, but 1 good"):
        stage.run(0, prepare=leaky)
    assert rows_of(memory) == []


def test_a_slot_of_another_epoch_aborts_the_epoch(stage, memory, world):
    def stale(epoch, fence):
        return Harvest(stage.slots, [stage.write(replace(epoch, number=7), fence, n) for n in range(stage.slots)])

    with pytest.raises(BugError, match=r"epoch 0, slot 0 was prepared as \S+7\S+; the epoch was aborted"):
        stage.run(0, prepare=stale)
    assert rows_of(memory) == []
    assert world.prepared == {}


def test_a_writer_that_fails_aborts_what_the_others_prepared(stage, memory, world):
    def failing(epoch, fence):
        stage.write(epoch, fence, 0)
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        stage.run(0, prepare=failing)
    assert world.prepared == {}
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_retry_and_unknown_are_asked_again_until_the_sink_knows(stage, memory, world):
    answers = iter([Outcome.retry("busy"), Outcome.unknown("line cut"), None, None])
    world.answer = lambda step, record: next(answers, None) if step == "before" else None
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)
    assert stage.waits == [0.1]


def test_a_lost_answer_after_the_commit_leaves_one_copy(stage, memory, world):
    lost = iter([Outcome.unknown("no answer")])
    world.answer = lambda step, record: next(lost, None) if step == "after" else None
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_a_sink_that_never_answers_ends_as_unknown_and_is_finished_by_the_next_run(stage, memory, world):
    world.answer = lambda step, record: Outcome.unknown("line cut")
    with pytest.raises(UnknownOutcomeError, match="epoch 0 is decided and the visibility of"):
        stage.run(0)
    assert stage.store.read("refunds").open[0].epoch.number == 0
    world.answer = lambda step, record: None
    stage.run(1)
    assert_exactly_once(stage, memory, world, 1)


def test_a_sink_that_says_not_yet_for_too_long_is_finished_by_the_next_run(stage, memory, world):
    world.answer = lambda step, record: Outcome.retry("read-only")
    with pytest.raises(SinkError, match="epoch 0 is decided and not yet visible: read-only") as raised:
        stage.run(0)
    assert raised.value.hint == (
        "do not replay by hand; `pakka indoubt resolve refunds`, or the next `pakka run`, asks the sink again and finishes the epoch"
    )
    world.answer = lambda step, record: None
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


@pytest.mark.parametrize("is_raised", [False, True], ids=["answered", "raised"])
def test_what_the_sink_wants_done_is_in_the_hint_of_the_last_error(stage, memory, world, is_raised):
    """A table, a right or a topic has to be changed first: until then no other command finishes the epoch."""

    def refuse(step, record):
        if is_raised:
            raise SinkError("no right to COMMIT PREPARED", hint="run as a superuser")
        return Outcome.retry("no right to COMMIT PREPARED", "run as a superuser")

    world.answer = refuse
    with pytest.raises(
        SinkError, match="epoch 0 is decided and not yet visible: no right to COMMIT PREPARED"
    ) as raised:
        stage.run(0)
    assert raised.value.hint == (
        "run as a superuser; epoch 0 is decided and its rows stay as they are: once the sink takes them, `pakka indoubt resolve "
        "refunds`, or the next `pakka run`, finishes it; do not replay by hand"
    )
    world.answer = lambda step, record: None
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_a_record_lost_after_the_decision_is_made_again(stage, memory, world):
    """A DBA rolled a prepared transaction back: the other slots and sinks have committed, this one must follow."""
    driver = stage.driver()
    driver.start(stage.checkpoint())
    stage.planned = 0

    def prepare(epoch, fence):
        harvest = stage.prepare(epoch, fence)
        return harvest

    with crash_at("decide.after"), pytest.raises(Crash):
        driver.deliver(stage.origin(0), prepare)
    world.lose(next(s for s in world.prepared if s.number == 1))
    stage.run(1)
    assert_exactly_once(stage, memory, world, 1)


def test_a_lost_record_that_comes_out_differently_stops_the_pipeline(stage, memory, world):
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    world.lose(next(s for s in world.prepared if s.number == 1))
    stage.rows = 4
    with pytest.raises(RegressError, match="had to run again"):
        stage.run(0)
    assert world.prepared == {}
    assert slots_of(world) == [(0, 0)]


def test_a_lost_record_found_while_running_is_made_again_by_the_next_run(stage, memory, world):
    def lossy(epoch, fence):
        harvest = stage.prepare(epoch, fence)
        world.lose(next(s for s in world.prepared if s.number == 0))
        return harvest

    with pytest.raises(RefusedError, match="has lost 1"):
        stage.run(0, prepare=lossy)
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


@pytest.mark.parametrize("answer", [Outcome.retry("somebody else is at it"), Outcome.unknown("no answer")])
def test_an_epoch_of_which_a_slot_is_lost_is_not_entered_when_the_others_need_a_second_try(
    stage, memory, world, answer
):
    """Once its ledger calls the epoch whole, no slot of it is missed any more."""
    answers = iter([answer])
    world.answer = lambda step, record: next(answers, None) if (step, record.slot.number) == ("before", 1) else None

    def lossy(epoch, fence):
        harvest = stage.prepare(epoch, fence)
        world.lose(next(s for s in world.prepared if s.number == 0))
        return harvest

    with pytest.raises(RefusedError, match="has lost 1"):
        stage.run(0, prepare=lossy)
    assert (slots_of(world), world.is_whole) == ([(0, 1)], False)
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_an_epoch_that_runs_again_after_a_loss_may_have_more_slots(world):
    """Three parts of the source in two slots, and on a larger machine in three: the slot that is kept is the same."""
    stage = Stage({"slots": SimulatedSink(world)}, rows=1)
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0, prepare=coalesced(stage, [[0], [1, 2]]))
    world.lose(next(s for s in world.prepared if s.number == 1))
    stage.run(0, prepare=coalesced(stage, [[0], [1], [2]]))
    assert {slot.number: record.rows for slot, record in world.visible.items()} == {0: 1, 1: 1, 2: 1}
    assert world.prepared == {}


def coalesced(stage, parts):
    """Slots that hold these rows."""

    def prepare(epoch, fence):
        reports = []
        for number, ids in enumerate(parts):
            stage.attempt += 1
            slot = Slot("refunds", "slots", epoch.number, fence, number, stage.attempt)
            writer = stage.sinks["slots"].open_writer(Binding("refunds", "slots", "spool"), slot, SCHEMA)
            writer.write(pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA))
            record = writer.prepare(checksum_of(sum(i * 7919 + 1 for i in ids)))
            reports.append(SlotReport(number, (record,), Count(len(ids), len(ids))))
        return Harvest(len(parts), reports)

    return prepare


class FlakyStore(MemoryStore):
    """Fails the first decisions, after or before writing them."""

    def __init__(self, error, is_written, times):
        super().__init__()
        self.error, self.is_written, self.times = error, is_written, times

    def decide(self, decision):
        if self.is_written:
            super().decide(decision)
        if self.times > 0:
            self.times -= 1
            raise self.error("no answer")
        super().decide(decision)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_answer_to_the_decision_is_settled_by_deciding_again(memory, is_written):
    stage = Stage({"whole": memory}, FlakyStore(UnknownOutcomeError, is_written, 2))
    stage.run(1)
    assert rows_of(memory) == stage.ids(1)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_decision_that_stays_unknown_aborts_nothing(memory, world, is_written):
    sinks = {"whole": memory, "slots": SimulatedSink(world)}
    stage = Stage(sinks, FlakyStore(UnknownOutcomeError, is_written, 99))
    with pytest.raises(UnknownOutcomeError, match="its rows are prepared and stay so"):
        stage.run(0)
    assert len(world.prepared) == stage.slots
    stage.store.times = 0
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_a_decision_that_was_never_sent_aborts_the_epoch(memory, world):
    sinks = {"whole": memory, "slots": SimulatedSink(world)}
    stage = Stage(sinks, FlakyStore(UnavailableError, False, 99))
    with pytest.raises(AbortedError, match="what was prepared for it was aborted"):
        stage.run(0)
    assert world.prepared == {}
    stage.store.times = 0
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_a_driver_overtaken_while_it_takes_the_fence_does_not_take_it_back(stage, memory, world, monkeypatch):
    """It finds a higher fence in the sinks, as after a loss of the state store. But here the state store knows whose it is."""
    take_fence = stage.store.take_fence

    def overtaken(*args):
        monkeypatch.undo()
        taken = take_fence(*args)
        stage.run(0)
        return taken

    monkeypatch.setattr(stage.store, "take_fence", overtaken)
    with pytest.raises(FencedError, match="fence 1 lost to fence 2"):
        stage.driver().start(stage.checkpoint)
    assert stage.store.read("refunds").fence == 2
    assert_exactly_once(stage, memory, world, 0)


@pytest.mark.parametrize("point", ["begin", "task.prepared", "prepared", "decide.before"])
def test_a_driver_overtaken_before_its_decision_changes_nothing(stage, memory, world, point):
    old = stage.driver()
    old.start(stage.checkpoint())
    stage.planned = 0
    taken = []

    def overtake(name: str, epoch: int) -> None:
        if name == point and not taken:
            taken.append(name)
            stage.run(2)

    from pakka import points

    points.arm(overtake)
    try:
        with pytest.raises(FencedError):
            old.deliver(stage.origin(0), stage.prepare)
    finally:
        points.arm(None)
    assert_exactly_once(stage, memory, world, 2)


@pytest.mark.parametrize("point", ["decide.after", "commit.sink", "commit.slot", "commit.after"])
def test_a_driver_overtaken_after_its_decision_adds_nothing(stage, memory, world, point):
    old = stage.driver()
    old.start(stage.checkpoint())
    stage.planned = 0
    taken = []

    def overtake(name: str, epoch: int) -> None:
        if name == point and not taken:
            taken.append(name)
            stage.run(2)

    from pakka import points

    points.arm(overtake)
    try:
        try:
            old.deliver(stage.origin(0), stage.prepare)
            old.stop()
        except FencedError:
            pass
    finally:
        points.arm(None)
    assert taken
    assert_exactly_once(stage, memory, world, 2)


def test_an_old_driver_does_not_sweep_what_a_newer_one_has_prepared(stage, world):
    old = stage.driver(sweep_every=1)
    old.start(stage.checkpoint())
    new = stage.driver()
    new.start(stage.checkpoint())
    stage.prepare(*_epoch_of(new, stage))
    with pytest.raises(FencedError):
        old.deliver(stage.origin(0), stage.prepare)
    assert len(world.prepared) == stage.slots


def _epoch_of(driver, stage):
    from pakka.model.epoch import Epoch

    return Epoch("refunds", 0, stage.origin(0)), driver.fence


def test_a_slot_that_an_older_driver_commits_while_the_next_one_recovers_is_not_committed_again(stage, memory, world):
    """The state store is lost with one slot of two committed, so only the sink knows how much of the epoch there is."""
    with crash_at("commit.slot", nth=2), pytest.raises(Crash):
        stage.run(0)
    decision = stage.store.read("refunds").open[0]
    stage.store = MemoryStore()
    old = stage.sinks["slots"].open_committer(Binding("refunds", "slots", "spool"), decision.fence)

    def wake_late(point: str, epoch: int) -> None:
        if point == "recover.examined":
            old.commit(decision.epoch, [p for p in decision.prepared if p.slot in world.prepared])

    points.arm(wake_late)
    try:
        stage.run(0)
    finally:
        points.arm(None)
    assert_exactly_once(stage, memory, world, 0)


def test_a_zombie_that_decides_in_a_restored_state_store_doubles_nothing(stage, memory, world):
    """The copy is of the zombie's time, so the store takes its decision; its records are long gone, and its epoch is there."""
    zombie = stage.driver()
    zombie.start(stage.checkpoint())
    stage.planned = 0
    copies = []

    def overtake_and_restore(point: str, epoch: int) -> None:
        if point == "decide.before" and not copies:
            copies.append(dict(stage.store.states))
            newer = stage.driver()
            newer.start(stage.checkpoint())
            newer.deliver(stage.origin(0), stage.prepare)
            stage.store.states, stage.store.rows = copies[0], {}

    points.arm(overtake_and_restore)
    try:
        with pytest.raises(FencedError):
            zombie.deliver(stage.origin(0), stage.prepare)
    finally:
        points.arm(None)
    assert [d.fence for d in stage.store.read("refunds").open] == [1], "the zombie's decision was not taken"
    stage.run(0)
    assert_exactly_once(stage, memory, world, 0)


def test_litter_of_a_retried_slot_is_swept_at_once(stage, memory, world):
    def retried(epoch, fence):
        stage.write(epoch, fence, 0)  # an attempt whose report never came back
        harvest = stage.prepare(epoch, fence)
        return Harvest(harvest.slots, [replace(harvest.reports[0], is_retried=True), *harvest.reports[1:]])

    stage.run(0, prepare=retried)
    assert_exactly_once(stage, memory, world, 0)


def test_litter_that_nobody_reported_is_swept_now_and_then(stage, world):
    def speculative(epoch, fence):
        stage.write(epoch, fence, 0)
        return stage.prepare(epoch, fence)

    stage.run(2, driver=stage.driver(sweep_every=3), prepare=speculative)
    assert world.prepared == {}


def test_committers_are_closed_in_reverse_order_even_if_one_fails(memory, world):
    closed = []

    class Watched(MemorySink):
        def open_committer(self, binding, fence):
            committer = super().open_committer(binding, fence)

            def close():
                closed.append(binding.sink)
                if binding.sink == "b":
                    raise OSError("already gone")

            committer.close = close
            return committer

    stage = Stage({"a": Watched("a-closed"), "b": Watched("b-closed")})
    with pytest.raises(ExceptionGroup):
        stage.run(0)
    assert closed == ["b", "a"]
