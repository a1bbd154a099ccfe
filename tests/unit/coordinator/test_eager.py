"""A sink that begins with an epoch before it is decided is told when to begin, and when it was in vain."""

import uuid

import pytest

from pakka.errors import AbortedError, UnavailableError, UnknownOutcomeError
from pakka.sinks.memory import MemoryCommitter, MemorySink, Space
from pakka.testing.simulated import SimulatedSink, World
from pakka.testing.store import MemoryStore
from tests.unit.coordinator.stage import Crash, Stage, crash_at


class EagerCommitter(MemoryCommitter):
    """Notes what it is told."""

    def begin_epoch(self, epoch):
        self.notes.append(f"begin {epoch.number}")

    def give_up(self):
        self.notes.append("give up")

    def commit_epoch(self, epoch, prepared):
        self.notes.append(f"commit {epoch.number}")
        return super().commit_epoch(epoch, prepared)


class EagerSink(MemorySink):
    """The memory sink, with a committer that can begin early."""

    def open_committer(self, binding, fence):
        committer = EagerCommitter(binding, fence, Space.named(self.space))
        committer.notes = NOTES[self.space]
        return committer


NOTES: dict[str, list[str]] = {}


@pytest.fixture
def notes():
    return []


@pytest.fixture
def stage(notes):
    name = f"space-{uuid.uuid4()}"
    NOTES[name] = notes
    yield Stage({"early": EagerSink(name), "other": MemorySink(f"{name}-other")}, MemoryStore())
    del NOTES[name]


def test_it_begins_before_the_writers_and_goes_on_in_the_commit(stage, notes):
    def prepare(epoch, fence):
        notes.append(f"prepare {epoch.number}")
        return stage.prepare(epoch, fence)

    stage.run(1, prepare=prepare)
    assert notes == [f"{step} {number}" for number in (0, 1) for step in ("begin", "prepare", "commit")]


def test_it_gives_up_when_the_epoch_is_aborted(stage, notes):
    def prepare(epoch, fence):
        stage.write(epoch, fence, 0)
        raise AbortedError("a task failed for good")

    with pytest.raises(AbortedError):
        stage.run(0, prepare=prepare)
    assert notes == ["begin 0", "give up"]


def test_what_cannot_be_given_up_is_told_beside_the_error_that_ended_the_epoch(stage, notes, monkeypatch):
    def fail(self):
        raise UnavailableError("no broker")

    def prepare(epoch, fence):
        raise AbortedError("a task failed for good")

    monkeypatch.setattr(EagerCommitter, "give_up", fail)
    with pytest.raises(AbortedError) as raised:
        stage.run(0, prepare=prepare)
    assert "the abort of epoch 0 was not finished: no broker" in raised.value.__notes__[0]


def test_a_decision_that_nobody_knows_of_is_not_given_up(stage, notes, monkeypatch):
    """It may be durable. What was begun ends with the driver, and the next one commits the epoch or aborts it."""

    def decide(decision):
        raise UnknownOutcomeError("no answer")

    monkeypatch.setattr(stage.store, "decide", decide)
    with pytest.raises(UnknownOutcomeError):
        stage.run(0)
    assert notes == ["begin 0"]


def test_an_epoch_that_some_sinks_hold_is_not_begun_early(stage, notes):
    """Only what the others lack is decided."""
    with crash_at("commit.sink", nth=2), pytest.raises(Crash):
        stage.run(0)
    assert notes == ["begin 0", "commit 0"]
    stage.store = MemoryStore()
    notes.clear()
    stage.run(1)
    assert [note for note in notes if note.startswith("begin")] == ["begin 1"]


def test_an_epoch_that_has_to_run_again_is_not_begun_early(stage, notes):
    world = World()
    stage.sinks["other"] = SimulatedSink(world)
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    world.lose(next(iter(world.prepared)))
    notes.clear()
    stage.run(0)
    assert "begin 0" not in notes
