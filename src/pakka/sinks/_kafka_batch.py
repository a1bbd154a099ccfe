"""Records as brokers keep them: batches of Kafka's format 2, made from Arrow columns without a loop over records.

A batch is what a broker writes to its log byte by byte, so whoever makes large ones spares work on both sides. Its records are made
of small numbers and of the bytes of key and value, one record behind the other: numpy makes the numbers, Arrow joins the columns.
A batch says in its head whose it is and how many came before it, which is known only when it is sent: `Batch.signed`. All else is made on
the executors, and lies in the spool as a row of `PACKED`.

Equal keys land in the partition in which a Java producer puts them. Two producers of one topic that differ in it tear the records of
a key apart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from pakka.sinks._kafka_limit import Limits
from pakka.sinks._numpy import Ints, column_of, is_valid_of, numbers_of, starts_of, text_of
from pakka.sinks._spool import ROWS

Place = tuple[str, int]
"""A topic and a partition of it."""
Signed = tuple[bytes, bytes | memoryview]
"""A batch in two pieces, its head and its records, which are not copied for it."""
SEQUENCES = 1 << 31
"""Numbers of records begin again after so many."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""By what brokers call them, the number in a batch."""
PACKED = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("count", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("codec", pa.int64()),
        ("records", pa.large_binary()),
    ],
    metadata={ROWS: "count"},
)
"""Batches as they lie in the spool, one a row. One without a topic is for that of the sink, which the prepared record names."""

_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_LENGTH_FROM = 12
"""A batch counts its length from behind that."""
_MAGIC = 2
_IS_TRANSACTIONAL = 0x10
_NO_LEADER_EPOCH = -1
_RECORD_BYTES = 36
"""At most that many bytes of a record are neither key, value nor headers."""
_XERIAL = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
_LZ4 = bytes.fromhex("04224d18 60 40 82")
"""Blocks of up to 64 KB, each on its own, without checksums; and the checksum of that."""
_LZ4_END = bytes(4)
_LZ4_AS_IT_IS = 1 << 31
_FRAME_BYTES = 64 << 10

_BINARY = pa.large_binary()
_NOTHING = text_of(b"")[0]
_NO_HEADERS = text_of(b"\0")[0]
_MURMUR = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


