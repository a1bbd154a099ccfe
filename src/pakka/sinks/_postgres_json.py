"""Nested Arrow columns as JSON text, a column at a time, for `json` and `jsonb`.

PostgreSQL's JSON numbers are exact of any length, so decimals are numbers. Dates and times are text in ISO 8601. A struct
is an object; so is a map whose keys are text; any other map is an array of pairs. Binary values have no form in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.sinks._numpy import Ints, bytes_of, is_valid_of, numbers_of

DAY_FIRST, DAY_LAST = -719162, 2932896
"""0001-01-01 and 9999-12-31 as days: what fits into four digits, so that text sorts as time does."""
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_NUMBER_DIGITS_MAX, _NUMBER_SCALE_MAX = 131_072, 16_383
"""PostgreSQL's limits for a number before and after the point."""
_DIGITS_PLAIN = 4000
"""Python reads whole numbers up to a little more digits than this."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def is_in_json(kind: pa.DataType) -> bool:
    """Whether JSON has an exact form for every value of this type, NaN and infinity left aside."""
    if pt.is_dictionary(kind):
        return is_in_json(kind.value_type)
    if pt.is_struct(kind):
        names = [field.name for field in kind]
        return len(names) == len(set(names)) and all(is_in_json(field.type) for field in kind)
    if pt.is_map(kind):
        return is_in_json(kind.key_type) and is_in_json(kind.item_type)
    if is_list(kind):
        return is_in_json(kind.value_type)
    return any(test(kind) for test, _ in _PLAIN)


def is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def json_text(array: pa.Array) -> pa.Array:
    """The JSON text of each value; null stays null. A value without an exact form is a ValueError."""
    kind = array.type
    if pt.is_dictionary(kind):
        return json_text(array.dictionary_decode())
    if pt.is_struct(kind):
        return _struct_text(array)
    if pt.is_map(kind):
        return _map_text(array)
    if is_list(kind):
        values, lengths = unnest(array)
        return _joined(array, lengths, _or_null(json_text(values)), "[", "]")
    encode = next(encode for test, encode in _PLAIN if test(kind))
    return encode(array).cast(pa.large_string())


def unnest(array: pa.Array) -> tuple[pa.Array, Ints]:
    """The elements of all lists, or the entries of all maps, behind each other, and how many each row has; a null list has none."""
    if pt.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if pt.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    lengths = np.zeros(len(array), np.int64)
    lengths[is_valid_of(array)] = numbers_of(pc.list_value_length(array).drop_null())
    return array.flatten(), lengths


def check_json(text: pa.Array) -> None:
    """Refuse text that a `jsonb` column would refuse, or would keep less of than was there."""
    for value in text.to_pylist():
        if value is not None:
            _check_one(value)


def _check_one(value: str) -> None:
    # A number that is out of range is long, or has an exponent. The careful way costs several times as much.
    is_plain = len(value) < _DIGITS_PLAIN and "e" not in value and "E" not in value
    try:
        made = (_PLAIN_JSON if is_plain else _CAREFUL_JSON).decode(value)
        if "\\u" in value:
            text = json.dumps(made, ensure_ascii=False)
            text.encode()
            if _NUL.search(text):
                raise ValueError("a NUL character")
    except UnicodeEncodeError as error:
        raise ValueError(f"{short(value)}, in which half of a surrogate pair stands alone") from error
    except RecursionError as error:
        raise ValueError(f"{short(value)}, which is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{short(value)}, which is not JSON as PostgreSQL takes it: {error}") from error


def short(value: object) -> str:
    """A value for a message: enough to find it by."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> str:
    number = Decimal(text)
    if number.adjusted() >= _NUMBER_DIGITS_MAX or -int(number.as_tuple().exponent) > _NUMBER_SCALE_MAX:
        raise ValueError(f"number {short(text)} is out of range")
    return text


_PLAIN_JSON = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
_CAREFUL_JSON = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_number, parse_float=_number
)


def _or_null(text: pa.Array) -> pa.Array:
    return pc.fill_null(text, "null")


def _around(text: pa.Array, before: str, after: str) -> pa.Array:
    return _concat([pa.scalar(before, pa.large_string()), text, pa.scalar(after, pa.large_string())])


