"""The state store of the simulation, held to the suite of the real ones.

Left out is what asks a place on disk or a server (`TestPlace`), and what looks into SQL tables.
"""

import pytest

from pakka.testing import store as memory
from pakka.testing.store import MemoryStore
from tests.unit.state import test_store as suite
from tests.unit.state.places import OWNER, PIPELINE, epoch, fill


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class TestFence(suite.TestFence):
    pass


class TestDecide(suite.TestDecide):
    pass


class TestSettle(suite.TestSettle):
    def test_a_settled_epoch_keeps_totals_and_no_records(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 4)
        store.settle(PIPELINE, 1, 4)
        assert store.read(PIPELINE).open == ()
        assert store.find(PIPELINE, 4).sinks["audit"] == (20, f"{801:016x}")


class TestAmend(suite.TestAmend):
    pass


class TestAdopt(suite.TestAdopt):
    pass


class TestPerson(suite.TestPerson):
    pass


class TestWindow(suite.TestWindow):
    @pytest.fixture(autouse=True)
    def as_large_as_the_real_one(self, monkeypatch):
        """The suite makes the real store's window small; this one follows it."""
        monkeypatch.setattr(memory, "WINDOW", 10)


def test_the_window_is_as_large_as_the_real_one():
    assert memory.WINDOW == suite._store.WINDOW == 1000


def test_a_copy_brings_back_what_was_and_nothing_since():
    store = MemoryStore()
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 1)
    before, copy = store.read(PIPELINE), store.copy()
    fill(store, 2, 3)
    store.adopt(PIPELINE, 1, epoch(9), 0)
    store.restore(copy)
    assert store.read(PIPELINE) == before
    assert [row.epoch.number for row in store.window(PIPELINE)] == [1, 0]