@dataclass(frozen=True, slots=True)
class Handle:
    """One transaction for ever: a producer that asks for its id anew gets another epoch."""

    id: str
    """Empty for a producer that has no transactions."""
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records for one partition, in their order."""

    place: Place
    count: int
    first_ms: int
    last_ms: int
    """The latest time of a record of it."""
    codec: int
    records: bytes | memoryview

    def signed(self, whose: Handle, sequence: int) -> Signed:
        """As a broker takes it; `sequence` counts what its producer has sent to this partition before."""
        body = _BODY.pack(
            (_IS_TRANSACTIONAL if whose.id else 0) | self.codec,
            self.count - 1,
            self.first_ms,
            self.last_ms,
            whose.producer_id,
            whose.producer_epoch,
            sequence % SEQUENCES,
            self.count,
        )
        length = _HEAD.size - _LENGTH_FROM + len(body) + len(self.records)
        checksum = crc32c(self.records, crc32c(body))
        head = _HEAD.pack(0, length, _NO_LEADER_EPOCH, _MAGIC, checksum)
        return head + body, self.records


def unpacked(packed: pa.RecordBatch, topic: str) -> Iterator[Batch]:
    """The batches of rows of `PACKED`, none of which is copied. `topic` is that of those which name none."""
    *columns, records = packed.columns
    _, ends, data = records.buffers()
    bounds = np.frombuffer(ends, np.int64)[records.offset :].tolist()
    view = memoryview(data)
    described = zip(*(column.to_pylist() for column in columns), strict=True)
    for (name, partition, count, first_ms, last_ms, codec), (start, stop) in zip(
        described, pairwise(bounds), strict=False
    ):
        yield Batch((name or topic, partition), count, first_ms, last_ms, codec, view[start:stop])


@dataclass(frozen=True, slots=True)
class Press:
    """Makes batches of records."""

    bytes_max: int
    """Of a batch with several records, unless its topic takes less at once."""
    codec: str = "none"

    def pack(
        self, records: pa.RecordBatch, topic: str | None, limits: Callable[[str], Limits], now_ms: int
    ) -> pa.RecordBatch:
        """Rows of `PACKED`. `topic` is that of all records; None: each says its own. One without a time is of `now_ms`."""
        where = _Places.of(records, topic, limits, now_ms)
        # Two bytes are sorted in no time.
        numbers = where.numbers.astype(np.uint16) if len(where.places) < 1 << 16 else where.numbers
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        rows = records.take(column_of(order))
        keys, values = rows.column("key"), rows.column("value")
        headers, header_sizes = _headers(rows)
        key_sizes, value_sizes = _sizes(keys), _sizes(values)
        lengths = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes
        rooms = np.minimum(where.bytes_max, self.bytes_max) - _HEAD.size - _BODY.size
        starts = _cuts(numbers, lengths + _RECORD_BYTES, rooms)
        firsts, counts = starts[:-1], np.diff(starts)
        times = _times(rows, now_ms)
        deltas = [
            times - np.repeat(times[firsts], counts),
            np.arange(len(order)) - np.repeat(firsts, counts),
            key_sizes,
        ]
        widths = sum(_width(_zigzag(column)) for column in (*deltas, value_sizes))
        # The second number of a record is its attributes, of which there are none.
        heads = _varints(1 + widths + lengths, np.zeros(len(order), np.int64), *deltas)
        written = pc.binary_join_element_wise(
            heads, keys, _varints(value_sizes), values, headers, _NOTHING, null_handling="replace", null_replacement=""
        )
        places = [where.places[number] for number in numbers[firsts].tolist()]
        columns = [
            text_of(*(name.encode() for name, _ in places)).cast(pa.string())
            if topic is None
            else pa.nulls(len(places), pa.string()),
            column_of(np.array([partition for _, partition in places], np.int64)),
            column_of(counts),
            column_of(times[firsts]),
            column_of(np.maximum.reduceat(times, firsts)),
            *_compressed(written, starts, self.codec),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def partitions_of(keys: pa.Array, counts: Ints, first: int) -> Ints:
    """The partition of each key, of so many, as a Java producer chooses it. Without a key it is any, and as many go to each, from that
    partition on: if few rows come at a time they should not all go to the same ones.
    """
    found: Ints = (_murmur2(keys) & 0x7FFFFFFF).astype(np.int64) % counts
    if keys.null_count:
        (rows,) = np.nonzero(~is_valid_of(keys))
        found[rows] = (first + np.arange(len(rows)) * counts[rows] // len(rows)) % counts[rows]
    return found


@dataclass(frozen=True, slots=True)
class _Places:
    """All places that some records could go to."""

    places: Sequence[Place]
    bytes_max: Ints
    """What each takes at once."""
    numbers: Ints
    """Of each record, the number of its place."""

    @classmethod
    def of(cls, records: pa.RecordBatch, topic: str | None, limits: Callable[[str], Limits], first: int) -> _Places:
        if topic is None:
            topics = records.column("topic")
            names, which = topics.dictionary.to_pylist(), numbers_of(topics.indices)
            is_used = np.bincount(which, minlength=len(names)) > 0
        else:
            names, which, is_used = [topic], np.zeros(records.num_rows, np.int32), np.array([True])
        taken = [limits(name) if used else Limits(0, 0) for name, used in zip(names, is_used, strict=True)]
        counts = np.array([each.partitions for each in taken], np.int64)
        chosen = partitions_of(records.column("key"), counts[which], first)
        if "partition" in records.schema.names:
            said = records.column("partition")
            chosen = np.where(is_valid_of(said), numbers_of(said), chosen)
            # One that the topic does not have is its own place, for which the broker has the words.
            counts = np.maximum(counts, int(chosen.max()) + 1)
        places = [(name, number) for name, count in zip(names, counts.tolist(), strict=True) for number in range(count)]
        bytes_max = np.repeat(np.array([each.record_bytes for each in taken], np.int64), counts)
        return cls(places, bytes_max, starts_of(counts)[which] + chosen)


def _cuts(numbers: npt.NDArray[Any], sizes: Ints, rooms: Ints) -> Ints:
    """Where each batch begins, and where the last one ends: it is for one place, and no larger than its room unless it has one record."""
    ends = starts_of(sizes)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    starts: list[int] = []
    for start, stop in pairwise(edges):
        at, room = start, rooms[numbers[start]]
        while at < stop:
            starts.append(at)
            at = max(at + 1, int(np.searchsorted(ends, ends[at] + room, "right")) - 1)
    starts.append(len(numbers))
    return np.array(starts, np.int64)


def _times(rows: pa.RecordBatch, now_ms: int) -> Ints:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now_ms, np.int64)
    times = rows.column("timestamp")
    return np.where(is_valid_of(times), numbers_of(times), now_ms)


def _headers(rows: pa.RecordBatch) -> tuple[pa.Array | pa.Scalar, Ints]:
    """How many there are, and each one's key and value; and the bytes of that."""
    if "headers" not in rows.schema.names:
        return _NO_HEADERS, np.ones(rows.num_rows, np.int64)
    lists = rows.column("headers")
    counts = np.where(is_valid_of(lists), numbers_of(pc.list_value_length(lists)), 0).astype(np.int64)
    entries = pc.list_flatten(lists)
    keys, values = (pc.struct_field(entries, name).cast(_BINARY) for name in ("key", "value"))
    written = pc.binary_join_element_wise(
        _varints(_sizes(keys)), keys, _varints(_sizes(values)), values, _NOTHING,
        null_handling="replace", null_replacement="",
    )  # fmt: skip
    _, ends, data = written.buffers()
    # The entries of a record lie behind each other already.
    bounds = np.ascontiguousarray(np.frombuffer(ends, np.int64)[starts_of(counts)])
    joined = pa.Array.from_buffers(_BINARY, len(lists), [None, pa.py_buffer(bounds), data])
    return (
        pc.binary_join_element_wise(_varints(counts), joined, _NOTHING),
        np.diff(bounds) + _width(_zigzag(counts)),
    )


