"""The values of an Arrow column as what a MySQL column takes and keeps exactly, or a ValueError.

`LOAD DATA LOCAL` turns every error into a warning and stores what comes nearest: a number out of range becomes the end of
the range, a long text is cut, a null in a NOT NULL column becomes 0. So what a column cannot hold is found here, a column
at a time, before anything is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.sinks._mysql_column import Column
from pakka.sinks._sqlite_column import encode_nested, is_in_json

Encode = Callable[[pa.Array], pa.Array]
"""From the values of a column to text, bytes, integers or moments in UTC; null stays null."""

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DAY_FIRST, _DAY_LAST = -719162, 2932896
"""0001-01-01 and 9999-12-31 as days."""
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_TIMESTAMP_FIRST_S, _TIMESTAMP_LAST_S = 1, 2_147_483_647
"""What a column of the type `timestamp` can hold: it ends in January 2038."""
_PLAIN_SCALE = 6
"""Up to so many digits behind the point Arrow writes a number without an exponent."""
_CODECS = {"latin1": "cp1252", "ascii": "ascii", "utf8mb3": None, "utf8": None, "ucs2": None}
"""Character sets that lack characters, and Python's name of them; None: those beyond 16 bits."""
_WHOLE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_ENUM_VALUE = re.compile(r"'((?:[^']|'')*)'")


def encoder(kind: pa.DataType, column: Column) -> Encode | None:
    """How values of this type go into that column; None if they do not, or not exactly."""
    if pt.is_dictionary(kind):
        inner = encoder(kind.value_type, column)
        return inner and (lambda array: inner(array.cast(kind.value_type)))
    if pt.is_null(kind):
        return lambda array: array.cast(pa.string())
    for fits, encode in _ENCODERS:
        if fits(kind, column):
            return partial(encode, column)
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _encode_bit(_: Column, array: pa.Array) -> pa.Array:
    return pc.if_else(array, pa.scalar(b"\x01"), pa.scalar(b"\x00"))


def _encode_integer(column: Column, array: pa.Array) -> pa.Array:
    if pt.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if column.kind == "decimal":
        most = 10 ** ((column.precision or 0) - (column.scale or 0)) - 1
        least = -most
    else:
        bits = _INTEGER_BITS[column.kind]
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        if column.is_unsigned:
            most = (1 << bits) - 1
    _check_range(array, 0 if column.is_unsigned else least, most, column)
    return array


def _check_range(array: pa.Array, least: int, most: int, column: Column) -> None:
    ends = pc.min_max(array).as_py()
    for value in (ends["min"], ends["max"]):
        if value is not None and not least <= value <= most:
            raise ValueError(f"{value}, and {column.declared} holds {least} to {most}")


def _encode_double(_: Column, array: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(array)).as_py() is False:
        raise ValueError("NaN or an infinity, which the server cannot hold")
    # As a double, the text of a 32-bit number has all its digits; its shortest text can be beyond the largest one.
    return array.cast(pa.float64()).cast(pa.string())


def _encode_decimal(column: Column, array: pa.Array) -> pa.Array:
    precision, scale = column.precision or 0, column.scale or 0
    # What fits by its type needs no look at its values, and the text of 128 bits is made in half the time of that of 256.
    if pt.is_decimal128(array.type) and array.type.scale == scale and array.type.precision <= precision:
        fitted = array
    else:
        try:
            fitted = array.cast(pa.decimal256(76, array.type.scale)).cast(pa.decimal256(precision, scale))
        except pa.ArrowInvalid as error:
            raise ValueError(f"a value that does not fit {column.declared}: {error}") from error
    if column.is_unsigned and (low := _least(fitted)) is not None and low < 0:
        raise ValueError(f"{low}, and {column.declared} holds nothing below 0")
    text = fitted.cast(pa.string())
    if scale > _PLAIN_SCALE and pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([None if v is None else format(v, "f") for v in fitted.to_pylist()], pa.string())
    return text


