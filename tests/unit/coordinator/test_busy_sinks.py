"""Sinks that make the start of a run hard: one that the driver being replaced still has locked, one that raises fences itself."""

import uuid

import pytest

from pakka.errors import SinkError, UnavailableError
from pakka.sinks.memory import MemoryCommitter, MemorySink, Space
from tests.unit.coordinator.stage import Crash, Stage, crash_at

CALLS = ("ledger", "raise_fence", "pending")


@pytest.fixture
def stage():
    return Stage({"out": MemorySink(f"space-{uuid.uuid4()}")})


def busy(monkeypatch, name: str, times: int) -> None:
    real = getattr(MemoryCommitter, name)
    left = times

    def call(self):
        nonlocal left
        left -= 1
        if left >= 0:
            raise UnavailableError(f"{name}: locked by another process; nothing was changed")
        return real(self)

    monkeypatch.setattr(MemoryCommitter, name, call)


@pytest.mark.parametrize("name", CALLS)
def test_it_is_asked_again_and_the_run_goes_on(stage, monkeypatch, name):
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    busy(monkeypatch, name, times=2)
    stage.run(1)
    rows = Space.named(stage.sinks["out"].space).rows
    assert sorted(i for table in rows for i in table["id"].to_pylist()) == stage.ids(1)
    assert stage.waits == [0.1, 0.2]


@pytest.mark.parametrize("name", CALLS)
def test_one_that_stays_busy_ends_the_run_with_its_own_words(stage, monkeypatch, name):
    busy(monkeypatch, name, times=99)
    with pytest.raises(UnavailableError, match=f"{name}: locked by another process"):
        stage.run(0)
    assert len(stage.waits) == 3


def test_a_sink_that_raises_the_fence_when_it_is_opened_is_refused(stage, monkeypatch):
    real = MemorySink.open_committer

    def eager(self, binding, fence):
        committer = real(self, binding, fence)
        committer.raise_fence()
        return committer

    monkeypatch.setattr(MemorySink, "open_committer", eager)
    with pytest.raises(SinkError, match="no rows were changed"):
        stage.run(0)
