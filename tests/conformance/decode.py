"""Text back to values, as somebody who knows the columns would read it: not with pakka's own code."""

import base64
import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt


def loads(text: str) -> Any:
    """JSON with its numbers as text, so that the column's type decides what they are."""
    return json.loads(text, parse_float=str, parse_int=str)


def value_of(raw: Any, kind: pa.DataType) -> Any:
    """A value as it was, from what a text format holds of it."""
    if raw is None:
        return None
    if pt.is_boolean(kind):
        return raw in (True, 1, "true")
    if pt.is_integer(kind):
        return int(raw)
    if pt.is_floating(kind):
        return pa.scalar(float(raw), kind).as_py()
    if pt.is_decimal(kind):
        return pa.scalar(Decimal(raw), kind).as_py()
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return raw if isinstance(raw, bytes) else base64.b64decode(raw, validate=True)
    if pt.is_date(kind):
        return dt.date.fromisoformat(raw)
    if pt.is_time(kind):
        return dt.time.fromisoformat(raw)
    if pt.is_timestamp(kind):
        return dt.datetime.fromisoformat(raw)
    return _nested(raw, kind) if pt.is_nested(kind) else raw


def _nested(raw: Any, kind: pa.DataType) -> Any:
    whole = loads(raw) if isinstance(raw, str) else raw
    if pt.is_struct(kind):
        return {field.name: value_of(whole[field.name], field.type) for field in kind}
    if pt.is_map(kind):
        pairs = whole.items() if isinstance(whole, dict) else whole
        return [(value_of(k, kind.key_type), value_of(v, kind.item_type)) for k, v in pairs]
    return [value_of(inner, kind.value_type) for inner in whole]


def csv_rows(text: str) -> Iterator[list[str | None]]:
    """RFC 4180, and beyond Python's own reader: a cell without quotes and without a character is null."""
    row: list[str | None] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            end, parts = at, []
            while end == at or text[end] == '"':
                close = text.index('"', end + 1)
                parts.append(text[end + 1 : close])
                end = close + 1
                if text[end] != '"':
                    break
            cell: str | None = '"'.join(parts)
            at = end
        else:
            end = min(text.index(c, at) for c in ",\n" if c in text[at:])
            cell, at = text[at:end] or None, end
        row.append(cell)
        if text[at] == "\n":
            yield row
            row = []
        at += 1
