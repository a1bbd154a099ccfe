"""Rows as lines of text, JSON or CSV, made column by column in Arrow.

pyarrow has no JSON writer. Of what there is, `pandas.to_json` turns whole numbers beside a null and decimals into
floats and cuts doubles to ten digits, and `json.dumps` of every row is right and 20 times slower than this. pyarrow's
CSV writer spells NaN in a way that Spark does not read, cannot write nested columns, and takes 18 times as long as this for
a timestamp with a time zone.

Texts are `large_string` throughout, so that no batch, however long its rows, overflows an offset.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_string()
_CONTROLS = bytes(range(0x20))
_DAY_FIRST, _DAY_LAST = -719162, 2932896
"""0001-01-01 and 9999-12-31 as days: outside of them Arrow writes a remark instead of a date, or one that no reader takes."""
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class NoTextError(ValueError):
    """A value of a column has no text, though its type has."""

    def __init__(self, column: str, what: str) -> None:
        super().__init__(what)
        self.column = column


def unwritable(kind: pa.DataType) -> pa.DataType | None:
    """The type, in it or itself, that has no text; None if there is none such."""
    if pa.types.is_struct(kind):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):
            return kind.key_type
        inner = [kind.key_type, kind.item_type]
    elif _is_list(kind) or pa.types.is_dictionary(kind):
        inner = [kind.value_type]
    elif pa.types.is_null(kind) or pa.types.is_boolean(kind) or _is_number(kind) or _is_quoted(kind):
        return None
    else:
        return kind
    return next((bad for bad in map(unwritable, inner) if bad is not None), None)


def json_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """One JSON object a row, each on a line."""
    return _bytes(json_objects(batch, "\n"))


def json_objects(batch: pa.RecordBatch, end: str = "") -> pa.Array:
    """One JSON object a row, of at least one column, with `end` behind it. Nulls are written, so that every row has every column."""
    return _object(batch.schema.names, _texts(batch, _json), "}" + end)


def json_values(array: pa.Array) -> pa.Array:
    """Each value of a column as JSON; a null stays null. A value that has no text is a ValueError."""
    return _json_or_null(array)


def csv_lines(batch: pa.RecordBatch, delimiter: str) -> pa.Buffer:
    """One line a row by RFC 4180. Text is always quoted, so that an empty text is told from a null; nested columns are JSON."""
    cells = _texts(batch, _csv)
    if len(cells) == 1:
        # A null alone would be an empty line, which readers pass over: the row would be lost.
        cells = [pc.if_else(pc.equal(cells[0], _text("")), _text('""'), cells[0])]
    cells[-1] = _join(cells[-1], "\n")
    return _bytes(pc.binary_join_element_wise(*cells, _text(delimiter)))


def csv_header(names: Sequence[str], delimiter: str) -> bytes:
    """The names, quoted like any text."""
    return (delimiter.join('"' + name.replace('"', '""') + '"' for name in names) + "\n").encode()


def _texts(batch: pa.RecordBatch, text: Callable[[pa.Array], pa.Array]) -> list[pa.Array]:
    """The texts of each column, or `NoTextError`."""
    texts = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            texts.append(text(column))
        except ValueError as error:
            raise NoTextError(name, str(error)) from error
    return texts


def _json(array: pa.Array) -> pa.Array:
    """Each value as JSON; a null is `null`."""
    return pc.coalesce(_json_or_null(array), _text("null"))


def _json_or_null(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _json_or_null(array.cast(kind.value_type))
    if pa.types.is_map(kind):
        return _json_map(array)
    if _is_list(kind):
        return _over_lists(array, _json, "[", "]")
    if pa.types.is_struct(kind):
        fields = [kind.field(i).name for i in range(kind.num_fields)]
        texts = [_json(array.field(i)) for i in range(kind.num_fields)]
        whole = _object(fields, texts, "}") if texts else pa.array(["{}"] * len(array), _TEXT)
        return _where_valid(array, whole)
    if pa.types.is_floating(kind):
        return _floats(array, '"NaN"', '"Infinity"', '"-Infinity"')
    if _is_string(kind):
        return _join('"', _escape(array.cast(_TEXT)), '"')
    text = _plain(array)
    return _join('"', text, '"') if _is_quoted(kind) else text


def _csv(array: pa.Array) -> pa.Array:
    """Each value as a CSV cell; a null is nothing at all."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _csv(array.cast(kind.value_type))
    if pa.types.is_nested(kind):
        text = _csv_quote(_json_or_null(array))
    elif _is_string(kind):
        text = _csv_quote(array.cast(_TEXT))
    elif _is_bytes(kind):
        text = _join('"', _plain(array), '"')  # no bytes at all must not look like a null
    elif pa.types.is_floating(kind):
        text = _floats(array, "NaN", "Inf", "-Inf")
    else:
        text = _plain(array)
    return pc.coalesce(text, _text(""))


