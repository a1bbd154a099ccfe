"""Hard values through COPY into a real server and back by SELECT: each is there exactly, or was refused by name."""

import datetime as dt
import json
import math
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.sinks.postgres_kit import column, copy, make

pytestmark = pytest.mark.postgres

UTC = dt.UTC
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 7)
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))
LONG = Decimal("1" * 58 + ".05")
MOST = Decimal("9999999999999999999999999999.9999999999")


def stored(pg):
    return [row[0] for row in pg.execute("SELECT x FROM t ORDER BY ctid", binary=True)]


EXACT = [
    (pa.bool_(), [True, False, None], "boolean", None),
    (pa.int8(), [-128, 127, None], "smallint", None),
    (pa.int16(), [-(2**15), 2**15 - 1, None], "smallint", None),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "integer", None),
    (pa.int64(), [-(2**63), 2**63 - 1, None], "bigint", None),
    (pa.uint8(), [0, 255], "smallint", None),
    (pa.uint16(), [0, 65535], "integer", None),
    (pa.uint32(), [0, 2**32 - 1], "bigint", None),
    (pa.uint64(), [0, 2**64 - 1, None], "numeric(20,0)", None),
    (pa.float16(), [0.5, None], "real", None),
    (pa.float32(), [0.5, 2.0**-149, math.inf, -math.inf, -0.0, None], "real", None),
    (pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, -0.0], "double precision", None),
    (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal("-12.1"), Decimal(0), MOST, MOST.copy_negate(), None], "numeric(38,10)", None),
    (pa.decimal128(18, 2), [Decimal("0.01"), Decimal("-9999999999999999.99"), Decimal("10000.00")], "numeric(18,2)", None),
    (pa.decimal32(5, 2), [Decimal("-999.99"), Decimal("0.50"), None], "numeric(5,2)", None),
    (pa.decimal64(12, 2), [Decimal("-9999999999.99"), None], "numeric(12,2)", None),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(0), Decimal(-10000)], "numeric(38,0)", None),
    (pa.decimal128(5, -2), [Decimal(12300), Decimal(-12300), None], "numeric(7,0)", None),
    (pa.decimal256(60, 2), [LONG, LONG.copy_negate(), Decimal("0.00"), Decimal("0.05"), None], "numeric(60,2)", None),
    (pa.string(), ["", "007", "चाय ☕", "'; DROP TABLE t; --", "\\N", "a\tb\r\n", None], "text", None),
    (pa.large_string(), ["x", None], "text", None),
    (pa.string_view(), ["x", "y" * 30, None], "text", None),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "y", "x", None], "text", None),
    (pa.null(), [None, None], "text", None),
    (pa.binary(), [b"", b"\0\xff", None], "bytea", None),
    (pa.large_binary(), [b"x", None], "bytea", None),
    (pa.binary(3), [b"abc", None], "bytea", None),
    (pa.binary_view(), [b"abc", None], "bytea", None),
    (pa.uuid(), [uuid.UUID(int=7).bytes, None], "uuid", [uuid.UUID(int=7), None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None], "date", None),
    (pa.date64(), [dt.date(2024, 2, 29), None], "date", None),
    (pa.time32("s"), [dt.time(1, 2, 3)], "time without time zone", None),
    (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), None], "time without time zone", None),
    (pa.time64("ns"), [dt.time(1, 2, 3, 4)], "time without time zone", None),
    (pa.timestamp("s"), [NOON.replace(microsecond=0)], "timestamp without time zone", None),
    (pa.timestamp("us"), [NOON, dt.datetime(1, 1, 1), dt.datetime.max, None], "timestamp without time zone", None),
    (pa.timestamp("ns"), [NOON, None], "timestamp without time zone", None),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), None], "timestamp with time zone", None),
    (pa.timestamp("us", "Asia/Kolkata"), [NOON.replace(tzinfo=INDIA)], "timestamp with time zone", None),
    (pa.duration("us"), [dt.timedelta(days=-3, microseconds=1), None], "interval", None),
    (pa.list_(pa.int64()), [[1, None], [], None, [-5]], "bigint[]", None),
    (pa.large_list(pa.string()), [["a", None, "चा"], [], None], "text[]", None),
    (pa.list_(pa.int32(), 2), [[1, 2], None, [3, None]], "integer[]", None),
    (pa.list_(pa.bool_()), [[True, None, False]], "boolean[]", None),
    (pa.list_(pa.int8()), [[-1]], "smallint[]", None),
    (pa.list_(pa.float32()), [[0.5, -math.inf]], "real[]", None),
    (pa.list_(pa.float64()), [[0.1]], "double precision[]", None),
    (pa.list_(pa.uint64()), [[2**64 - 1]], "numeric(20,0)[]", None),
    (pa.list_(pa.decimal128(10, 2)), [[Decimal("1.50"), None, Decimal("-10000.01"), Decimal("0.00")]], "numeric(10,2)[]", None),
    (pa.list_(pa.binary()), [[b"x", None, b""]], "bytea[]", None),
    (pa.list_(pa.date32()), [[dt.date(2024, 5, 1), None]], "date[]", None),
    (pa.list_(pa.time64("us")), [[dt.time(1, 2, 3, 4)]], "time without time zone[]", None),
    (pa.list_(pa.timestamp("us")), [[NOON, dt.datetime(1, 1, 1)]], "timestamp without time zone[]", None),
    (pa.list_(pa.timestamp("us", "UTC")), [[NOON.replace(tzinfo=UTC)]], "timestamp with time zone[]", None),
    (pa.list_(pa.duration("us")), [[dt.timedelta(seconds=1), None]], "interval[]", None),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a", "b", "a"]], "text[]", None),
    (pa.list_(pa.null()), [[None], []], "jsonb", None),
    (pa.list_(pa.list_(pa.int64())), [[[1, None], [], None], [], None], "jsonb", None),
    (pa.struct([("a", pa.string()), ("b", pa.int64())]), [{"a": "चा", "b": 1}, {"a": None, "b": None}, None], "jsonb", None),
    (pa.struct([("a", pa.struct([("b", pa.list_(pa.bool_()))]))]), [{"a": {"b": [True, None]}}, {"a": None}], "jsonb", None),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1), ('"q"', None)], [], None], "jsonb", [{"k": 1, '"q"': None}, {}, None]),
    (pa.map_(pa.int32(), pa.string()), [[(1, "a"), (2, None)], []], "jsonb", [[[1, "a"], [2, None]], []]),
    (pa.list_(pa.struct([("n", pa.float64())])), [[{"n": 0.1}, None, {"n": -1.5e-7}]], "jsonb", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "values", "declared", "read"), EXACT, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_a_value_is_stored_exactly(pg, kind, values, declared, read):
    batch = column(values, kind)
    make(pg, batch.schema)
    copy(pg, batch)
    got = stored(pg)
    assert got == (values if read is None else read)
    # Equal is not enough: 1.5 is not 1.50, and -0.0 is not 0.0.
    shown = [format(v, "f") if isinstance(v, Decimal) else str(v) for v in got]
    assert not (pa.types.is_decimal(kind) or pa.types.is_floating(kind)) or shown == [
        format(v, "f") if isinstance(v, Decimal) else str(v) for v in pa.array(values, kind).to_pylist()
    ]
    assert pg.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'x'"
    ).fetchone() == (declared,)


