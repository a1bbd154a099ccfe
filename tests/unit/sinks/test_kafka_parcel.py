"""A request in pieces is, byte for byte, the one that kafka-python would have put together."""

import pytest
from kafka.net.connection import KafkaConnection
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from pakka.sinks._kafka_parcel import _SMALL_BYTES, Parcel

LARGE = bytes(range(256)) * (_SMALL_BYTES // 256)
BATCHES = {
    ("a", 0): (b"head-1", b"small"),
    ("a", 7): (b"head-2", memoryview(LARGE)),
    ("b" * 200, 300): (b"head-3", memoryview(LARGE * 40)),
    ("ä", 1): (b"head-4", b""),
}


class Net:
    """Of a loop nothing is asked here but timers, which never ring."""

    def call_at(self, *_):
        return None

    def cancel(self, _):
        return None


class Transport:
    """Keeps what is written."""

    def __init__(self):
        self.pieces = []

    def write(self, data):
        self.pieces.append(data)

    def get_protocol(self):
        return None

    set_protocol = resume_reading = getPeer = host_port = lambda *_: ("here", 1)

    @property
    def stream(self):
        return b"".join(self.pieces)


def opened(version=11, *, is_ready=True):
    """A real connection of the library's, over which nothing is sent."""
    versions = BrokerVersionData(api_versions={ProduceRequest.API_KEY: (0, version), MetadataRequest.API_KEY: (0, 9)})
    line = KafkaConnection(Net(), node_id=1, broker_version_data=versions)
    line.connection_made(Transport())
    if is_ready:
        line._init_complete()
    return line


def library(ident, batches):
    """The same request as the library writes it."""
    Topic = ProduceRequest.TopicProduceData
    topics = {}
    for (topic, partition), pieces in batches.items():
        part = Topic.PartitionProduceData(index=partition, records=b"".join(pieces))
        topics.setdefault(topic, []).append(part)
    data = [Topic(name=name, partition_data=parts) for name, parts in topics.items()]
    return ProduceRequest(transactional_id=ident or None, acks=-1, timeout_ms=30_000, topic_data=data, max_version=11)


def sent(line, *requests):
    for request in requests:
        line.send_request(request)
    return line.transport.stream


def parcel(line, ident="id", batches=BATCHES, kind=Parcel):
    return kind(ident, batches, 30_000, 11, lambda: line)


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11])
@pytest.mark.parametrize("ident", ["pakka.refunds", ""])
def test_all_pieces_together_are_what_the_library_sends(ident, version):
    line = opened(version)
    assert sent(line, parcel(line, ident)) == sent(opened(version), library(ident, BATCHES))


def test_large_records_are_sent_from_where_they_lie():
    line = opened()
    sent(line, parcel(line))
    pieces = line.transport.pieces
    lying = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert [piece is BATCHES[place][1] for piece, place in zip(lying, [("a", 7), ("b" * 200, 300)], strict=True)] == [
        True
    ] * 2
    assert sum(len(piece) for piece in pieces if not isinstance(piece, memoryview)) < 1000


def test_small_records_are_one_piece():
    line = opened()
    batches = {("a", number): (b"head", b"x" * 100) for number in range(50)}
    assert sent(line, parcel(line, batches=batches)) == sent(opened(), library("id", batches))
    assert len(line.transport.pieces) == 1


class Hasty(Parcel, init=False):
    """Writes its pieces whatever the line does with the rest."""

    def _is_next(self, connection):
        return True


@pytest.mark.parametrize(("kind", "is_right"), [(Parcel, True), (Hasty, False)])
def test_requests_that_a_line_keeps_back_are_sent_whole_and_in_their_order(kind, is_right):
    # A line that is about to open buffers requests, and takes five of them then: the others wait for answers.
    line, other = opened(is_ready=False), opened(is_ready=False)
    sent(line, MetadataRequest(topics=None, max_version=1), *(parcel(line, f"id-{n}", kind=kind) for n in range(7)))
    sent(other, MetadataRequest(topics=None, max_version=1), *(library(f"id-{n}", BATCHES) for n in range(7)))
    for each in (line, other):
        assert each.transport.stream == b""
        each._init_complete()
        assert each.paused
        each.unpause("max_in_flight")
    assert (line.transport.stream == other.transport.stream) is is_right
    assert len(line.transport.stream) == len(other.transport.stream)


def test_pieces_are_not_written_to_another_line_than_the_one_that_asks():
    line, other = opened(), opened()
    sent(other, *(MetadataRequest(topics=None, max_version=1) for _ in range(2)))
    before = other.transport.stream
    assert sent(line, parcel(other)) == sent(opened(), library("id", BATCHES))
    assert other.transport.stream == before
