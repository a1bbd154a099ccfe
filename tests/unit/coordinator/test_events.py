"""What the protocol tells while it works: commits, retries, aborts, and litter, each once and with its sink."""

import uuid
from dataclasses import replace

import pytest

from pakka.coordinator.epoch import Harvest
from pakka.errors import AbortedError, UnavailableError, UnknownOutcomeError
from pakka.model.event import Aborted, Committed, Retried
from pakka.model.outcome import Outcome
from pakka.sinks.memory import MemorySink
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import MemoryStore
from tests.unit.coordinator.stage import Crash, Stage, crash_at


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def stage(world) -> Stage:
    return Stage({"whole": MemorySink(f"space-{uuid.uuid4()}"), "slots": SimulatedSink(world)})


def listened(stage: Stage, upto: int = 0, prepare=None, raises=()) -> list:
    told = []
    if raises:
        with pytest.raises(raises):
            stage.run(upto, stage.driver(listen=told.append), prepare)
    else:
        stage.run(upto, stage.driver(listen=told.append), prepare)
    return told


def test_each_sink_tells_when_it_has_an_epoch(stage):
    told = listened(stage, upto=1)
    rows = stage.slots * stage.rows
    assert told == [
        Committed("refunds", epoch, sink, rows, 1, False, 0.0) for epoch in (0, 1) for sink in ("whole", "slots")
    ]


def test_a_sink_that_is_asked_again_tells_why_and_how_it_ended(stage, world):
    answers = iter([Outcome.retry("busy"), Outcome.unknown("line cut")])
    world.answer = lambda step, record: next(answers, None) if step == "before" and record.slot.number == 0 else None
    told = [event for event in listened(stage) if event.sink == "slots"]
    assert told == [
        Retried("refunds", 0, "slots", False, "busy", 0.1),
        Retried("refunds", 0, "slots", True, "line cut", 0.2),
        Committed("refunds", 0, "slots", stage.slots * stage.rows, 3, True, 0.0),
    ]


def test_a_sink_that_never_answers_has_not_committed(stage, world):
    world.answer = lambda step, record: Outcome.unknown("line cut")
    told = listened(stage, raises=UnknownOutcomeError)
    assert [type(event) for event in told if event.sink == "slots"] == [Retried] * 3


def test_what_recovery_commits_is_told_as_well(stage):
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    told = listened(stage, upto=-1)
    assert {(event.epoch, event.sink) for event in told} == {(0, "whole"), (0, "slots")}


def test_an_aborted_epoch_is_told_with_what_is_gone(stage):
    def prepare(epoch, fence):
        whole = stage.prepare(epoch, fence)
        return replace(whole, reports=whole.reports[:1])

    (told,) = listened(stage, prepare=prepare, raises=AbortedError)
    assert isinstance(told, Aborted)
    assert (told.epoch, told.undone) == (0, {"slots": 2})
    assert told.reason.startswith("pipeline `refunds`: epoch 0 has 2 slots, and reports came from [0]")


def test_an_error_without_words_is_told_by_its_name(stage):
    def prepare(epoch, fence):
        raise KeyboardInterrupt

    (told,) = listened(stage, prepare=prepare, raises=KeyboardInterrupt)
    assert told == Aborted("refunds", 0, "KeyboardInterrupt", {})


class BusyStore(MemoryStore):
    """Cannot be reached at the first try."""

    tries = 0

    def decide(self, decision):
        self.tries += 1
        if self.tries == 1:
            raise UnavailableError("the state store is not there")
        super().decide(decision)


def test_a_decision_that_is_written_again_is_told(world):
    stage = Stage({"slots": SimulatedSink(world)}, BusyStore())
    assert listened(stage)[0] == Retried("refunds", 0, None, False, "the state store is not there", 0.1)


def test_litter_that_is_swept_is_reported_by_sink(stage):
    def prepare(epoch, fence):
        stage.write(epoch, fence, 1)
        reports = [replace(stage.write(epoch, fence, n), is_retried=n == 1) for n in range(stage.slots)]
        return Harvest(stage.slots, reports)

    driver = stage.driver()
    driver.start(stage.checkpoint())
    assert driver.deliver(stage.origin(0), prepare).swept == {"slots": 1}


def test_the_ages_of_all_slots_are_added(stage):
    def prepare(epoch, fence):
        return Harvest(2, [replace(stage.write(epoch, fence, n), ages={7: 1, 9 + n: 2}) for n in range(2)])

    driver = stage.driver()
    driver.start(stage.checkpoint())
    assert driver.deliver(stage.origin(0), prepare).ages == {7: 2, 9: 2, 10: 2}
