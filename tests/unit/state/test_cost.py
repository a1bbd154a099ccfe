"""What a decision costs does not depend on how many there were before. Counted, not timed."""

import pytest

from pakka.state._store import WINDOW
from pakka.state.sqlite import SqliteStore
from tests.unit.state.places import OWNER, PIPELINE, Place, decision, fill

# As many epochs as the window holds, made from the last one; deciding each of them would take long and show no more.
FULL_WINDOW = """
    INSERT INTO pakka_epoch (pipeline, number, fence, origin, counts, sinks, prepared, decided_at)
    SELECT pipeline, made, fence, origin, counts, sinks, NULL, decided_at FROM pakka_epoch, generate_series(0, number - 1) made
"""


def recording(store_class):
    """A store that remembers each statement with its parameters."""

    class Recording(store_class):
        def __init__(self, *args):
            self.said = []
            super().__init__(*args)

        def _execute(self, statement, params=()):
            self.said.append((statement, params))
            return super()._execute(statement, params)

    return Recording


def a_run(store, number: int) -> list[tuple[str, tuple]]:
    """All that is said while a driver takes over, decides twice, settles and looks; the tables have `number` epochs."""
    store.said.clear()
    fence = store.take_fence(PIPELINE, OWNER).fence
    store.decide(decision(number, fence))
    store.decide(decision(number + 1, fence))
    store.amend(decision(number + 1, fence, rows=3))
    store.settle(PIPELINE, fence, number + 1)
    store.find(PIPELINE, number)
    words = ("SELECT", "UPDATE", "DELETE")
    return [(s, p) for s, p in store.said if s.lstrip().startswith(words) and p]


def test_sqlite_goes_by_primary_key_in_every_statement(tmp_path):
    store = recording(SqliteStore)(tmp_path / "store.db")
    store.take_fence(PIPELINE, OWNER)
    said = a_run(store, 0)
    assert len({s for s, _ in said}) >= 8
    for statement, params in said:
        plan = [row[3] for row in store._execute(f"EXPLAIN QUERY PLAN {statement}", params)]
        assert plan, statement
        assert all(step.startswith("SEARCH") for step in plan), (statement, plan)
    store.close()


@pytest.mark.postgres
def test_postgres_goes_by_primary_key_in_every_statement(postgres_url):
    store = Place(postgres_url).open_as(recording)
    store.take_fence(PIPELINE, OWNER)
    store.decide(decision(WINDOW))
    store._execute(FULL_WINDOW)
    store.settle(PIPELINE, 1, WINDOW)
    assert len(store.window(PIPELINE, 2 * WINDOW)) == WINDOW
    store._execute("ANALYZE pakka_epoch")
    for statement, params in a_run(store, WINDOW + 1):
        plan = "\n".join(row[0] for row in store._execute(f"EXPLAIN {statement}", params))
        assert "Seq Scan on pakka_epoch" not in plan, plan
    store.close()


def test_a_decision_takes_as_many_steps_late_as_early(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    store._execute("PRAGMA synchronous = OFF")  # this test counts steps, and is not about the disk
    steps = []

    def count() -> int:
        steps.append(1)
        return 0

    def measure(first: int, number: int) -> int:
        """Go on to epoch `number`; the steps of SQLite's machine for deciding it and taking over from there."""
        fence = store.take_fence(PIPELINE, OWNER).fence
        fill(store, first, number - 1, fence)
        steps.clear()
        store._db.set_progress_handler(count, 1)
        store.decide(decision(number, fence))
        state = store.take_fence(PIPELINE, OWNER)
        store._db.set_progress_handler(None, 0)
        assert state.open == (decision(number, fence),)
        return len(steps)

    early = measure(0, WINDOW + 10)
    assert measure(WINDOW + 11, 4 * WINDOW) == early
    assert len(store.window(PIPELINE, 10 * WINDOW)) == WINDOW + 1
    store.close()
