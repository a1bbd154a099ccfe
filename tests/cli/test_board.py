"""The live line and the plain lines: numbers in, words out."""

from dataclasses import replace

import pytest

from pakka.cli.board import Board
from pakka.model.event import Aborted, Committed, Delivered, Noticed, Retried, Started, Stopped
from pakka.model.latency import Latency
from pakka.observe.figures import Glance


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock) -> Board:
    return Board("refunds", clock)


def started(committed=-1, finished=0, aborted=0) -> Started:
    return Started("refunds", 3, committed, finished, aborted)


def delivered(epoch: int, is_new=True, rows=1000, dead=20, dropped=0, epoch_s=0.5, commit_s=0.04) -> Delivered:
    good = rows - dead - dropped
    out = {"refunds": good, "audit": good, "dead_letters": dead} if is_new else {}
    return Delivered(
        "refunds", epoch, is_new, rows if is_new else 0, out, dead if is_new else 0, dropped, epoch_s, commit_s
    )


def test_before_the_start_spark_is_awaited(board):
    assert board.line() == "refunds  starting Spark"


def test_a_first_run_begins_with_nothing(board):
    assert board.take(started()) == "refunds: fence 3; nothing was delivered before"
    assert board.line() == "refunds  waiting for the first epoch"


def test_a_run_that_recovered_says_what_it_did(board):
    assert board.take(started(41, finished=1, aborted=12)) == (
        "refunds: fence 3; epoch 41 is the newest committed; recovered: 1 decided epoch finished, 12 undecided records aborted"
    )


def test_the_line_tells_how_the_run_stands(board, clock):
    board.take(started())
    board.take(delivered(0))
    board.take(delivered(1, rows=3000, commit_s=0.1))
    clock.now += 2
    assert board.line() == (
        "refunds  epoch 1  4,000 rows/s  lag 2 s  commits 60/min, p99 100 ms  dead 40  in 4,000  out refunds 3,960, audit 3,960"
    )


def test_dropped_rows_are_shown_once_there_are_any(board):
    board.take(started())
    board.take(delivered(0, dropped=5))
    assert "  dead 20  dropped 5  in 1,000" in board.line()


def test_an_epoch_that_was_delivered_before_counts_for_nothing(board):
    board.take(started(0))
    board.take(delivered(0, is_new=False))
    assert board.line() == "refunds  epoch 0  0 rows/s  lag 0 s  commits 0/min, p99 0 ms  dead 0  in 0  out nothing"


def test_the_slowest_commit_in_a_hundred_is_shown(board):
    board.take(started())
    for epoch in range(200):
        board.take(delivered(epoch, commit_s=0.9 if epoch in (7, 99) else 0.01))
    assert "/min, p99 10 ms  " in board.line()
    board.take(delivered(200, commit_s=0.9))
    assert "/min, p99 900 ms  " in board.line()


def test_a_plain_line_is_told_now_and_then_and_not_for_every_epoch(board, clock):
    board.take(started())
    told = []
    for epoch in range(12):
        told.append(board.take(delivered(epoch)) is not None)
        clock.now += 1
    assert told == [True, False, False, False, False, True, False, False, False, False, True, False]


def test_the_time_from_record_to_commit_is_shown_if_the_rows_have_one(board):
    board.take(started())
    board.take(replace(delivered(0), latency=Latency({0: 98}, 1.5)))
    board.take(replace(delivered(1), latency=Latency({0: 2}, 30.0)))
    assert "/min, p99 40 ms  record to commit p50 1.5 s, p99 30.0 s  dead" in board.line()


def test_a_part_that_is_asked_again_is_told_and_shown_until_it_has_answered(board):
    board.take(started())
    board.take(delivered(0))
    told = board.take(Retried("refunds", 1, "audit", False, "the server is down", 0.4))
    assert (
        told == "refunds: epoch 1: sink `audit` has not committed it, not yet: the server is down; asked again in 0.4 s"
    )
    board.take(Retried("refunds", 1, None, True, "line cut", 0.1))
    assert board.line().startswith("refunds  epoch 0  asking audit again  asking the state store again  2,000 rows/s")
    assert board.take(Committed("refunds", 1, "audit", 10, 2, False, 0.5)) is None
    assert board.line().startswith("refunds  epoch 0  asking the state store again  2,000 rows/s")
    board.take(delivered(1))
    assert board.line().startswith("refunds  epoch 1  2,000 rows/s")


class Seen:
    """What the sampler and the counters say at the moment."""

    def __init__(self):
        self.glance = Glance()

    def __call__(self) -> Glance:
        return self.glance


