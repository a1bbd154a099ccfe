"""What a state store must do, asked of both."""

from dataclasses import replace

import pytest

from pakka.contract.state import Owner, PipelineState
from pakka.errors import BugError, FencedError, UsageError
from pakka.model.epoch import Count, Epoch
from pakka.model.phase import Phase
from pakka.state import _store
from tests.unit.state.places import OWNER, PIPELINE, decision, epoch, fill

EACH = decision(0).count


def placed(number: int) -> Epoch:
    """An epoch whose source says where it stands."""
    bare = epoch(number)
    return replace(bare, origin=replace(bare.origin, position=f'{{"kafka":{{"offsets":{number}}}}}'))


class TestFence:
    def test_a_new_pipeline_begins_with_fence_1_and_nothing(self, store):
        assert store.read(PIPELINE) is None
        assert store.take_fence(PIPELINE, OWNER) == PipelineState(PIPELINE, 1, OWNER)
        assert store.read(PIPELINE) == PipelineState(PIPELINE, 1, OWNER)

    def test_each_taking_raises_it_by_one_and_names_the_owner(self, store):
        store.take_fence(PIPELINE, OWNER)
        other = Owner("host-b", 2, 3.0)
        assert store.take_fence(PIPELINE, other).fence == 2
        assert store.read(PIPELINE).owner == other

    def test_at_least_jumps_ahead_and_never_back(self, store):
        assert store.take_fence(PIPELINE, OWNER, at_least=40).fence == 40
        assert store.take_fence(PIPELINE, OWNER, at_least=7).fence == 41

    def test_pipelines_have_fences_of_their_own(self, store):
        store.take_fence("b", OWNER)
        store.take_fence("a", OWNER)
        assert store.take_fence("a", OWNER).fence == 2
        assert store.read("b").fence == 1
        assert store.pipelines() == ["a", "b"]

    def test_the_new_owner_sees_what_is_open_in_order(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 4)
        state = store.take_fence(PIPELINE, OWNER)
        assert state.open == (decision(4),)
        assert (state.committed, state.origin) == (3, epoch(3).origin)

    def test_an_open_decision_tells_what_was_made_beside_its_records(self, store):
        """Sinks held some slots before. What they hold in the end is more than the decision names."""
        store.take_fence(PIPELINE, OWNER)
        made = replace(decision(0), made={sink: (rows + 7, "ff") for sink, (rows, _) in decision(0).sinks.items()})
        store.decide(made)
        assert store.read(PIPELINE).open[0].sinks == made.sinks != decision(0).sinks

    @pytest.mark.parametrize("write", ["decide", "amend", "settle", "adopt"])
    def test_an_older_fence_can_write_nothing(self, store, write):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        before = store.take_fence(PIPELINE, OWNER)
        with pytest.raises(FencedError, match=r"pipeline `refunds`: fence 1 lost to fence 2") as caught:
            do(store, write, fence=1)
        assert "pakka status refunds" in caught.value.hint
        assert store.read(PIPELINE) == before
        assert store.find(PIPELINE, 2) is None

    @pytest.mark.parametrize("write", ["decide", "amend", "settle", "adopt"])
    def test_a_store_that_knows_less_than_the_driver_takes_nothing_from_it(self, store, write):
        """It was deleted or replaced by an old copy under a running driver."""
        with pytest.raises(FencedError, match="knows nothing of it"):
            do(store, write, fence=5)
        store.take_fence(PIPELINE, OWNER)
        with pytest.raises(FencedError, match="holds only fence 1"):
            do(store, write, fence=5)
        assert store.read(PIPELINE) == PipelineState(PIPELINE, 1, OWNER)


def do(store, write, fence):
    if write == "decide":
        store.decide(decision(2, fence))
    elif write == "amend":
        store.amend(decision(1, fence, rows=11))
    elif write == "settle":
        store.settle(PIPELINE, fence, 1)
    else:
        store.adopt(PIPELINE, fence, epoch(9), 0)