def _csv_quote(text: pa.Array) -> pa.Array:
    return _join('"', pc.replace_substring(text, '"', '""'), '"')


def _plain(array: pa.Array) -> pa.Array:
    """A scalar's text with nothing around it."""
    kind = array.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        _check_years(array)
    if pa.types.is_timestamp(kind):
        # Without its zone the number is UTC; with it, Arrow asks the zone's rules for every row.
        text = pc.binary_replace_slice(array.cast(pa.timestamp(kind.unit)).cast(_TEXT), 10, 11, "T")
        return _join(text, "Z") if kind.tz else text
    if _is_bytes(kind):
        # One by one: numpy's way of doing all at once was measured, and is slower.
        values = [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
        return pa.array(values, _TEXT)
    return array.cast(_TEXT)


def _check_years(array: pa.Array) -> None:
    """A date that has no text is a ValueError."""
    kind = array.type
    per_day = 1 if pa.types.is_date32(kind) else _PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    ends = pc.min_max(array.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
    low, high = _DAY_FIRST * per_day, (_DAY_LAST + 1) * per_day
    if ends["min"] is not None and not (low <= ends["min"] and ends["max"] < high):
        raise ValueError("a year outside 1 to 9999")


def _floats(array: pa.Array, nan: str, infinity: str, minus_infinity: str) -> pa.Array:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    text = array.cast(_TEXT)
    # 5.0 comes as `5`, and readers that guess the column's type from the first rows would take it for whole numbers.
    is_whole = pc.match_substring_regex(text, r"^-?\d+$")
    if pc.any(is_whole).as_py():
        text = pc.if_else(is_whole, _join(text, ".0"), text)
    if pc.all(pc.is_finite(array)).as_py() is False:
        text = pc.if_else(pc.is_nan(array), _text(nan), text)
        is_negative = pc.less(array, pa.scalar(0, array.type))
        endless = pc.if_else(is_negative, _text(minus_infinity), _text(infinity))
        text = pc.if_else(pc.is_inf(array), endless, text)
    return text


def _escape(text: pa.Array) -> pa.Array:
    """What JSON does not take as it is, escaped. One look at the bytes spares most columns all of it."""
    raw = bytes(_bytes(text))
    if b"\\" in raw:
        text = pc.replace_substring(text, "\\", "\\\\")
    if b'"' in raw:
        text = pc.replace_substring(text, '"', '\\"')
    if len(raw.translate(None, _CONTROLS)) < len(raw):
        for code in set(raw) & set(_CONTROLS):
            text = pc.replace_substring(text, chr(code), _SHORT.get(chr(code), f"\\u{code:04x}"))
    return text


def _json_map(array: pa.Array) -> pa.Array:
    """A map is an object; a key that is not text is written as the text of it."""
    kind = array.type
    pairs = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))

    def text(entries: pa.Array) -> pa.Array:
        keys = entries.field("key")
        if pa.types.is_dictionary(keys.type):
            keys = keys.cast(keys.type.value_type)
        if pa.types.is_floating(keys.type):
            plain = _floats(keys, "NaN", "Infinity", "-Infinity")
        else:
            plain = _plain(keys)
        quoted = _json(keys) if _is_quoted(keys.type) else _join('"', plain, '"')
        return _join(quoted, ":", _json(entries.field("value")))

    return _over_lists(pairs, text, "{", "}")


def _over_lists(array: pa.Array, text: Callable[[pa.Array], pa.Array], begin: str, end: str) -> pa.Array:
    """The texts of a list's values, joined by commas. All values of all rows are made at once, then cut into rows again."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    values = pa.LargeListArray.from_arrays(offsets, text(pc.list_flatten(array)))
    return _where_valid(array, _join(begin, pc.binary_join(values, _text(",")), end))


def _object(names: Sequence[str], texts: Sequence[pa.Array], end: str) -> pa.Array:
    pieces: list[pa.Array | str] = []
    for name, text in zip(names, texts, strict=True):
        pieces += [("," if pieces else "{") + json.dumps(name, ensure_ascii=False) + ":", text]
    return _join(*pieces, end)


def _where_valid(array: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, _TEXT)) if array.null_count else text


def _join(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*(_text(p) if isinstance(p, str) else p for p in pieces), _text(""))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


def _bytes(text: pa.Array) -> pa.Buffer:
    """The texts as they stand in memory, one after another, and nothing that belongs to other slices."""
    _, offsets, data = text.buffers()
    if not len(text) or data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), len(text) + 1, [None, offsets], 0, text.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return data.slice(first, last - first)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_quoted(kind: pa.DataType) -> bool:
    """Is a scalar of this type a string in JSON?"""
    return bool(_is_string(kind) or _is_bytes(kind) or (pa.types.is_temporal(kind) and not _is_span(kind)))


def _is_span(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
