"""Columns of Arrow as numpy has them and back, without a copy where none is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def starts_of(sizes: Ints) -> Ints:
    """Where each part begins if they lie behind each other, and where the last one ends."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """A column of numbers without nulls, for numpy. Arrow's own way there imports pandas, for half a second in every worker."""
    kind = np.dtype({"float": "f4", "double": "f8"}.get(str(array.type), str(array.type)))
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def column_of(numbers: npt.NDArray[Any]) -> pa.Array:
    """A column of these numbers, the other way round of `numbers_of`."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(numbers)])


def is_valid_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    return numbers_of(array.is_valid().cast(pa.uint8())).view(np.bool_)


def binary_of(data: bytes | Bytes, sizes: Ints, is_there: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of binary values from their bytes behind each other, the other way round of `bytes_of`."""
    bitmap = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(starts_of(sizes)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def text_of(*values: bytes | memoryview) -> pa.Array:
    """A column of these bytes. Arrow's own way from Python's objects imports pandas, too."""
    sizes = np.array([len(value) for value in values], np.int64)
    return pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(starts_of(sizes)), pa.py_buffer(b"".join(values))]
    )


def bytes_of(array: pa.Array) -> Bytes:
    """The bytes of a column of text or binary, all values behind each other."""
    is_large = pt.is_large_string(array.type) or pt.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    return np.frombuffer(data, np.uint8)[ends[array.offset] : ends[array.offset + len(array)]]
