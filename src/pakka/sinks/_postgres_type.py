"""Which Arrow column goes into which PostgreSQL column, and how: exact, or not at all.

Binary COPY does not convert: the bytes must be those of the column's own type. Where the server would change a value on
the way in, it does so silently: it rounds numbers and times to the column's digits, cuts blanks, pads `char(n)`. So every
value is brought into its final form here, or refused.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.sinks._numpy import binary_of, bytes_of, is_valid_of, numbers_of
from pakka.sinks._postgres_array import array_wire, numeric_wire
from pakka.sinks._postgres_json import check_json, check_text, is_in_json, is_list, json_text, short, unnest

Cast = Callable[[pa.Array], pa.Array]
"""Brings a column into the form that is copied; a value that does not fit is a ValueError."""

_INT_BITS = {"int2": 16, "int4": 32, "int8": 64}
_FLOAT_BITS = {"float4": 24, "float8": 53}
"""Up to which power of two every whole number is exact."""
_DAY_US = 86_400_000_000
_TIMESTAMP_FIRST_US = -210_866_803_200_000_000
"""4713 BC, PostgreSQL's first year. Its last one is behind the last one of Arrow."""
_DATE_FIRST, _DATE_LAST = -2_440_588, 2_145_042_905
_JSONB_BYTES_MAX = 33_000_000
"""The server makes room for 16 million elements of one array, and the shortest has two characters."""
_EXACT = Context(prec=2000)
"""The usual context rounds to 28 digits."""
_HYPHENS = [8, 13, 18, 23]
_HEX = np.array([int(chr(code), 16) if chr(code) in string.hexdigits else 16 for code in range(256)], np.uint8)
"""The value of a hexadecimal digit by its code; 16 is none."""


@dataclass(frozen=True, slots=True)
class PgType:
    """What a column holds, below any domain."""

    name: str
    """As the catalog has it, such as `int4`; `enum` for every enumeration; empty for a type that pakka does not know."""
    oid: int = 0
    modifier: int = -1
    """The numbers in parentheses, as the catalog keeps them; -1 if there are none."""
    element: PgType | None = None
    labels: tuple[str, ...] = ()


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)
    )


def declared_type(kind: pa.DataType) -> str | None:
    """The type of a column in a table that pakka makes; None if PostgreSQL has no exact one."""
    if pt.is_dictionary(kind):
        return declared_type(kind.value_type)
    if isinstance(kind, pa.UuidType):
        return "uuid"
    if pt.is_decimal(kind):
        scale = max(kind.scale, 0)
        return f"numeric({max(kind.precision - min(kind.scale, 0), scale)},{scale})"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with time zone"
    if is_list(kind) and not pt.is_nested(kind.value_type) and not pt.is_null(kind.value_type):
        element = declared_type(kind.value_type)
        return element and f"{element}[]"
    if pt.is_nested(kind):
        return "jsonb" if is_in_json(kind) else None
    return next((name for test, name in _DECLARED if test(kind)), None)


_DECLARED: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "smallint"),
    (pt.is_int16, "smallint"),
    (pt.is_int32, "integer"),
    (pt.is_int64, "bigint"),
    (pt.is_uint8, "smallint"),
    (pt.is_uint16, "integer"),
    (pt.is_uint32, "bigint"),
    (pt.is_uint64, "numeric(20,0)"),
    (pt.is_float16, "real"),
    (pt.is_float32, "real"),
    (pt.is_float64, "double precision"),
    (_is_string, "text"),
    (_is_binary, "bytea"),
    (pt.is_date, "date"),
    (pt.is_time, "time"),
    (pt.is_duration, "interval"),
    (pt.is_null, "text"),
]


def cast_of(kind: pa.DataType, to: PgType) -> Cast | None:
    """How a column of `kind` becomes one of type `to`; None if it never fits."""
    if isinstance(kind, pa.BaseExtensionType):
        return _through(cast_of(kind.storage_type, to), lambda array: array.storage)
    if pt.is_dictionary(kind):
        return _through(cast_of(kind.value_type, to), lambda array: array.dictionary_decode())
    if pt.is_null(kind):
        # A null has no bytes, so that of any type will do.
        return lambda array: pa.nulls(len(array), pa.string())
    if pt.is_decimal(kind) and kind.bit_width < 128:
        # For which Arrow has few functions.
        wide = pa.decimal128(kind.precision, kind.scale)
        return _through(cast_of(wide, to), lambda array: array.cast(wide))
    if to.element is not None:
        return _to_array(kind, to.element)
    make = CASTS.get(to.name)
    return make and make(kind, to)


def _through(cast: Cast | None, before: Cast) -> Cast | None:
    return None if cast is None else lambda array: cast(before(array))


def _within(array: pa.Array, first: Any, last: Any, takes: str) -> None:
    """Refuse numbers outside first to last, with the worst one as the example."""
    ends = pc.min_max(array).as_py()
    if ends["min"] is not None and (ends["min"] < first or ends["max"] > last):
        raise ValueError(f"{ends['min'] if ends['min'] < first else ends['max']}, and {takes}")