def test_the_line_shows_what_somebody_should_look_at_and_nothing_that_is_zero(clock):
    seen = Seen()
    board = Board("refunds", clock, glance=seen)
    board.take(started())
    seen.glance = Glance(held=1008, worst="settlements-3", worst_held=1000, open_s=300.0)
    held = "held back 1,008 for 5 min, 1,000 in settlements-3"
    assert board.line() == f"refunds  waiting for the first epoch  {held}"
    board.take(delivered(0))
    assert board.line().startswith(f"refunds  epoch 0  {held}  2,000 rows/s")
    seen.glance = Glance(in_doubt=3, in_doubt_s=190.0, expired=1)
    board.take(Retried("refunds", 1, "audit", False, "the server is down", 0.4))
    assert board.line().startswith(
        "refunds  epoch 0  asking audit again  in doubt 3 for 3 min  expired 1  2,000 rows/s"
    )


def test_what_waits_for_seconds_only_comes_last(clock):
    """Under load some records are in doubt at every look, and upstream some transaction is open."""
    seen = Seen()
    seen.glance = Glance(held=8, worst="settlements-3", worst_held=8, open_s=9.0, in_doubt=3, in_doubt_s=10.0)
    board = Board("refunds", clock, glance=seen)
    board.take(started())
    board.take(delivered(0))
    assert board.line().startswith("refunds  epoch 0  in doubt 3 for 10 s  2,000 rows/s")
    assert board.line().endswith("  out refunds 980, audit 980  held back 8 for 9 s, 8 in settlements-3")


def test_all_that_somebody_watches_a_loop_by_fits_on_a_terminal_before_the_sums(board, clock):
    """The end of the line is cut off where a terminal is too narrow for it."""
    board.take(started())
    board.take(replace(delivered(41, rows=52_113), latency=Latency({0: 98}, 1.5)))
    clock.now += 4
    watched, _, sums = board.line().partition("  dead ")
    assert watched == (
        "refunds  epoch 41  104,226 rows/s  lag 4 s  commits 15/min, p99 40 ms  record to commit p50 1.5 s, p99 1.5 s"
    )
    assert len(watched) <= 120
    assert sums.startswith("20  in 52,113  out refunds ")


def test_commits_are_told_by_the_minute_over_the_newest_five(board, clock):
    board.take(started())
    for epoch in range(40):
        clock.now += 15
        board.take(delivered(epoch))
    assert "  commits 4/min, p99" in board.line()
    clock.now += 150
    assert "  commits 2/min, p99" in board.line()
    clock.now += 7200
    assert "  commits 0/min, p99" in board.line()


def test_aborts_are_told_with_their_rate_while_there_is_one(clock):
    seen = Seen()
    board = Board("refunds", clock, glance=seen)
    board.take(Noticed("refunds", "topics", "source kafka: news"))
    seen.glance = Glance(aborted=12)
    board.take(started(41, aborted=12))
    clock.now += 30
    assert board.line() == "refunds  waiting for the first epoch  aborted 12", "those are of recovery"
    seen.glance = Glance(aborted=15)
    board.take(Noticed("refunds", "aborted", "given up", sink="audit"))
    assert board.line() == "refunds  waiting for the first epoch  aborted 15, 6/min"
    clock.now += 600
    assert board.line() == "refunds  waiting for the first epoch  aborted 15"


def test_a_transaction_that_was_given_up_is_left_to_what_follows(board):
    assert board.take(Noticed("refunds", "aborted", "given up", sink="audit")) is None


def test_an_aborted_epoch_is_left_to_the_error_that_ends_the_run(board):
    assert board.take(Aborted("refunds", 1, "a task failed", {})) is None


def test_what_is_noticed_of_the_source_is_told_at_once(board):
    notice = Noticed("refunds", "stalled", "source kafka: a transaction hangs", "abort it")
    assert board.take(notice) == "refunds: source kafka: a transaction hangs (abort it)"
    assert board.take(Noticed("refunds", "topics", "source kafka: news")) == "refunds: source kafka: news"


def test_a_run_that_is_stopping_says_so(board):
    board.take(started())
    board.is_stopping = True
    assert board.line().endswith("  stopping")


@pytest.mark.parametrize(("reason", "how"), [("done", "done"), ("asked", "stopped as asked")])
def test_the_end_is_a_sum(board, reason, how):
    board.take(started())
    board.take(delivered(0))
    board.take(delivered(1))
    assert board.take(Stopped("refunds", 2, 2000, reason)) == (
        f"refunds: {how} after 2 epochs: 2,000 rows in; out refunds 1,960, audit 1,960; 40 dead, 0 dropped"
    )


def test_a_run_with_nothing_to_do_says_so(board):
    board.take(started(3))
    assert board.take(Stopped("refunds", 0, 0, "done")) == "refunds: done; there was nothing new to deliver"
