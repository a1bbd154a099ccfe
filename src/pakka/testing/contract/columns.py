"""Every type that Spark hands over, and the values that sinks stumble over. Data for the cases of values."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

_UTC = dt.UTC


@dataclass(frozen=True, slots=True)
class Column:
    """A type, and values of it. A sink stores the column as it is, or refuses it as a whole."""

    name: str
    kind: pa.DataType
    values: tuple[Any, ...]


def _dates(*texts: str) -> tuple[dt.date, ...]:
    return tuple(map(dt.date.fromisoformat, texts))


def _times(*texts: str, zone: dt.tzinfo | None = None) -> tuple[dt.datetime, ...]:
    return tuple(dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts)


# What int64 nanoseconds can just hold, and what they cannot: a sink that passes through them wraps around.
_NANO_EDGES = (
    "1677-09-21T00:12:43.145224",
    "1677-09-21T00:12:43.145223",
    "2262-04-11T23:47:16.854775",
    "2262-04-11T23:47:16.854776",
)
_TIME_EDGES = (
    "0001-01-01T00:00:00",
    "1582-10-04T23:59:59.999999",
    "1582-10-15T00:00:00",
    "1969-12-31T23:59:59.999999",
    "9999-12-31T23:59:59.999999",
)

PLAIN = (
    Column("boolean", pa.bool_(), (True, False, None)),
    Column("byte", pa.int8(), (-128, 127, None)),
    Column("short", pa.int16(), (-(2**15), 2**15 - 1, None)),
    Column("int", pa.int32(), (-(2**31), 2**31 - 1, None)),
    Column("long", pa.int64(), (0, 42, None)),
    Column("float", pa.float32(), (0.5, -1.25, None)),
    Column("double", pa.float64(), (0.5, 5.0, None)),
    Column("decimal", pa.decimal128(10, 2), (Decimal("12.30"), Decimal("-0.01"), None)),
    Column("string", pa.string(), ("chai", "नमस्ते", None)),
    Column("large string", pa.large_string(), ("chai", "", None)),
    Column("binary", pa.binary(), (b"chai", b"\x00\xff", None)),
    Column("large binary", pa.large_binary(), (b"chai", b"", None)),
    Column("date", pa.date32(), (*_dates("2026-01-31", "2000-02-29"), None)),
    Column("timestamp", pa.timestamp("us", "UTC"), (*_times("2026-01-31T23:59:59.999999", zone=_UTC), None)),
    Column(
        "timestamp in a zone", pa.timestamp("us", "Asia/Kolkata"), (*_times("2026-01-31T12:00:00", zone=_UTC), None)
    ),
    Column("timestamp_ntz", pa.timestamp("us"), (*_times("2026-01-31T23:59:59.999999"), None)),
    Column("time", pa.time64("us"), (dt.time(0, 0), dt.time(23, 59, 59, 999999), None)),
    Column("interval", pa.duration("us"), (dt.timedelta(days=1, microseconds=1), dt.timedelta(-1), None)),
    Column("void", pa.null(), (None, None)),
)
NUMBERS = (
    Column("nan", pa.float64(), (float("nan"), 1.0, None)),
    Column("float nan", pa.float32(), (float("nan"), 1.0, None)),
    Column("infinity", pa.float64(), (float("inf"), float("-inf"))),
    Column("float infinity", pa.float32(), (float("inf"), float("-inf"))),
    Column("double", pa.float64(), (0.1 + 0.2, 5e-324, sys.float_info.max, -sys.float_info.max, 1e22, -1e-7)),
    Column("minus zero", pa.float64(), (-0.0, 0.0)),
    Column("long", pa.int64(), (-(2**63), 2**63 - 1, 2**53 + 1)),
    Column("decimal(38,0)", pa.decimal128(38, 0), (Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0))),
    Column("decimal(38,18)", pa.decimal128(38, 18), (Decimal("9" * 20 + "." + "9" * 18), Decimal("1E-18"), None)),
    Column("decimal(38,38)", pa.decimal128(38, 38), (Decimal("0." + "9" * 38), Decimal("-1E-38"))),
    Column("decimal(18,2)", pa.decimal128(18, 2), (Decimal("90071992547409.93"), Decimal("0.10"))),
)
TEXTS = (
    Column("empty string", pa.string(), ("", " ", None)),
    Column("NUL", pa.string(), ("a\0b", "\0", "a\0")),
    Column("astral", pa.string(), ("🧾 𝒳 𠜎", "e\u0301", "\u202eright to left")),
    Column("quotes", pa.string(), ('"', "'", "\\", '","', "a;b|c,d", "{}", "`x`")),
    Column("lines", pa.string(), ("a\nb", "a\r\nb", "\r", "\t", "\u2028", "\x1b[31m")),
    Column("looks like", pa.string(), ("null", "NULL", "NaN", "007", "1e5", "true", "2026-01-31", "\\N", "0x1F")),
    Column("long string", pa.string(), ("x" * 70_000, "é" * 70_000, "y" * 255, "z" * 65_536)),
    Column("hard bytes", pa.binary(), (b"", b"\0", bytes(range(256)), b"\xff" * 70_000)),
)
MOMENTS = (
    Column("dates before 1582", pa.date32(), _dates("0001-01-01", "1500-02-28", "1582-10-04", "1582-10-15")),
    Column("late dates", pa.date32(), _dates("9999-12-31", "1969-12-31", "2038-01-20")),
    Column("instants", pa.timestamp("us", "UTC"), _times(*_TIME_EDGES, zone=_UTC)),
    Column("wall times", pa.timestamp("us"), _times(*_TIME_EDGES)),
    Column("instants at the nanosecond edge", pa.timestamp("us", "UTC"), _times(*_NANO_EDGES, zone=_UTC)),
    Column("wall times at the nanosecond edge", pa.timestamp("us"), _times(*_NANO_EDGES)),
)
NESTED = (
    Column("array", pa.list_(pa.int32()), ([1, None, 3], [], None)),
    Column("array of arrays", pa.list_(pa.list_(pa.string())), ([["a"], None, []], [[None, ""]])),
    Column(
        "struct", pa.struct([("a", pa.int64()), ("b", pa.string())]), ({"a": 1, "b": None}, {"a": None, "b": ""}, None)
    ),
    Column("map", pa.map_(pa.string(), pa.int64()), ([("k", 1), ('"', None)], [], None)),
    Column("map by number", pa.map_(pa.int32(), pa.string()), ([(-1, "x"), (7, None)],)),
    Column(
        "deep",
        pa.struct([("items", pa.list_(pa.struct([("sku", pa.string()), ("price", pa.decimal128(38, 2))])))]),
        ({"items": [{"sku": "🧾\0\n", "price": Decimal("9" * 36 + ".99")}, None]}, {"items": None}),
    ),
    Column(
        "moments inside",
        pa.struct([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us"))]),
        (
            {
                "day": dt.date(1500, 1, 1),
                "at": dt.datetime(1, 1, 1, tzinfo=_UTC),
                "wall": dt.datetime(9999, 12, 31, 23),
            },
            {"day": None, "at": None, "wall": None},
        ),
    ),
    Column("nan inside", pa.list_(pa.float64()), ([float("nan"), float("inf"), -0.0, None],)),
    Column("bytes inside", pa.list_(pa.binary()), ([b"\0\xff", b"", None],)),
    Column(
        "variant",
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
        ({"value": b"\x0c", "metadata": b"\x01\0"},),
    ),
)