def _sizes(array: pa.Array) -> Ints:
    """The bytes of each value; -1 for null, as Kafka has it."""
    return np.where(is_valid_of(array), numbers_of(pc.binary_length(array)), -1)


def _zigzag(numbers: Ints) -> npt.NDArray[np.uint64]:
    """Numbers of which the small ones, also below zero, are small."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _width(zigzag: npt.NDArray[np.uint64]) -> Ints:
    """The bytes of each as a varint, seven bits a byte."""
    width = np.ones(len(zigzag), np.int64)
    bits, most = 7, int(zigzag.max(initial=0))
    while most >> bits:
        width += zigzag >= np.uint64(1 << bits)
        bits += 7
    return width


def _varints(*columns: Ints) -> pa.Array:
    """For each row the varints of its numbers behind each other."""
    parts: list[npt.NDArray[np.uint8]] = []
    is_there: list[npt.NDArray[np.bool_]] = []
    total = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        zigzag = _zigzag(column)
        width = _width(zigzag)
        for at in range(int(width.max(initial=1))):
            is_last = width == at + 1
            low = (zigzag >> np.uint64(7 * at)).astype(np.uint8)
            parts.append(np.where(is_last, low & 0x7F, low | 0x80))
            is_there.append(width > at)
        total += width
    data = np.stack(parts, 1)[np.stack(is_there, 1)]
    return pa.Array.from_buffers(_BINARY, len(total), [None, pa.py_buffer(starts_of(total)), pa.py_buffer(data)])


def _murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each key, four of its bytes at a time over all keys. A null is hashed as if it were empty."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    starts, sizes = ends[:-1], np.diff(ends)
    raw = np.zeros(int(ends[-1] - ends[0]) + 4, np.uint8)
    if data is not None:
        raw[:-4] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    starts = starts - ends[0]
    # Every four bytes as a number, wherever they begin.
    words: npt.NDArray[Any] = np.ndarray((len(raw) - 3,), "<u4", raw, strides=(1,))
    hashes: npt.NDArray[Any] = _SEED ^ sizes.astype(np.uint32)
    whole = sizes >> 2
    for at in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > at)
        word = words[starts[rows] + 4 * at] * _MURMUR
        word = (word ^ (word >> 24)) * _MURMUR
        hashes[rows] = hashes[rows] * _MURMUR ^ word
    rows = np.flatnonzero(sizes & 3)
    rest = sizes[rows] & 3
    word = words[starts[rows] + (whole[rows] << 2)] & ((1 << (8 * rest)) - 1).astype(np.uint32)
    hashes[rows] = (hashes[rows] ^ word) * _MURMUR
    hashes = (hashes ^ (hashes >> 13)) * _MURMUR
    found: npt.NDArray[np.uint32] = hashes ^ (hashes >> 15)
    return found


def _compressed(written: pa.Array, starts: Ints, codec: str) -> tuple[pa.Array, pa.Array]:
    """The codec of each batch, and its records behind each other. Not copied unless they are compressed."""
    _, ends, data = written.buffers()
    bounds = np.frombuffer(ends, np.int64)[starts]
    codecs = np.zeros(len(starts) - 1, np.int64)
    if codec == "none":
        return column_of(codecs), pa.Array.from_buffers(_BINARY, len(codecs), [None, pa.py_buffer(bounds), data])
    view = memoryview(data)
    blocks: list[bytes | memoryview] = []
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        block = _compress_batch(view[start:stop], codec)
        # What compression makes larger stays as it is: that much was held against the topic's limit.
        is_smaller = len(block) < stop - start
        codecs[number] = CODECS[codec] if is_smaller else CODECS["none"]
        blocks.append(block if is_smaller else view[start:stop])
    return column_of(codecs), text_of(*blocks)


def _compress_batch(data: memoryview, codec: str) -> bytes:
    """Snappy and lz4 in the frames of Kafka's own, which knows neither one block of snappy nor blocks of lz4 that refer to others."""
    if codec == "snappy":
        blocks = [_compress(part, "snappy") for part in _parts(data)]
        return _XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == "lz4":
        return _LZ4 + b"".join(_lz4_block(part) for part in _parts(data)) + _LZ4_END
    return _compress(data, codec)


def _parts(data: memoryview) -> Iterator[memoryview]:
    return (data[at : at + _FRAME_BYTES] for at in range(0, len(data), _FRAME_BYTES))


def _lz4_block(part: memoryview) -> bytes:
    block = _compress(part, "lz4_raw")
    is_smaller = len(block) < len(part)
    return struct.pack("<I", len(block) if is_smaller else len(part) | _LZ4_AS_IT_IS) + (block if is_smaller else part)


def _compress(data: memoryview, codec: str) -> bytes:
    return bytes(pa.compress(data, codec, asbytes=True))
