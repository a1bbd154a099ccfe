"""A committer that can have executors do a part of its work is told of them before it is asked for anything."""

import uuid

import pytest

from pakka.sinks import memory
from pakka.sinks.memory import MemoryCommitter, MemorySink
from tests.unit.coordinator.stage import Crash, Stage, crash_at


@pytest.fixture
def stage():
    return Stage({"out": MemorySink(f"space-{uuid.uuid4()}")})


@pytest.fixture
def calls(monkeypatch):
    """What a committer that spreads its work is asked, in order."""
    calls = []

    class Spreader(MemoryCommitter):
        def spread(self, over):
            calls.append(over)

        def ledger(self):
            calls.append("ledger")
            return super().ledger()

        def commit_epoch(self, *given):
            calls.append("commit")
            return super().commit_epoch(*given)

    monkeypatch.setattr(memory, "MemoryCommitter", Spreader)
    return calls


def over(work):
    return [each() for each in work]


def test_it_is_told_first(stage, calls):
    stage.run(0, stage.driver(executors=over))
    assert calls[0] is over
    assert calls.count(over) == 1


def test_it_is_told_before_a_recovery_commits_what_was_decided(stage, calls):
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0, stage.driver(executors=over))
    calls.clear()
    stage.driver(executors=over).start(stage.checkpoint())
    assert calls[0] is over
    assert "commit" in calls


def test_without_executors_it_is_not_told(stage, calls):
    stage.run(0)
    assert over not in calls
    assert calls


def test_a_committer_without_that_power_is_left_alone(stage):
    stage.run(0, stage.driver(executors=over))
