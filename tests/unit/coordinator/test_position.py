"""A sink that tells others where the source stands is asked before the decision whether it can."""

import uuid
from dataclasses import replace

import pytest

from pakka.errors import SinkError
from pakka.sinks.memory import MemoryCommitter, MemorySink, Space
from tests.unit.coordinator.stage import Stage


@pytest.fixture
def stage(monkeypatch) -> Stage:
    stage = Stage({"out": MemorySink(f"space-{uuid.uuid4()}")})
    origin = stage.origin
    monkeypatch.setattr(stage, "origin", lambda batch: replace(origin(batch), position=f"at {batch}"))
    return stage


def test_what_cannot_be_told_aborts_the_epoch_before_it_is_decided(stage, monkeypatch):
    def check(_, position):
        if position == "at 1":
            raise SinkError("the group may not be told")

    monkeypatch.setattr(MemoryCommitter, "check_position", check, raising=False)
    with pytest.raises(SinkError, match="may not be told"):
        stage.run(2)
    assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
    rows = Space.named(stage.sinks["out"].space).rows
    assert sorted(i for table in rows for i in table.column("id").to_pylist()) == stage.ids(0)
