"""A sink that finds no time at the start of a run, because the driver that is being replaced still has it locked."""

import uuid

import pytest

from pakka.errors import UnavailableError
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
