"""What is on its way at once: several requests, and never two batches of one partition, whose order and number rest on that."""

import pyarrow as pa
import pytest

from pakka.errors import UnavailableError
from pakka.sinks import _kafka_produce
from pakka.sinks._kafka_batch import Handle, Press
from pakka.sinks._kafka_limit import Limits
from pakka.sinks._kafka_post import Posted
from pakka.sinks._kafka_produce import Seat

BINARY = pa.large_binary()


class Slow:
    """A post that answers only when it is asked, and keeps count; of what two of them have on their way if they share a list."""

    def __init__(self, on_way=None, *, is_shut=False) -> None:
        self.on_way: list[Posted] = [] if on_way is None else on_way
        self.is_shut = is_shut
        """Nothing can be sent over it."""
        self.settled = 0
        self.most = 0
        self.sent: list[tuple[str, int]] = []
        self.is_away = False
        self.begun: list[set[tuple[str, int]]] = []
        """What the coordinator was asked for, each time."""

    def find(self, places) -> None:
        self.found = set(places)

    def begin_in(self, handle, places) -> None:
        assert set(places) == self.found
        self.begun.append(set(places))

    def post(self, handle, batches) -> Posted:
        posted = Posted(handle, batches, None if self.is_shut else (self, batches))
        assert not any(batches.keys() & other.batches.keys() for other in self.on_way)
        self.on_way.append(posted)
        self.most = max(self.most, len(self.on_way))
        self.sent += batches
        return posted

    def settle(self, posted, patience_s) -> dict:
        assert not self.is_shut
        self.on_way.remove(posted)
        self.settled += 1
        if self.is_away:
            raise UnavailableError("away")
        return {}


def packed(partitions, rows=400, bytes_max=2000):
    values = pa.array([b"x" * 100] * rows, BINARY)
    said = pa.array([number % partitions for number in range(rows)], pa.int32())
    records = pa.record_batch({"key": pa.nulls(rows, BINARY), "value": values, "partition": said})
    return Press(bytes_max).pack(records, "t", lambda _: Limits(partitions, 1 << 20), 1)


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_several_requests_are_on_their_way_and_one_batch_a_partition(monkeypatch, partitions):
    monkeypatch.setattr(_kafka_produce, "REQUEST_BYTES", 4500)
    post = Slow()
    outbox = Seat(post, Handle("id", 7, 3), 30.0).outbox("t", set())
    whole = packed(partitions)
    for _ in range(3):
        outbox.send(whole)
    assert post.on_way
    outbox.settle()
    assert post.on_way == []
    assert sorted(post.sent) == sorted([("t", p) for p in whole.column("partition").to_pylist()] * 3)
    # Two batches fit into a request.
    assert post.most == {1: 1, 2: 1, 3: 2, 8: _kafka_produce._ON_WAY_MAX}[partitions]


@pytest.mark.parametrize("is_shut", [False, True])
@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_over_two_lines_there_is_still_one_batch_a_partition_on_its_way(monkeypatch, partitions, is_shut):
    monkeypatch.setattr(_kafka_produce, "REQUEST_BYTES", 4500)
    first = Slow()
    second = Slow(first.on_way, is_shut=is_shut)
    outbox = Seat(first, Handle("id", 7, 3), 30.0, second).outbox("t", set())
    whole = packed(partitions)
    for _ in range(3):
        outbox.send(whole)
    outbox.settle()
    assert first.on_way == []
    assert sorted(first.sent + second.sent) == sorted([("t", p) for p in whole.column("partition").to_pylist()] * 3)
    assert bool(second.sent) is (partitions > 2)
    # What it could not send, the other line has sent.
    assert bool(second.settled) is (partitions > 2 and not is_shut)
    assert max(first.most, second.most) == {1: 1, 2: 1, 3: 2, 8: 4}[partitions]


def test_the_first_batch_to_each_place_goes_over_the_first_line(monkeypatch):
    monkeypatch.setattr(_kafka_produce, "REQUEST_BYTES", 1)
    first = Slow()
    second = Slow(first.on_way)
    seat = Seat(first, Handle("id", 7, 3), 30.0, second)
    honest, sent = Slow.post, []

    def post(line, handle, batches):
        sent.extend((place, line) for place in batches)
        return honest(line, handle, batches)

    monkeypatch.setattr(Slow, "post", post)
    for _ in range(2):
        # In each transaction anew, and for places that come later as well.
        outbox = seat.outbox("t", set())
        sent.clear()
        for partitions in (2, 2, 8, 8):
            outbox.send(packed(partitions))
        outbox.send_one("ledger", b"page", b"key", 0)
        outbox.settle()
        of_first = dict(reversed(sent))
        assert of_first == {("t", number): first for number in range(8)} | {("ledger", 0): first}
        assert second in {line for _, line in sent}


def test_an_epoch_of_one_request_opens_no_second_line():
    first = Slow()
    second = Slow(first.on_way)
    outbox = Seat(first, Handle("id", 7, 3), 30.0, second).outbox("t", set())
    for _ in range(3):
        outbox.send(packed(8, bytes_max=1 << 20))
        outbox.settle()
    assert (bool(first.sent), second.sent) == (True, [])


def test_what_is_on_its_way_is_waited_for_when_the_rest_is_dropped():
    post = Slow()
    outbox = Seat(post, Handle("id", 7, 3), 30.0).outbox("t", set())
    outbox.send(packed(8, bytes_max=1 << 20))
    post.is_away = True
    assert post.on_way
    outbox.drop()
    assert post.on_way == []


def test_the_coordinator_hears_of_the_place_of_the_last_record_with_the_first_ones():
    post = Slow()
    outbox = Seat(post, Handle("id", 7, 3), 30.0).outbox("t", set())
    outbox.foresee("ledger", 0)
    for partitions in (2, 3, 3):
        outbox.send(packed(partitions))
    outbox.send_one("ledger", b"page", b"key", 0)
    outbox.settle()
    assert post.begun == [{("t", 0), ("t", 1), ("ledger", 0)}, {("t", 2)}]
    assert post.sent[-1] == ("ledger", 0)


def test_an_epoch_without_rows_asks_for_the_place_of_its_last_record_alone():
    post = Slow()
    outbox = Seat(post, Handle("id", 7, 3), 30.0).outbox("t", set())
    outbox.foresee("ledger", 0)
    outbox.settle()
    assert post.begun == []
    outbox.send_one("ledger", b"page", b"key", 0)
    outbox.settle()
    assert (post.begun, post.sent) == ([{("ledger", 0)}], [("ledger", 0)])


def test_what_could_not_be_sent_is_not_sent_when_all_is_dropped(monkeypatch):
    monkeypatch.setattr(_kafka_produce, "REQUEST_BYTES", 4500)
    first = Slow()
    second = Slow(first.on_way, is_shut=True)
    outbox = Seat(first, Handle("id", 7, 3), 30.0, second).outbox("t", set())
    outbox.send(packed(8))
    outbox.send(packed(8))
    assert {posted.answer is None for posted in first.on_way} == {True, False}
    outbox.drop()
    assert {posted.answer is None for posted in first.on_way} == {True}
