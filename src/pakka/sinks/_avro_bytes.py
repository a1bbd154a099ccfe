"""Columns as the bytes that Avro has for their values: large binary, one value a row, none of them null."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pakka.sinks._numpy import Ints, binary_of, is_valid_of, numbers_of, starts_of

BINARY = pa.large_binary()


def blocks(counts: pa.Array, items: pa.Array) -> pa.Array:
    """Lists as one block each: how many, the items, and 0 for no more. An empty one is that 0 alone."""
    lengths = numbers_of(counts).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(starts_of(lengths)), items)
    ends = binary_of(b"\0" * int((lengths > 0).sum()), (lengths > 0).astype(np.int64), np.ones(len(lengths), np.bool_))
    return joined(ints(counts), pc.binary_join(lists, pa.scalar(b"", BINARY)), ends)


def ints(array: pa.Array) -> pa.Array:
    """Whole numbers as Avro has them: zigzag, seven bits a byte, the lowest first."""
    numbers = numbers_of(array).astype(np.int64)
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    more = np.uint64(7) * np.arange(1, 10, dtype=np.uint64)
    sizes = 1 + (zigzag[:, None] >= (np.uint64(1) << more)).sum(axis=1)
    places = np.arange(int(sizes.max(initial=1)))
    groups = (zigzag[:, None] >> (np.uint64(7) * places.astype(np.uint64))).astype(np.uint8) & np.uint8(0x7F)
    groups |= np.where(places < sizes[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return binary_of(groups[places < sizes[:, None]], sizes, np.ones(len(sizes), np.bool_))


def varint(number: int) -> bytes:
    return bytes(ints(pa.array([number], pa.int64()))[0].as_py())


def with_length(array: pa.Array) -> pa.Array:
    return joined(ints(pc.binary_length(array)), array.cast(BINARY))


def decimals(array: pa.Array, size: int | None) -> pa.Array:
    """Decimals as two's complement, the highest byte first: as many bytes as are needed, with their number before, or `size`."""
    width = array.type.byte_width
    data = array.buffers()[1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    rows = raw[array.offset * width :][: len(array) * width].reshape(-1, width)[:, ::-1]
    sign = (rows[:, :1] >> 7) * np.uint8(0xFF)
    # A byte in front is not needed if it only repeats the sign that the next one has too.
    is_spare = (rows[:, :-1] == sign) & ((rows[:, 1:] >> 7) * np.uint8(0xFF) == sign)
    spare = np.cumprod(is_spare, axis=1).sum(axis=1).astype(np.int64)
    if size is None:
        return with_length(_cut(rows, spare))
    if width - int(spare.min(initial=width)) > size:
        raise ValueError(f"a number that does not fit into the {size} bytes of its field")
    more = np.repeat(sign, max(0, size - width), axis=1)
    return fixed(np.concatenate([more, rows[:, max(0, width - size) :]], axis=1), size)


def _cut(rows: npt.NDArray[np.uint8], spare: Ints) -> pa.Array:
    """Rows of bytes, each without so many of its first ones."""
    width = rows.shape[1]
    kept = rows[np.arange(width) >= spare[:, None]]
    return binary_of(kept, width - spare, np.ones(len(spare), np.bool_))


def fixed(numbers: npt.NDArray[Any], size: int = 0) -> pa.Array:
    """Values of one size as they lie in memory."""
    size = size or numbers.dtype.itemsize
    rows = len(numbers)
    data = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1)
    return binary_of(data, np.full(rows, size, np.int64), np.ones(rows, np.bool_))


def repeated(value: bytes, rows: int) -> pa.Array:
    return binary_of(value * rows, np.full(rows, len(value), np.int64), np.ones(rows, np.bool_))


def spread(made: pa.Array, array: pa.Array, is_null: bytes) -> pa.Array:
    """What was made of the values that are there, each at its place, with `is_null` between them."""
    is_there = is_valid_of(array)
    places = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
    return pc.fill_null(made.take(places), pa.scalar(is_null, BINARY))


def joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", BINARY)) if len(parts) > 1 else parts[0]
