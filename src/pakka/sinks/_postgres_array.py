"""PostgreSQL's binary form of arrays and of long numbers, where the encoder of whole rows has none that fits.

A value in a binary COPY is its length and its bytes, whatever the type. So a column may be put into its final bytes
beforehand and be passed on as binary.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.sinks._numpy import Bytes, Ints, binary_of, bytes_of, is_valid_of, numbers_of, starts_of

_EPOCH_DAYS = 10_957
"""PostgreSQL counts from 2000-01-01, Arrow from 1970-01-01."""
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_NEGATIVE = 0x4000
_FIXED: dict[str, tuple[pa.DataType, str, int]] = {
    "bool": (pa.uint8(), ">u1", 0),
    "int16": (pa.int16(), ">i2", 0),
    "int32": (pa.int32(), ">i4", 0),
    "int64": (pa.int64(), ">i8", 0),
    "float": (pa.float32(), ">f4", 0),
    "double": (pa.float64(), ">f8", 0),
    "date32[day]": (pa.int32(), ">i4", _EPOCH_DAYS),
    "time64[us]": (pa.int64(), ">i8", 0),
    "timestamp[us]": (pa.int64(), ">i8", _EPOCH_US),
    "duration[us]": (pa.int64(), ">i8", 0),
}
"""How an element of fixed width becomes bytes: the number below it, its form, and what to take away from it."""


def array_wire(is_valid: npt.NDArray[np.bool_], lengths: Ints, values: pa.Array, oid: int) -> pa.Array:
    """Each list as the bytes of a one-dimensional array whose elements have type `oid`.

    `is_valid` tells the lists that are there and `lengths` how many elements each has; `values` are the elements of all lists
    behind each other, in the form in which a column of that type would be copied.
    """
    payload, sizes, is_there = _payload(values)
    # The number of dimensions, whether there are nulls, the type; then, unless it is empty, the length and the first index.
    heads = np.where(lengths > 0, 20, 12)
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    first_of = starts_of(lengths)[:-1]
    places_in_body = starts_of(sizes + 4)
    bodies = places_in_body[first_of + lengths] - places_in_body[first_of]
    totals = np.where(is_valid, heads + bodies, 0)
    offsets = starts_of(totals)
    out = np.zeros(int(offsets[-1]), np.uint8)
    starts = offsets[:-1]

    there = np.flatnonzero(is_valid)
    has_null = np.zeros(len(lengths), np.int64)
    has_null[row_of[~is_there]] = 1
    _put(out, starts[there], lengths[there] > 0)
    _put(out, starts[there] + 4, has_null[there])
    _put(out, starts[there] + 8, np.full(len(there), oid))
    filled = np.flatnonzero(lengths)
    _put(out, starts[filled] + 12, lengths[filled])
    _put(out, starts[filled] + 16, np.ones(len(filled)))

    places = starts[row_of] + 20 + places_in_body[:-1] - places_in_body[first_of][row_of]
    _put(out, places, np.where(is_there, sizes, -1))
    out[np.repeat(places + 4 - starts_of(sizes)[:-1], sizes) + np.arange(len(payload))] = payload
    return binary_of(out, totals, is_valid)


def numeric_wire(value: Decimal) -> bytes:
    """A number of any length as PostgreSQL has it: groups of four digits, the weight of the first, sign and digits shown."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value}, which is no number")
    scale = max(0, -exponent)
    number = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    places = -(-scale // 4)
    number *= 10 ** (places * 4 - scale)
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - places if groups else 0
    while groups and groups[0] == 0:
        groups.pop(0)
    head = (len(groups), weight, _NEGATIVE if sign and groups else 0, scale)
    return struct.pack(f">hhHH{len(groups)}h", *head, *reversed(groups))


def _put(out: Bytes, places: Ints, numbers: npt.NDArray[Any]) -> None:
    out[places[:, None] + np.arange(4)] = numbers.astype(">i4").view(np.uint8).reshape(-1, 4)


def _payload(values: pa.Array) -> tuple[Bytes, Ints, npt.NDArray[np.bool_]]:
    """The bytes of all elements behind each other, how many each has, and which are there; a null has no bytes."""
    is_there = is_valid_of(values)
    sizes = np.zeros(len(values), np.int64)
    values = values.drop_null()
    if pt.is_decimal(values.type):
        values = pa.array([numeric_wire(value) for value in values.to_pylist()], pa.large_binary())
    fixed = _FIXED.get(str(values.type))
    if fixed is None:
        sizes[is_there] = numbers_of(pc.binary_length(values))
        return bytes_of(values), sizes, is_there
    plain, form, less = fixed
    numbers = numbers_of(values.cast(plain))
    numbers = numbers - np.asarray(less, numbers.dtype)
    payload = numbers.astype(form).view(np.uint8)
    if pt.is_duration(values.type):
        # An interval has days and months behind the microseconds. A duration has none of them.
        payload = np.concatenate([payload.reshape(-1, 8), np.zeros((len(values), 8), np.uint8)], axis=1).reshape(-1)
    sizes[is_there] = len(payload) // max(1, len(values))
    return payload, sizes, is_there