def _to_bool(kind: pa.DataType, _to: PgType) -> Cast | None:
    return (lambda array: array) if pt.is_boolean(kind) else None


def _to_int(kind: pa.DataType, to: PgType) -> Cast | None:
    if not (pt.is_integer(kind) or pt.is_decimal(kind)):
        return None
    bits = _INT_BITS[to.name]
    last = 2 ** (bits - 1) - 1

    def cast(array: pa.Array) -> pa.Array:
        _within(array, -last - 1, last, f"the column takes {-last - 1} to {last}")
        if pt.is_decimal(kind):
            _check_scale(array, 0)
        return array.cast(f"int{bits}")

    return cast


def _to_float(kind: pa.DataType, to: PgType) -> Cast | None:
    made = pa.float32() if to.name == "float4" else pa.float64()
    if pt.is_floating(kind):
        return (lambda array: array.cast(made)) if kind.bit_width <= made.bit_width else None
    if not pt.is_integer(kind):
        return None
    last = 2 ** _FLOAT_BITS[to.name]

    def cast(array: pa.Array) -> pa.Array:
        _within(array, -last, last, f"the column is exact from {-last} to {last} only")
        return array.cast(made)

    return cast


def _to_numeric(kind: pa.DataType, to: PgType) -> Cast | None:
    if pt.is_integer(kind):
        return _through(_to_numeric(pa.decimal128(20, 0), to), lambda array: array.cast(pa.decimal128(20, 0)))
    if not pt.is_decimal(kind):
        return None
    is_long = pt.is_decimal256(kind) or kind.scale < 0
    limit = None if to.modifier < 0 else _digits(to.modifier)

    def cast(array: pa.Array) -> pa.Array:
        if limit is not None:
            _check_digits(array, *limit)
        if is_long:
            return pa.array([None if v is None else numeric_wire(v) for v in array.to_pylist()], pa.binary())
        return array

    return cast


def _digits(modifier: int) -> tuple[int, int]:
    """Precision and scale from a numeric's modifier; the scale may be negative since PostgreSQL 15."""
    packed = modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _check_digits(array: pa.Array, precision: int, scale: int) -> None:
    """PostgreSQL rounds what has more digits behind the point, without a word."""
    last = Decimal((0, (9,) * precision, -scale))
    _within(array, -last, last, f"the column takes up to {last}")
    _check_scale(array, scale)


def _check_scale(array: pa.Array, scale: int) -> None:
    if array.type.scale > scale:
        try:
            array.cast(pa.decimal256(76, scale))
        except pa.ArrowInvalid:
            unit = Decimal((0, (1,), -scale))
            longest = next(v for v in array.to_pylist() if v is not None and v != v.quantize(unit, context=_EXACT))
            raise ValueError(f"{longest}, and the column keeps {scale} digits behind the point") from None


def _to_text(kind: pa.DataType, to: PgType) -> Cast | None:
    if not _is_string(kind) or (to.name == "bpchar" and to.modifier < 0):
        return None
    size = to.modifier - 4

    def cast(array: pa.Array) -> pa.Array:
        array = _checked_text(array)
        if to.modifier >= 0 and to.name == "varchar":
            there = array.drop_null()
            _refuse_first(there, _sizes(there) > size, f"the column takes {size} characters")
        if to.name == "bpchar":
            # It is filled up with blanks, and blanks at its end mean nothing.
            there = array.drop_null()
            _refuse_first(there, _sizes(there) != size, f"the column holds exactly {size} characters")
        if to.name == "enum":
            known = pc.is_in(array, pa.array(to.labels, array.type))
            wrong = is_valid_of(array) & ~numbers_of(known.cast(pa.uint8())).view(np.bool_)
            _refuse_first(array, wrong, f"the column takes {', '.join(map(repr, to.labels))}")
        return array

    return cast


def _checked_text(array: pa.Array) -> pa.Array:
    array = array.cast(pa.large_string()) if pt.is_string_view(array.type) else array
    check_text(array)
    return array


def _refuse_first(array: pa.Array, wrong: npt.NDArray[np.bool_], but: str) -> None:
    """Masks are numpy's: a comparison of Arrow's with a Python number has it import pandas, for half a second."""
    if wrong.any():
        raise ValueError(f"{short(array[int(wrong.argmax())].as_py())}, and {but}")


def _sizes(array: pa.Array) -> npt.NDArray[Any]:
    """The characters of each text. Without nulls, for which numpy has no number."""
    return numbers_of(pc.utf8_length(array))


def _to_uuid(kind: pa.DataType, _to: PgType) -> Cast | None:
    if pt.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return lambda array: array.cast(pa.binary())
    if not _is_string(kind):
        return None

    def cast(array: pa.Array) -> pa.Array:
        array = _checked_text(array)
        there = array.drop_null()
        _refuse_first(there, numbers_of(pc.binary_length(there)) != 36, "that is no UUID")
        codes = bytes_of(there).reshape(-1, 36)
        digits = _HEX[np.delete(codes, _HYPHENS, axis=1)]
        is_uuid = (codes[:, _HYPHENS] == ord("-")).all(axis=1) & (digits < 16).all(axis=1)
        _refuse_first(there, ~is_uuid, "that is no UUID")
        made = digits[:, ::2] << 4 | digits[:, 1::2]
        is_there = is_valid_of(array)
        return binary_of(made.tobytes(), np.where(is_there, 16, 0), is_there)

    return cast


