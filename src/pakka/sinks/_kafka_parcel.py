"""A request with batches that leaves their records where they lie: in the mapped file of the spool, from which the system sends them.

kafka-python puts a request together as one piece, and a gigabyte of records is copied three times on the way there, while no other thread of the driver
gets on. The library sends several pieces as well as one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka.protocol.producer import ProduceRequest  # type: ignore[import-untyped]

from pakka.sinks._kafka_batch import Place, Signed

_FLEXIBLE_VERSION = 9
"""The first version that is written as it is here. Older brokers get one piece, as the library writes it."""
_NO_TAGS = b"\0"
_SMALL_BYTES = 64 << 10
"""What is less is not worth a call of its own."""

Piece = bytes | bytearray | memoryview
Topics = dict[str, list[tuple[int, Signed]]]


class Parcel(ProduceRequest, init=False):  # type: ignore[misc, call-arg]
    """A produce request. `line` is the connection on which it is sent, asked for when it is."""

    def __init__(
        self,
        transactional_id: str,
        batches: Mapping[Place, Signed],
        timeout_ms: int,
        max_version: int,
        line: Callable[[], Any],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id or None,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[],
            max_version=max_version,
        )
        self.line = line
        self.topics: Topics = {}
        for (topic, partition), signed in batches.items():
            self.topics.setdefault(topic, []).append((partition, signed))

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> Piece:
        """The last piece of the request, which the library sends. Those before it are on the line by then."""
        if self.API_VERSION < _FLEXIBLE_VERSION:
            self.topic_data = [_whole(name, parts) for name, parts in self.topics.items()]
            whole: Piece = super().encode(version, header, framed)
            return whole
        pieces = [self.encode_header(flexible=True), *self._body()]
        *before, last = _merged([struct.pack(">i", sum(map(len, pieces))), *pieces])
        connection = self.line()
        if connection is None or not self._is_next(connection):
            return b"".join([*before, last])
        for piece in before:
            connection.transport.write(piece)
        return last

    def _is_next(self, connection: Any) -> bool:
        """Whether what is written to the line now comes right before what this call returns.

        The library writes that in the same step, unless the line is paused: then it keeps it back, behind others. And it must be the line that asks.
        """
        parser = connection.parser
        is_ours = parser is not None and parser._correlation_id == self.header.correlation_id
        return bool(is_ours and connection.transport is not None and not connection.paused and not parser.bytes_to_send)

    def _body(self) -> Iterator[Piece]:
        """As the schema of the request has it, in its flexible versions."""
        name = self.transactional_id
        yield b"\0" if name is None else _text(name)
        yield struct.pack(">hi", self.acks, self.timeout_ms)
        yield _count(len(self.topics))
        for topic, parts in self.topics.items():
            yield _text(topic)
            yield _count(len(parts))
            for partition, (head, records) in parts:
                yield struct.pack(">i", partition)
                yield _count(len(head) + len(records))
                yield head
                yield records
                yield _NO_TAGS
            yield _NO_TAGS
        yield _NO_TAGS


def _merged(pieces: list[Piece]) -> Iterator[Piece]:
    """The same with small pieces joined."""
    small: list[Piece] = []
    for piece in pieces:
        if len(piece) < _SMALL_BYTES:
            small.append(piece)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield piece
    if small:
        yield b"".join(small)


def _count(number: int) -> bytes:
    """How many there are, which is one less than what is written: nothing stands for null."""
    number += 1
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _text(text: str) -> bytes:
    data = text.encode()
    return _count(len(data)) + data


def _whole(name: str, parts: list[tuple[int, Signed]]) -> Any:
    Topic = ProduceRequest.TopicProduceData
    data = [
        Topic.PartitionProduceData(index=partition, records=b"".join((head, records)))
        for partition, (head, records) in parts
    ]
    return Topic(name=name, partition_data=data)
