"""A request in pieces is, byte for byte, the one that kafka-python would have put together."""

from types import SimpleNamespace

import pytest
from kafka.protocol.producer import ProduceRequest

from pakka.sinks._kafka_parcel import _SMALL_BYTES, Parcel

LARGE = bytes(range(256)) * (_SMALL_BYTES // 256)
BATCHES = {
    ("a", 0): (b"head-1", b"small"),
    ("a", 7): (b"head-2", memoryview(LARGE)),
    ("b" * 200, 300): (b"head-3", memoryview(LARGE * 40)),
    ("ä", 1): (b"head-4", b""),
}


class Line:
    """A connection that keeps what is written to it."""

    def __init__(self, *paused):
        self.paused = set(paused)
        self.transport = self
        self.pieces = []

    def writelines(self, pieces):
        self.pieces += pieces


def library(ident, batches, version):
    Topic = ProduceRequest.TopicProduceData
    topics = {}
    for (topic, partition), pieces in batches.items():
        part = Topic.PartitionProduceData(index=partition, records=b"".join(pieces))
        topics.setdefault(topic, []).append(part)
    data = [Topic(name=name, partition_data=parts) for name, parts in topics.items()]
    return encoded(
        ProduceRequest(transactional_id=ident or None, acks=-1, timeout_ms=30_000, topic_data=data, max_version=version)
    )


def encoded(request):
    request.API_VERSION = request._max_version
    request.with_header(correlation_id=77, client_id="pakka")
    return request.encode(framed=True, header=True)


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11])
@pytest.mark.parametrize("ident", ["pakka.refunds", ""])
def test_all_pieces_together_are_what_the_library_sends(ident, version):
    line = Line()
    last = encoded(Parcel(ident, BATCHES, 30_000, version, lambda: line))
    assert b"".join([*line.pieces, last]) == library(ident, BATCHES, version)


def test_large_records_are_sent_from_where_they_lie():
    line = Line()
    last = encoded(Parcel("id", BATCHES, 30_000, 11, lambda: line))
    lying = [piece for piece in line.pieces if isinstance(piece, memoryview)]
    assert [piece is BATCHES[place][1] for piece, place in zip(lying, [("a", 7), ("b" * 200, 300)], strict=True)] == [
        True
    ] * 2
    assert sum(len(piece) for piece in [*line.pieces, last] if not isinstance(piece, memoryview)) < 1000


def test_small_records_are_one_piece():
    line = Line()
    batches = {("a", number): (b"head", b"x" * 100) for number in range(50)}
    assert encoded(Parcel("id", batches, 30_000, 11, lambda: line)) == library("id", batches, 11)
    assert line.pieces == []


@pytest.mark.parametrize("line", [Line("max_in_flight"), SimpleNamespace(paused=set(), transport=None), None])
def test_a_line_that_keeps_requests_back_gets_all_of_it(line):
    # Pieces that were written now would arrive in front of requests that wait.
    assert encoded(Parcel("id", BATCHES, 30_000, 11, lambda: line)) == library("id", BATCHES, 11)
    assert getattr(line, "pieces", []) == []