class TestDecide:
    def test_a_decision_is_open_and_comes_back_as_it_was(self, store):
        store.take_fence(PIPELINE, OWNER)
        made = decision(0, path="a/b.parquet", nested={"gid": [1, 2]})
        store.decide(made)
        state = store.read(PIPELINE)
        assert state.open == (made,)
        assert (state.committed, state.origin, state.totals) == (-1, None, Count())
        row = store.find(PIPELINE, 0)
        assert (row.epoch, row.phase, row.fence, row.count, row.at) == (
            made.epoch,
            Phase.DECIDED,
            1,
            made.count,
            made.at,
        )
        assert row.sinks == {"lake": (20, f"{1:016x}"), "audit": (20, f"{1:016x}")}

    def test_the_next_decision_settles_the_one_before(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        state = store.read(PIPELINE)
        assert state.open == (decision(1),)
        assert (state.committed, state.origin, state.totals) == (0, epoch(0).origin, EACH)
        assert [(r.epoch.number, r.phase) for r in store.window(PIPELINE)] == [(1, Phase.DECIDED), (0, Phase.COMMITTED)]
        assert store.find(PIPELINE, 0).sinks == {"lake": (20, f"{1:016x}"), "audit": (20, f"{1:016x}")}

    def test_an_epoch_may_have_no_records(self, store):
        store.take_fence(PIPELINE, OWNER)
        empty = decision(0, slots=0)
        store.decide(empty)
        assert store.read(PIPELINE).open == (empty,)
        assert store.find(PIPELINE, 0).sinks == {}

    def test_deciding_again_is_deciding_once(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        before = store.read(PIPELINE)
        store.decide(decision(2))
        assert store.read(PIPELINE) == before
        store.settle(PIPELINE, 1, 2)
        settled = store.read(PIPELINE)
        store.decide(decision(2))
        store.decide(decision(1))
        assert store.read(PIPELINE) == settled
        assert settled.totals == EACH + EACH + EACH

    @pytest.mark.parametrize("is_settled", [False, True], ids=["open", "settled"])
    @pytest.mark.parametrize(
        "other",
        [
            decision(2, rows=11),
            decision(2, slots=3),
            decision(2, count=Count(1, 1)),
            replace(decision(2), epoch=epoch(2, query="query-2")),
            replace(decision(2), prepared=decision(2).prepared[1:]),
        ],
        ids=["rows", "slots", "count", "origin", "fewer"],
    )
    def test_another_decision_for_a_decided_epoch_is_refused(self, store, other, is_settled):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        if is_settled:
            store.settle(PIPELINE, 1, 2)
        before = store.read(PIPELINE)
        with pytest.raises(BugError, match="epoch 2 was decided before, by fence 1 with other records"):
            store.decide(other)
        assert store.read(PIPELINE) == before

    def test_other_details_of_an_open_decision_are_another_decision(self, store):
        store.take_fence(PIPELINE, OWNER)
        store.decide(decision(0, path="a"))
        with pytest.raises(BugError):
            store.decide(decision(0, path="b"))
        assert store.read(PIPELINE).open == (decision(0, path="a"),)

    def test_a_newer_fence_cannot_decide_a_decided_epoch_again(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        store.take_fence(PIPELINE, OWNER)
        with pytest.raises(BugError, match="by fence 1"):
            store.decide(decision(2, fence=2))
        assert store.read(PIPELINE).open == (decision(2),)

    def test_an_epoch_from_before_the_window_cannot_be_decided(self, store):
        store.take_fence(PIPELINE, OWNER)
        store.adopt(PIPELINE, 1, epoch(5000), 0)
        with pytest.raises(BugError, match="epoch 7 was decided before"):
            store.decide(decision(7))

    def test_what_the_twin_pipeline_decides_is_its_own(self, store):
        store.take_fence(PIPELINE, OWNER)
        store.take_fence("other", OWNER)
        fill(store, 0, 2)
        store.decide(decision(0, pipeline="other"))
        assert store.read("other").open == (decision(0, pipeline="other"),)
        assert store.read(PIPELINE).open == (decision(2),)
        assert len(store.window("other")) == 1

    def test_names_and_words_of_any_script_come_back(self, store):
        name, word = "répertoire-नमस्ते-🧾", "regex(नाम, ^[\u0000-\uffff]'\"%s?$)"
        store.take_fence(name, Owner("höst", 1, 0.0))
        made = decision(0, pipeline=name, sinks=("सिंक",), count=Count(1, 0, 1, 0, {word: 1}), path="ü/\u2028")
        store.decide(made)
        store.settle(name, 1, 0)
        state = store.read(name)
        assert (state.owner.host, state.totals.broken) == ("höst", {word: 1})
        assert store.find(name, 0).sinks == {"सिंक": (20, f"{1:016x}")}
        assert store.pipelines() == [name]


class TestSettle:
    def test_a_settled_epoch_keeps_totals_and_no_records(self, store):
        def with_records():
            return store._read(lambda: store._execute("SELECT number FROM pakka_epoch WHERE prepared IS NOT NULL"))

        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 4)
        assert with_records() == [(4,)]
        store.settle(PIPELINE, 1, 4)
        assert with_records() == []
        assert store.find(PIPELINE, 4).sinks["audit"] == (20, f"{801:016x}")

    def test_settle_closes_all_up_to_the_epoch(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        store.settle(PIPELINE, 1, 2)
        state = store.read(PIPELINE)
        assert (state.committed, state.origin, state.open) == (2, epoch(2).origin, ())
        assert state.totals == EACH + EACH + EACH

    def test_settle_twice_counts_once(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 0)
        for _ in range(2):
            store.settle(PIPELINE, 1, 0)
        assert store.read(PIPELINE).totals == EACH

    def test_settle_of_an_older_epoch_leaves_the_open_one(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 3)
        store.settle(PIPELINE, 1, 1)
        assert store.read(PIPELINE).open == (decision(3),)

    def test_what_was_never_decided_cannot_be_settled(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        with pytest.raises(BugError, match="epoch 2 was never decided"):
            store.settle(PIPELINE, 1, 2)
        assert store.read(PIPELINE).open == (decision(1),)


class TestAmend:
    def test_amend_replaces_the_records_under_the_new_fence(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        store.take_fence(PIPELINE, OWNER)
        amended = decision(1, fence=2, rows=7, count=Count(14, 14))
        for _ in range(2):
            store.amend(amended)
        assert store.read(PIPELINE).open == (amended,)
        assert store.find(PIPELINE, 1).sinks["lake"][0] == 14
        store.settle(PIPELINE, 2, 1)
        assert store.read(PIPELINE).totals == EACH + Count(14, 14)

    @pytest.mark.parametrize("number", [0, 2], ids=["settled", "undecided"])
    def test_only_an_open_decision_can_be_amended(self, store, number):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        with pytest.raises(BugError, match=f"epoch {number} .* is not open"):
            store.amend(decision(number))

    def test_an_epoch_of_other_offsets_cannot_be_amended(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        with pytest.raises(BugError, match="is not open"):
            store.amend(replace(decision(1), epoch=epoch(1, query="query-2")))

    def test_a_decision_written_before_there_were_positions_can_be_amended_with_one(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        store.take_fence(PIPELINE, OWNER)
        amended = decision(1, fence=2, rows=7)
        store.amend(replace(amended, epoch=placed(1)))
        assert store.read(PIPELINE).open == (amended,)


class TestPosition:
    def test_a_position_comes_back_with_its_decision_and_stays_with_the_newest_epoch(self, store):
        store.take_fence(PIPELINE, OWNER)
        for _ in range(2):
            store.decide(replace(decision(0), epoch=placed(0)))
        [open_] = store.read(PIPELINE).open
        assert open_.epoch.origin.position == placed(0).origin.position
        store.settle(PIPELINE, 1, 0)
        state = store.read(PIPELINE)
        assert state.origin.position == placed(0).origin.position
        assert store.find(PIPELINE, 0).epoch.origin.position == placed(0).origin.position

    def test_an_adopted_epoch_is_the_open_one_whether_or_not_it_has_a_position(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 0)
        store.adopt(PIPELINE, 1, placed(0), 0)
        assert store.read(PIPELINE).totals == EACH


class TestAdopt:
    def test_an_empty_store_takes_over_what_the_sinks_know(self, store):
        store.take_fence(PIPELINE, OWNER, at_least=9)
        for _ in range(2):
            store.adopt(PIPELINE, 9, epoch(41), 30)
        state = store.read(PIPELINE)
        assert (state.committed, state.origin, state.base, state.open) == (41, epoch(41).origin, 30, ())
        (row,) = store.window(PIPELINE)
        assert (row.epoch, row.phase, row.count, row.sinks) == (epoch(41), Phase.COMMITTED, Count(), {})
        store.decide(decision(42, fence=9))
        assert store.read(PIPELINE).committed == 41

    def test_open_decisions_before_it_are_settled_and_counted(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        store.adopt(PIPELINE, 1, epoch(5), 0)
        state = store.read(PIPELINE)
        assert (state.committed, state.open, state.totals) == (5, (), EACH + EACH + EACH)
        assert [r.epoch.number for r in store.window(PIPELINE)] == [5, 2, 1, 0]

    def test_the_open_decision_itself_keeps_its_counts(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        store.adopt(PIPELINE, 1, epoch(2), 0)
        assert store.read(PIPELINE).totals == EACH + EACH + EACH
        assert store.find(PIPELINE, 2).phase is Phase.COMMITTED

    def test_an_open_decision_of_other_offsets_gives_way(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        held = epoch(2, query="query-2")
        store.adopt(PIPELINE, 1, held, 0)
        state = store.read(PIPELINE)
        assert (state.committed, state.origin, state.open, state.totals) == (2, held.origin, (), EACH + EACH)
        assert store.find(PIPELINE, 2).epoch == held

    @pytest.mark.parametrize("held", [epoch(1), epoch(2, query="query-2")], ids=["older", "other"])
    def test_a_committed_epoch_is_never_taken_back(self, store, held):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 2)
        store.settle(PIPELINE, 1, 2)
        before = store.read(PIPELINE)
        with pytest.raises(BugError, match="cannot be adopted"):
            store.adopt(PIPELINE, 1, held, 0)
        assert store.read(PIPELINE) == before


class TestPerson:
    def test_reset_makes_the_pipeline_if_it_is_new(self, store):
        store.reset(PIPELINE, 7)
        assert store.read(PIPELINE) == PipelineState(PIPELINE, 0, None, base=7, is_reset=True)
        assert store.take_fence(PIPELINE, OWNER).fence == 1

    def test_reset_leaves_open_decisions_and_is_cleared_by_the_next_one(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 1)
        store.reset(PIPELINE, 2)
        state = store.read(PIPELINE)
        assert (state.base, state.is_reset, state.open) == (2, True, (decision(1),))
        store.settle(PIPELINE, 1, 1)
        assert store.read(PIPELINE).is_reset
        store.decide(decision(2))
        state = store.read(PIPELINE)
        assert (state.base, state.is_reset, state.origin) == (2, False, epoch(1).origin)

    def test_the_first_decision_of_all_clears_a_reset_too(self, store):
        store.reset(PIPELINE, 3)
        store.take_fence(PIPELINE, OWNER)
        store.decide(decision(3))
        state = store.read(PIPELINE)
        assert (state.is_reset, state.committed, state.origin, state.open) == (False, -1, None, (decision(3),))

    def test_forget_leaves_no_trace_and_nothing_of_others(self, store):
        store.take_fence("other", OWNER)
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 3)
        store.forget(PIPELINE)
        assert store.read(PIPELINE) is None
        assert store.find(PIPELINE, 3) is None
        assert store.pipelines() == ["other"]
        assert store.take_fence(PIPELINE, OWNER) == PipelineState(PIPELINE, 1, OWNER)

    def test_forgetting_what_is_not_there_is_fine(self, store):
        store.forget(PIPELINE)
        assert store.pipelines() == []


class TestWindow:
    def test_the_window_is_newest_first_and_limited(self, store):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 5)
        assert [r.epoch.number for r in store.window(PIPELINE, 3)] == [5, 4, 3]
        assert store.window(PIPELINE, 0) == []
        assert store.window("unknown") == []
        assert store.find(PIPELINE, 6) is None

    def test_the_store_keeps_a_thousand(self):
        assert _store.WINDOW == 1000

    def test_the_newest_settled_epochs_stay_and_the_totals_count_all(self, store, monkeypatch):
        monkeypatch.setattr(_store, "WINDOW", 10)
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 24)
        assert [r.epoch.number for r in store.window(PIPELINE)] == list(range(24, 13, -1))
        store.settle(PIPELINE, 1, 24)
        assert [r.epoch.number for r in store.window(PIPELINE)] == list(range(24, 14, -1))
        assert store.find(PIPELINE, 14) is None
        assert store.read(PIPELINE).totals == sum([EACH] * 25, Count())

    def test_the_window_is_bounded_over_a_leap_too(self, store, monkeypatch):
        monkeypatch.setattr(_store, "WINDOW", 10)
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 5)
        store.adopt(PIPELINE, 1, epoch(12), 0)
        assert [r.epoch.number for r in store.window(PIPELINE)] == [12, 5, 4, 3]
        store.adopt(PIPELINE, 1, epoch(1_000_000), 0)
        assert [r.epoch.number for r in store.window(PIPELINE)] == [1_000_000]


class TestPlace:
    def test_another_connection_sees_everything(self, store, place):
        store.take_fence(PIPELINE, OWNER)
        fill(store, 0, 3)
        other = place.open()
        assert other.read(PIPELINE) == store.read(PIPELINE)
        assert other.window(PIPELINE) == store.window(PIPELINE)
        store.close()
        other.close()
        again = place.open()
        assert again.read(PIPELINE).open == (decision(3),)
        again.close()

    def test_close_twice_is_harmless_and_use_after_it_is_a_bug(self, store):
        store.close()
        store.close()
        with pytest.raises(BugError, match="used after close"):
            store.read(PIPELINE)

    def test_a_place_without_state_is_refused_if_it_must_exist(self, place):
        for _ in range(2):
            with pytest.raises(UsageError, match="there is no state at") as caught:
                place.open(must_exist=True)
            assert "pakka run" in caught.value.hint
        place.open().close()
        looker = place.open(must_exist=True)
        assert looker.pipelines() == []
        looker.close()

    def test_only_the_server_is_shared(self, store, place):
        assert store.is_shared() == place.url.startswith("postgresql")