def _to_json(kind: pa.DataType, to: PgType) -> Cast | None:
    if _is_string(kind):

        def make(array: pa.Array) -> pa.Array:
            array = _checked_text(array)
            check_json(array)
            return array.cast(pa.large_string())
    elif pt.is_nested(kind) and is_in_json(kind):
        make = json_text
    else:
        return None
    if to.name == "json":
        return make
    version = pa.scalar(b"\x01", pa.large_binary())
    empty = pa.scalar(b"", pa.large_binary())

    def cast(array: pa.Array) -> pa.Array:
        text = make(array)
        if text.nbytes > _JSONB_BYTES_MAX and (pc.max(pc.binary_length(text)).as_py() or 0) > _JSONB_BYTES_MAX:
            raise ValueError(f"a value of more than {_JSONB_BYTES_MAX} bytes, which jsonb may have no room for")
        return pc.binary_join_element_wise(version, text.cast(pa.large_binary()), empty)

    return cast


def _to_bytea(kind: pa.DataType, _to: PgType) -> Cast | None:
    if not _is_binary(kind):
        return None
    is_plain = pt.is_binary(kind) or pt.is_large_binary(kind)
    return (lambda array: array) if is_plain else (lambda array: array.cast(pa.large_binary()))


def _to_date(kind: pa.DataType, _to: PgType) -> Cast | None:
    if not pt.is_date(kind):
        return None

    def cast(array: pa.Array) -> pa.Array:
        array = array.cast(pa.date32())
        _within(
            array.cast(pa.int32()),
            _DATE_FIRST,
            _DATE_LAST,
            "the days of PostgreSQL's dates go from 4713 BC to 5874897 AD",
        )
        return array

    return cast


def _to_moment(kind: pa.DataType, to: PgType) -> Cast | None:
    """Of a time zone PostgreSQL keeps nothing: a `timestamp with time zone` is an instant, the other is a wall time."""
    if to.name == "time":
        if not pt.is_time(kind):
            return None
        made, first, last, takes = (
            pa.time64("us"),
            0,
            _DAY_US - 1,
            "a time of day is from 0 to 24 hours, in microseconds",
        )
    else:
        if not pt.is_timestamp(kind) or (kind.tz is None) != (to.name == "timestamp"):
            return None
        made, first, last = pa.timestamp("us"), _TIMESTAMP_FIRST_US, 2**63 - 1
        takes = "the microseconds of PostgreSQL's timestamps begin in 4713 BC"
    unit = 10 ** (6 - to.modifier) if 0 <= to.modifier < 6 else 1

    def cast(array: pa.Array) -> pa.Array:
        # Without its zone, of which nothing is needed: Arrow would look it up in a database that not every machine has.
        array = array.view(pa.timestamp(kind.unit)) if pt.is_timestamp(kind) else array
        array = array.cast(made)
        ticks = array.cast(pa.int64())
        _within(ticks, first, last, takes)
        if unit > 1:
            there = array.drop_null()
            rest = numbers_of(there.cast(pa.int64())) % unit
            _refuse_first(there.cast(pa.string()), rest != 0, f"the column keeps {to.modifier} digits of the second")
        return array

    return cast


def _to_interval(kind: pa.DataType, to: PgType) -> Cast | None:
    if not pt.is_duration(kind) or to.modifier >= 0:
        return None
    return lambda array: array.cast(pa.duration("us"))


def _to_array(kind: pa.DataType, element: PgType) -> Cast | None:
    if not is_list(kind) or pt.is_nested(kind.value_type):
        return None
    inner = cast_of(kind.value_type, element)
    if inner is None:
        return None

    def cast(array: pa.Array) -> pa.Array:
        values, lengths = unnest(array)
        return array_wire(is_valid_of(array), lengths, inner(values), element.oid)

    return cast


CASTS: dict[str, Callable[[pa.DataType, PgType], Cast | None]] = {
    "bool": _to_bool,
    "int2": _to_int,
    "int4": _to_int,
    "int8": _to_int,
    "float4": _to_float,
    "float8": _to_float,
    "numeric": _to_numeric,
    "text": _to_text,
    "varchar": _to_text,
    "bpchar": _to_text,
    "citext": _to_text,
    "enum": _to_text,
    "uuid": _to_uuid,
    "json": _to_json,
    "jsonb": _to_json,
    "bytea": _to_bytea,
    "date": _to_date,
    "time": _to_moment,
    "timestamp": _to_moment,
    "timestamptz": _to_moment,
    "interval": _to_interval,
}
"""The types of existing columns that pakka writes."""
