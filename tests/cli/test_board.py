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
        "refunds  epoch 1  4,000 rows/s  in 4,000  out refunds 3,960, audit 3,960  dead 40  commit p99 100 ms  lag 2 s"
    )


def test_dropped_rows_are_shown_once_there_are_any(board):
    board.take(started())
    board.take(delivered(0, dropped=5))
    assert "  dead 20  dropped 5  commit" in board.line()


def test_an_epoch_that_was_delivered_before_counts_for_nothing(board):
    board.take(started(0))
    board.take(delivered(0, is_new=False))
    assert board.line() == "refunds  epoch 0  0 rows/s  in 0  out nothing  dead 0  commit p99 0 ms  lag 0 s"


def test_the_slowest_commit_in_a_hundred_is_shown(board):
    board.take(started())
    for epoch in range(200):
        board.take(delivered(epoch, commit_s=0.9 if epoch in (7, 99) else 0.01))
    assert "commit p99 10 ms" in board.line()
    board.take(delivered(200, commit_s=0.9))
    assert "commit p99 900 ms" in board.line()


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
    assert "  commit p99 40 ms  record to commit p50 1.5 s, p99 30.0 s  lag" in board.line()


def test_a_part_that_is_asked_again_is_told_and_shown_until_it_has_answered(board):
    board.take(started())
    board.take(delivered(0))
    told = board.take(Retried("refunds", 1, "audit", False, "the server is down", 0.4))
    assert (
        told == "refunds: epoch 1: sink `audit` has not committed it, not yet: the server is down; asked again in 0.4 s"
    )
    board.take(Retried("refunds", 1, None, True, "line cut", 0.1))
    assert board.line().endswith("  asking audit again  asking the state store again")
    assert board.take(Committed("refunds", 1, "audit", 10, 2, False, 0.5)) is None
    assert board.line().endswith("  lag 0 s  asking the state store again")
    board.take(delivered(1))
    assert board.line().endswith("  lag 0 s")


def test_the_line_shows_what_somebody_should_look_at_and_nothing_that_is_zero(clock):
    seen = Glance(held=1008, open_s=300.0)
    board = Board("refunds", clock, glance=lambda: seen)
    board.take(started())
    assert board.line() == "refunds  waiting for the first epoch  held back 1,008 for 5 min"
    board.take(delivered(0))
    assert board.line().endswith("  lag 0 s  held back 1,008 for 5 min")
    seen = Glance(in_doubt=3, in_doubt_s=190.0, aborted=4, expired=1)
    board.take(Retried("refunds", 1, "audit", False, "the server is down", 0.4))
    assert board.line().endswith("  lag 0 s  in doubt 3 for 3 min  aborted 4  expired 1  asking audit again")


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