def test_nan_is_a_number_to_postgresql(pg):
    for kind in (pa.float32(), pa.float64()):
        pg.execute("DROP TABLE IF EXISTS t")
        batch = column([math.nan, 1.0], kind)
        make(pg, batch.schema)
        copy(pg, batch)
        assert math.isnan(stored(pg)[0])


def test_moments_and_long_numbers_keep_their_form_in_json(pg):
    kind = pa.struct(
        [
            ("at", pa.timestamp("us", "Asia/Kolkata")),
            ("wall", pa.timestamp("us")),
            ("day", pa.date32()),
            ("amount", pa.decimal128(38, 2)),
        ]
    )
    value = {
        "at": NOON.replace(tzinfo=UTC),
        "wall": NOON,
        "day": dt.date(2024, 5, 1),
        "amount": Decimal("12345678901234567890.10"),
    }
    batch = column([value], kind)
    make(pg, batch.schema)
    copy(pg, batch)
    assert pg.execute("SELECT x::text FROM t").fetchone() == (
        '{"at": "2024-05-01 12:00:00.000007Z", "day": "2024-05-01", "wall": "2024-05-01 12:00:00.000007", '
        '"amount": 12345678901234567890.10}',
    )


def test_any_text_is_text_in_json(pg):
    texts = ["\\", '"', "".join(map(chr, range(1, 32))), "\u2028", "☕", "\\u0041", 'a\\"b', ""]
    batch = column([{"a": text} for text in texts], pa.struct([("a", pa.string())]))
    make(pg, batch.schema)
    copy(pg, batch)
    assert [value["a"] for value in stored(pg)] == texts
    assert json.dumps(stored(pg)[0]) == '{"a": "\\\\"}'