def _least(array: pa.Array) -> Decimal | None:
    low: Decimal | None = pc.min(array).as_py()
    return low


def _encode_text(column: Column, array: pa.Array) -> pa.Array:
    _check_utf8(array)
    if column.length is not None and column.kind in ("char", "varchar"):
        _check_most(pc.utf8_length(array), column.length, "characters", column)
    elif column.octets is not None and column.charset in ("utf8mb4", "utf8mb3", "utf8"):
        _check_most(pc.binary_length(array), column.octets, "bytes", column)
    if column.kind == "char" and pc.any(pc.ends_with(array, " ")).as_py():
        raise ValueError(f"a text that ends with a space, which {column.declared} takes away")
    _check_charset(array, column)
    return array


def _check_utf8(array: pa.Array) -> None:
    """Text that is not UTF-8 passes through Spark and Arrow unnoticed."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"text that is malformed: {error}; if it holds bytes, cast it to BINARY") from error


def _check_charset(array: pa.Array, column: Column) -> None:
    if column.charset in _WHOLE or pc.all(pc.string_is_ascii(array)).as_py() is not False:
        return
    codec = _CODECS.get(column.charset or "")
    for value in pc.unique(array).to_pylist():
        try:
            if value is not None and codec is None and value and max(value) > "\uffff":
                raise ValueError(f"{value[:40]!r}, which has a character that {column.charset} lacks")
            if value is not None and codec is not None:
                value.encode(codec)
        except UnicodeEncodeError as error:
            raise ValueError(f"{value[:40]!r}, which has a character that {column.charset} lacks") from error


def _check_most(lengths: pa.Array, most: int, what: str, column: Column) -> None:
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > most:
        raise ValueError(f"a value of {longest} {what}, and {column.declared} holds {most}")


def _encode_enum(column: Column, array: pa.Array) -> pa.Array:
    allowed = [value.replace("''", "'") for value in _ENUM_VALUE.findall(column.declared)]
    _check_utf8(array)
    known = pc.is_in(array, value_set=pa.array(allowed, array.type))
    other = array.filter(pc.and_(pc.is_valid(array), pc.invert(known)))
    if len(other):
        raise ValueError(f"{other[0].as_py()[:40]!r}, and {column.declared} does not list it")
    return array


def _encode_json_text(_: Column, array: pa.Array) -> pa.Array:
    _check_utf8(array)
    for value in array.to_pylist():
        if value is not None:
            try:
                json.loads(value, parse_constant=_no_constant, parse_int=_json_integer)
            except ValueError as error:
                raise ValueError(f"{value[:40]!r}, which JSON cannot hold exactly: {error}") from error
    return array


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number there")


def _json_integer(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{text[:40]} has more than 64 bits")
    return value


def _encode_bytes(column: Column, array: pa.Array) -> pa.Array:
    if pt.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    if column.octets is not None:
        lengths = pc.binary_length(array)
        _check_most(lengths, column.octets, "bytes", column)
        if column.kind == "binary" and (shortest := pc.min(lengths).as_py()) is not None and shortest < column.octets:
            raise ValueError(f"a value of {shortest} bytes, which {column.declared} would fill up")
    return array


def _encode_date(column: Column, array: pa.Array) -> pa.Array:
    _check_days(array.cast(pa.date32()), column)
    return array.cast(pa.date32()).cast(pa.string())


def _check_days(days: pa.Array, column: Column) -> None:
    ends = pc.min_max(days.cast(pa.int32())).as_py()
    if ends["min"] is not None and (ends["min"] < _DAY_FIRST or ends["max"] > _DAY_LAST):
        raise ValueError(f"a year outside 1 to 9999, which {column.declared} cannot hold")


def _encode_moment(column: Column, array: pa.Array) -> pa.Array:
    """An instant is given in UTC, as the session is; a wall time as it is."""
    unit = array.type.unit
    ticks = array.cast(pa.int64())
    ends = pc.min_max(ticks).as_py()
    per = _PER_SECOND[unit]
    first, last = _DAY_FIRST * 86_400, (_DAY_LAST + 1) * 86_400 - 1
    if column.kind == "timestamp":
        first, last = _TIMESTAMP_FIRST_S, _TIMESTAMP_LAST_S
    if ends["min"] is not None and not (first * per <= ends["min"] and ends["max"] < (last + 1) * per):
        raise ValueError(f"a moment outside of what {column.declared} can hold")
    _check_fraction(ticks, per, column)
    # Through the bare number: Arrow's own way would need a time zone database on every machine.
    return ticks.cast(pa.timestamp(unit)).cast(pa.timestamp("us"))


def _encode_time(column: Column, array: pa.Array) -> pa.Array:
    bits = pa.int32() if pt.is_time32(array.type) else pa.int64()
    _check_fraction(array.cast(bits).cast(pa.int64()), _PER_SECOND[array.type.unit], column)
    return array.cast(pa.time64("us")).cast(pa.string())


def _check_fraction(ticks: pa.Array, per_second: int, column: Column) -> None:
    """The server would round, and not say so."""
    step = per_second // 10 ** min(column.fraction or 0, 6)
    if step > 1 and pc.any(pc.not_equal(ticks, pc.multiply(pc.divide(ticks, step), step))).as_py():
        raise ValueError(f"more digits of a second than {column.declared} keeps")


def _encode_nested(column: Column, array: pa.Array) -> pa.Array:
    text = encode_nested(array)
    if column.octets is not None:
        _check_most(pc.binary_length(text), column.octets, "bytes", column)
    return text


def _is_whole_number(kind: pa.DataType, column: Column) -> bool:
    is_number = column.kind in _INTEGER_BITS or column.kind == "decimal"
    return bool((pt.is_integer(kind) or pt.is_boolean(kind)) and is_number)


def _is_double(kind: pa.DataType, column: Column) -> bool:
    # `double(8,2)` rounds, and an unsigned one has no room below zero.
    if column.declared == "double":
        return bool(pt.is_floating(kind))
    return bool(pt.is_float32(kind) and column.declared == "float")


def _is_known_text(kind: pa.DataType, column: Column) -> bool:
    return _is_text(kind) and column.kind in _TEXTS and (column.charset in _WHOLE or column.charset in _CODECS)


def _is_moment(kind: pa.DataType, column: Column) -> bool:
    # A wall time in a `timestamp` would be another one for readers in another zone.
    return bool(
        pt.is_timestamp(kind) and (column.kind == "datetime" or (column.kind == "timestamp" and kind.tz is not None))
    )


def _is_json(kind: pa.DataType, column: Column) -> bool:
    is_place = column.kind == "json" or (column.kind == "longtext" and column.charset == "utf8mb4")
    return bool(pt.is_nested(kind) and is_in_json(kind) and is_place)


_ENCODERS: list[tuple[Callable[[pa.DataType, Column], bool], Callable[..., Any]]] = [
    (lambda kind, column: pt.is_boolean(kind) and column.declared == "bit(1)", _encode_bit),
    (_is_whole_number, _encode_integer),
    (_is_double, _encode_double),
    (lambda kind, column: pt.is_decimal(kind) and column.kind == "decimal", _encode_decimal),
    (_is_known_text, _encode_text),
    (lambda kind, column: _is_text(kind) and column.kind == "enum", _encode_enum),
    (lambda kind, column: _is_text(kind) and column.kind == "json", _encode_json_text),
    (lambda kind, column: _is_bytes(kind) and column.kind in _BYTES, _encode_bytes),
    (lambda kind, column: pt.is_date(kind) and column.kind == "date", _encode_date),
    (_is_moment, _encode_moment),
    (lambda kind, column: pt.is_time(kind) and column.kind == "time", _encode_time),
    (_is_json, _encode_nested),
]
"""Which types go into which columns, and how; the first that fits."""
