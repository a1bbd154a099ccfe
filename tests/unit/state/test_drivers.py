"""Several drivers on one store, in threads and processes of their own, and some of them are killed."""

import random
import threading
import time

import psycopg
import pytest

from pakka.contract.state import PipelineState
from pakka.errors import FencedError
from pakka.model.epoch import Count
from pakka.model.phase import Phase
from tests.unit.state.children import (
    become_owner_and_decide,
    child,
    decide_for_ever,
    hear,
    say_state,
    take_fences,
)
from tests.unit.state.places import OWNER, PIPELINE, Place, decision, fill


def test_fences_are_unique_and_rise_in_two_processes_of_eight_threads(place):
    threads, each = 8, 4
    with (
        child(take_fences, place.url, threads, each) as (_, one),
        child(take_fences, place.url, threads, each) as (_, two),
    ):
        lines = [one, two]
        assert [hear(line) for line in lines] == ["ready", "ready"]
        for line in lines:
            line.send("go")
        taken = [fences for line in lines for fences in hear(line)]
    assert sorted(f for fences in taken for f in fences) == list(range(1, 2 * threads * each + 1))
    assert all(fences == sorted(fences) for fences in taken)


def test_one_store_may_be_used_by_many_threads(store):
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(store.take_fence(PIPELINE, OWNER).fence)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 9))


def test_two_processes_that_make_the_store_at_once_make_one(place):
    with child(take_fences, place.url, 1, 1) as (_, one), child(take_fences, place.url, 1, 1) as (_, two):
        assert [hear(one), hear(two)] == ["ready", "ready"]
    looker = place.open(must_exist=True)
    assert looker.pipelines() == []
    looker.close()


def test_of_two_drivers_exactly_one_can_decide(place):
    with child(become_owner_and_decide, place.url) as (_, one), child(become_owner_and_decide, place.url) as (_, two):
        lines = [one, two]
        for _ in range(2):  # first both become owner, then both decide
            said = [hear(line) for line in lines]
            for line in lines:
                line.send("go")
        outcomes = dict(zip(said, [hear(line) for line in lines], strict=True))
    assert outcomes == {1: "FencedError", 2: "decided"}
    store = place.open()
    assert [d.fence for d in store.read(PIPELINE).open] == [2]
    store.close()


def test_a_new_process_sees_everything(store, place):
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 5)
    with child(say_state, place.url) as (_, line):
        assert hear(line) == (store.read(PIPELINE), store.window(PIPELINE))


@pytest.mark.faults
def test_a_driver_killed_while_it_decides_leaves_all_it_was_told_and_nothing_half(place):
    chance = random.Random(2)
    first = 0
    for round_ in range(3):
        with child(decide_for_ever, place.url, first) as (process, line):
            for _ in range(chance.randint(3, 40)):
                hear(line)
            threading.Event().wait(chance.random() * 0.01)
            process.kill()
            process.join()
            told = -1
            while line.poll():
                try:
                    told = line.recv()
                except EOFError:
                    break
        wait_for_the_last_session(place)
        store = place.open()
        state = store.read(PIPELINE)
        (last,) = state.open
        # The newest decision may be one that was durable before the driver could say so.
        assert last.epoch.number in (told, told + 1) or told == -1
        assert last == decision(last.epoch.number, round_ + 1, slots=50)
        assert state.committed == last.epoch.number - 1
        rows = store.window(PIPELINE, 5000)
        assert [r.epoch.number for r in rows] == list(range(last.epoch.number, -1, -1))
        assert {r.phase for r in rows[1:]} == {Phase.COMMITTED}
        assert state.totals == sum([last.count] * last.epoch.number, Count())
        store.close()
        first = last.epoch.number + 1


def wait_for_the_last_session(place: Place) -> None:
    """A server may still be at the COMMIT of a driver that is dead, and show it to the second of two who ask."""
    if place.url.startswith("sqlite"):
        return
    others = (
        "SELECT 1 FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    give_up = time.monotonic() + 60
    with psycopg.connect(place.url, autocommit=True) as db:
        while db.execute(others).fetchone():
            assert time.monotonic() < give_up, "the session of a dead driver does not end"
            time.sleep(0.01)


# The next fence must see what the last one decided.
#
# A driver decides while another takes the fence between its check and its write. Whichever is first, both must agree on what
# happened: a decision that the new driver did not see would be committed by nobody and aborted by it.


def check_the_next_fence_sees_the_decision(store, place, *, is_blocked: bool) -> None:
    """`store.between` is called after the fence check of `decide` and before its write; an honest store blocks others there."""
    store.take_fence(PIPELINE, OWNER)
    rival = place.open()
    seen: list[PipelineState] = []
    taker = threading.Thread(target=lambda: seen.append(rival.take_fence(PIPELINE, OWNER)))

    def between() -> None:
        taker.start()
        # One that nothing blocks is waited for: a slow one would come after the write, and see it.
        taker.join(0.3 if is_blocked else 60)
        assert is_blocked or not taker.is_alive(), "the fence was not taken"

    store.between = between
    try:
        store.decide(decision(0))
    except FencedError:
        pass
    finally:
        taker.join()
    is_decided = rival.find(PIPELINE, 0) is not None
    rival.close()
    assert is_decided == (seen[0].open == (decision(0),)), "the next fence has not seen the decision"


def paused(store_class):
    """A store that can be interrupted between the fence check and the write."""

    class Paused(store_class):
        between = staticmethod(lambda: None)

        def _owned(self, pipeline, fence):
            state = super()._owned(pipeline, fence)
            between, self.between = self.between, lambda: None
            between()
            return state

    return Paused


def checking_too_early(store_class):
    """The broken twin: it checks the fence in a transaction before the one that writes."""

    class TooEarly(store_class):
        between = staticmethod(lambda: None)

        def decide(self, decision):
            super()._write("the check", lambda: super(TooEarly, self)._owned(decision.epoch.pipeline, decision.fence))
            self.between()
            super().decide(decision)

        def _owned(self, pipeline, fence):
            return self._locked(pipeline)

    return TooEarly


def test_a_fence_taken_between_check_and_write_sees_the_decision(place):
    store = place.open_as(paused)
    check_the_next_fence_sees_the_decision(store, place, is_blocked=True)
    store.close()


def test_a_store_that_checks_the_fence_too_early_is_found_out(place):
    store = place.open_as(checking_too_early)
    with pytest.raises(AssertionError, match="the next fence has not seen the decision"):
        check_the_next_fence_sees_the_decision(store, place, is_blocked=False)
    store.close()