def _concat(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _joined(array: pa.Array, lengths: Ints, values: pa.Array, before: str, after: str) -> pa.Array:
    """The values of each row with commas between them. What is null stays null."""
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), values)
    text = _around(pc.binary_join(lists, pa.scalar(",", pa.large_string())), before, after)
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.large_string()))


def _struct_text(array: pa.Array) -> pa.Array:
    parts: list[Any] = []
    for field, child in zip(array.type, array.flatten(), strict=True):
        before = "," if parts else "{"
        parts += [pa.scalar(f"{before}{json.dumps(field.name, ensure_ascii=False)}:", pa.large_string())]
        parts += [_or_null(json_text(child))]
    if not parts:
        text = pa.array(np.full(len(array), "{}", object), pa.large_string())
    else:
        text = _concat([*parts, pa.scalar("}", pa.large_string())])
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.large_string()))


def _map_text(array: pa.Array) -> pa.Array:
    entries, lengths = unnest(array)
    keys, items = entries.flatten()
    names, values = json_text(keys), _or_null(json_text(items))
    if not (pt.is_string(keys.type) or pt.is_large_string(keys.type)):
        pairs = _around(_concat([names, pa.scalar(",", pa.large_string()), values]), "[", "]")
        return _joined(array, lengths, pairs, "[", "]")
    rows = np.repeat(np.arange(len(array)), lengths)
    codes = numbers_of(names.dictionary_encode().indices)
    if len(np.unique(rows * (codes.max(initial=0) + 1) + codes)) != len(codes):
        raise ValueError("a map in which a key stands twice")
    return _joined(array, lengths, _concat([names, pa.scalar(":", pa.large_string()), values]), "{", "}")


def _string_text(array: pa.Array) -> pa.Array:
    check_text(array)
    text = array.cast(pa.large_string())
    for char in ("\\", '"'):
        text = pc.replace_substring(text, char, f"\\{char}")
    for code in np.unique(bytes_of(text)):
        if code < 32:
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return _around(text, '"', '"')


def check_text(array: pa.Array) -> None:
    """Refuse what no text of PostgreSQL can hold."""
    array.validate(full=True)
    # Bytes below a null may be anything, so only the slow look can tell.
    if not bytes_of(array).all() and pc.any(pc.match_substring(array, "\0")).as_py():
        found = pc.filter(array, pc.match_substring(array, "\0"))[0].as_py()
        raise ValueError(f"{short(found)}, with a NUL character, which no text of PostgreSQL can hold")


def _float_text(array: pa.Array) -> pa.Array:
    array = array.cast(pa.float32()) if pt.is_float16(array.type) else array
    if pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise ValueError("NaN or infinity in a nested value, and JSON has no such number")
    return array.cast(pa.string())


def _moment_text(array: pa.Array) -> pa.Array:
    """ISO 8601. An instant is given in UTC, with `Z`, whatever the session's time zone; a wall time has no zone."""
    kind = array.type
    if pt.is_time(kind):
        return _around(array.cast(pa.large_string()), '"', '"')
    per_day = 1 if pt.is_date32(kind) else PER_DAY[kind.unit if pt.is_timestamp(kind) else "ms"]
    ticks = array.cast(pa.int32() if pt.is_date32(kind) else pa.int64())
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is not None and not (DAY_FIRST * per_day <= ends["min"] and ends["max"] < (DAY_LAST + 1) * per_day):
        raise ValueError("a year outside 1 to 9999 in a nested value")
    if pt.is_timestamp(kind):
        # Through the bare number: Arrow's own way would need a time zone database on every machine.
        text = ticks.cast(pa.timestamp(kind.unit)).cast(pa.large_string())
        return _around(text, '"', '"' if kind.tz is None else 'Z"')
    return _around(array.cast(pa.large_string()), '"', '"')


def _plain_text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


_PLAIN: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = [
    (pt.is_null, _plain_text),
    (pt.is_boolean, _plain_text),
    (pt.is_integer, _plain_text),
    (pt.is_decimal, _plain_text),
    (pt.is_floating, _float_text),
    (_is_string, _string_text),
    (pt.is_date, _moment_text),
    (pt.is_time, _moment_text),
    (pt.is_timestamp, _moment_text),
]
