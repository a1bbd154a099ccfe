"""Rows into columns that are there already: each value arrives as it was, or is refused with the column and an example."""

import datetime as dt
import subprocess
import sys
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pakka.errors import SchemaError
from tests.unit.sinks.postgres_kit import column, copy, fit_of

pytestmark = pytest.mark.postgres

NOON = dt.datetime(2024, 5, 1, 12)
ID = "6f0a3c1e-7e4b-4b6e-9d6c-0a1b2c3d4e5f"
OTHERS = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE DOMAIN percent AS numeric(5,2) CHECK (VALUE BETWEEN 0 AND 100);
CREATE DOMAIN share AS percent;
"""

TAKEN = [
    ("smallint", pa.int64(), [-(2**15), 2**15 - 1, None], None),
    ("integer", pa.uint64(), [0, 2**31 - 1], None),
    ("bigint", pa.uint64(), [0, 2**63 - 1], None),
    ("bigint", pa.int8(), [-1], None),
    ("bigint", pa.decimal128(38, 0), [Decimal(2**63 - 1), Decimal(-(2**63)), None], None),
    ("integer", pa.decimal128(10, 2), [Decimal("-7.00")], [-7]),
    ("real", pa.int32(), [2**24, -(2**24)], None),
    ("real", pa.float16(), [0.5], None),
    ("double precision", pa.float32(), [0.1], [0.10000000149011612]),
    ("double precision", pa.int64(), [2**53, -(2**53), None], None),
    ("numeric", pa.int64(), [-(2**63), None], None),
    ("numeric", pa.uint64(), [2**64 - 1], None),
    ("numeric", pa.decimal128(10, 2), [Decimal("1.50")], None),
    ("numeric(4,2)", pa.decimal128(38, 6), [Decimal("99.99"), Decimal("-99.99"), Decimal("0.5")], None),
    ("numeric(3)", pa.int64(), [999, -999], None),
    ("numeric(3,-2)", pa.int64(), [99900], None),
    ("numeric(3,5)", pa.decimal128(10, 5), [Decimal("0.00999")], None),
    ("numeric(70,2)", pa.decimal256(76, 4), [Decimal("1" * 60 + ".25")], None),
    ("share", pa.decimal128(10, 2), [Decimal("99.50")], None),
    ("varchar(3)", pa.string(), ["", "चाय"[:3], "abc", "a  "], None),
    ("varchar", pa.string(), ["abc" * 100], None),
    ("char(3)", pa.string(), ["INR", "a  ", None], None),
    ("char", pa.string(), ["x"], None),
    ("mood", pa.string(), ["sad", "glad", None], None),
    ("mood", pa.dictionary(pa.int8(), pa.string()), ["sad", "sad"], None),
    ("mood[]", pa.list_(pa.string()), [["sad", None], []], None),
    ("uuid", pa.string(), [ID, ID.upper(), None], [uuid.UUID(ID), uuid.UUID(ID), None]),
    ("uuid", pa.large_string(), [None, ID], [None, uuid.UUID(ID)]),
    ("uuid", pa.binary(16), [uuid.UUID(ID).bytes, None], [uuid.UUID(ID), None]),
    ("uuid[]", pa.list_(pa.string()), [[ID, None]], [[uuid.UUID(ID), None]]),
    ("json", pa.string(), ['{"a": 1.50, "a b": [null, true]}', "3", None], [{"a": 1.5, "a b": [None, True]}, 3, None]),
    ("jsonb", pa.string(), ['{"a": 1e5}', '"\\u0041\\ud83d\\ude00"', '"\\\\u0000"', "1" * 4100], [{"a": 100000}, "A😀", "\\u0000", int("1" * 4100)]),
    ("json", pa.struct([("a", pa.int64())]), [{"a": 1}, None], None),
    ("jsonb", pa.list_(pa.int64()), [[1, None]], None),
    ("timestamp(3)", pa.timestamp("us"), [NOON.replace(microsecond=123000), dt.datetime(1900, 1, 1, 0, 0, 0, 1000)], None),
    ("timestamp(0)", pa.timestamp("ns"), [NOON], None),
    ("timestamptz(0)", pa.timestamp("ms", "UTC"), [NOON.replace(tzinfo=dt.UTC)], None),
    ("time(0)", pa.time64("us"), [dt.time(1, 2, 3)], None),
    ("timestamp", pa.null(), [None, None], None),
    ("numeric(5,2)[]", pa.list_(pa.int64()), [[1, -999]], None),
    ("varchar(3)[]", pa.large_list(pa.large_string()), [["abc", ""]], None),
    ("integer[]", pa.list_(pa.null()), [[None, None], []], None),
    ("timestamp(3)[]", pa.list_(pa.timestamp("us")), [[NOON]], None),
]  # fmt: skip


def read(pg, declared):
    # psycopg does not know an enumeration of the test's own.
    return [
        row[0] for row in pg.execute(f"SELECT x::{declared.replace('mood', 'text')} FROM t ORDER BY ctid", binary=True)
    ]


@pytest.mark.parametrize(("declared", "kind", "values", "stored"), TAKEN, ids=str)
def test_a_value_that_the_column_holds_arrives_as_it_was(pg, declared, kind, values, stored):
    pg.execute(f"{OTHERS} CREATE TABLE t (x {declared})")
    copy(pg, column(values, kind))
    assert read(pg, declared) == (values if stored is None else stored)


@pytest.mark.parametrize(("declared", "kind", "values", "stored"), TAKEN, ids=str)
def test_a_slice_of_a_column_is_what_arrives(pg, declared, kind, values, stored):
    """Spark's batches begin at zero, but a rule that filters and a spool that is read back need not."""
    pg.execute(f"{OTHERS} CREATE TABLE t (x {declared})")
    batch = column([*values, None, *values], kind)
    copy(pg, batch.slice(len(values)), batch.slice(1, len(values) - 1), batch.slice(0, 0))
    wanted = values if stored is None else stored
    assert read(pg, declared) == [None, *wanted, *wanted[1:]]


def test_a_duration_has_no_days_that_might_have_23_hours(pg):
    pg.execute("CREATE TABLE t (x interval, y interval[])")
    long = pa.array([3 * 86_400_000_000 - 1, -(2**63)]).view(pa.duration("us"))
    copy(pg, pa.record_batch({"x": long, "y": pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), long)}))
    assert pg.execute("SELECT x::text, y::text FROM t").fetchall() == [
        ("71:59:59.999999", "{71:59:59.999999,-2562047788:00:54.775808}"),
        ("-2562047788:00:54.775808", "{}"),
    ]


def test_the_digits_of_a_number_without_limits_are_those_of_the_rows(pg):
    pg.execute("CREATE TABLE t (x numeric)")
    copy(pg, column([Decimal("1.50"), Decimal("0.00"), Decimal("-10000.00"), Decimal("0.01")], pa.decimal128(10, 2)))
    assert pg.execute("SELECT x::text FROM t").fetchall() == [("1.50",), ("0.00",), ("-10000.00",), ("0.01",)]


REFUSED = [
    ("smallint", pa.int64(), [1, 32768, -40000], "-40000, and the column takes -32768 to 32767"),
    ("smallint", pa.int64(), [1, 32768], "32768, and the column takes -32768 to 32767"),
    ("integer", pa.int64(), [2**31], "2147483648, and the column takes"),
    ("bigint", pa.uint64(), [2**63], "9223372036854775808, and the column takes"),
    ("bigint", pa.decimal128(38, 0), [Decimal(2**63)], "9223372036854775808, and the column takes"),
    ("bigint", pa.decimal128(5, 2), [Decimal("1.00"), Decimal("1.50")], "1.50, and the column keeps 0 digits behind the point"),
    ("real", pa.int64(), [2**24 + 1], "16777217, and the column is exact from -16777216 to 16777216 only"),
    ("double precision", pa.int64(), [-(2**53) - 1], "-9007199254740993, and the column is exact from"),
    ("numeric(4,2)", pa.decimal128(6, 2), [Decimal("100.00")], "100.00, and the column takes up to 99.99"),
    ("numeric(4,2)", pa.decimal128(6, 3), [Decimal("1.230"), Decimal("1.235")], "1.235, and the column keeps 2 digits behind the point"),
    ("numeric(38,2)", pa.decimal128(38, 3), [Decimal("12345678901234567890123456789012345.125")], "5.125, and the column keeps 2 digits"),
    ("numeric(3)", pa.int64(), [-1000], "-1000, and the column takes up to 999"),
    ("numeric(3,-2)", pa.int64(), [99950], "99950, and the column takes up to 9.99E+4"),
    ("numeric(3,-2)", pa.int64(), [1250], "1250, and the column keeps -2 digits behind the point"),
    ("share", pa.decimal128(6, 3), [Decimal("1.235")], "1.235, and the column keeps 2 digits behind the point"),
    ("numeric(5,2)[]", pa.list_(pa.decimal128(8, 3)), [[Decimal("1.235")]], "1.235, and the column keeps 2 digits"),
    ("varchar(3)", pa.string(), ["abc", "abcd"], "'abcd', and the column takes 3 characters"),
    ("varchar(3)", pa.string(), ["abc "], "'abc ', and the column takes 3 characters"),
    ("char(3)", pa.string(), ["INR", "IN"], "'IN', and the column holds exactly 3 characters"),
    ("varchar(3)[]", pa.list_(pa.string()), [["abcd"]], "'abcd', and the column takes 3 characters"),
    ("text", pa.string(), ["x", "a\0b"], r"'a\x00b', with a NUL character"),
    ("jsonb", pa.struct([("a", pa.string())]), [{"a": "a\0b"}], r"'a\x00b', with a NUL character"),
    ("mood", pa.string(), ["glad", "mad"], "'mad', and the column takes 'sad', 'glad'"),
    ("uuid", pa.string(), [ID, "6f0a3c1e"], "'6f0a3c1e', and that is no UUID"),
    ("uuid", pa.string(), [ID.replace("-", "_")], "and that is no UUID"),
    ("uuid", pa.string(), [ID.replace("f", "g")], "and that is no UUID"),
    ("jsonb", pa.string(), ["{}", "{'a': 1}"], "which is not JSON as PostgreSQL takes it"),
    ("json", pa.string(), [""], "which is not JSON as PostgreSQL takes it"),
    ("jsonb", pa.string(), ['{"a": NaN}'], "NaN is no number of JSON"),
    ("jsonb", pa.string(), ['{"a": 1, "a": 2}'], "a key stands twice in one object"),
    ("jsonb", pa.string(), ["1e200000"], "number '1e200000' is out of range"),
    ("jsonb", pa.string(), ["1e-20000"], "number '1e-20000' is out of range"),
    ("jsonb", pa.string(), ['"\\ud800"'], "in which half of a surrogate pair stands alone"),
    ("jsonb", pa.string(), ['"\\u0000"'], "a NUL character"),
    ("jsonb", pa.string(), ["[" * 100000], "which is nested too deeply"),
    ("jsonb", pa.list_(pa.float64()), [[float("nan")]], "NaN or infinity in a nested value"),
    ("jsonb", pa.list_(pa.float16()), [[float("inf")]], "NaN or infinity in a nested value"),
    ("jsonb", pa.list_(pa.date32()), [[2932897]], "a year outside 1 to 9999 in a nested value"),
    ("jsonb", pa.list_(pa.timestamp("us")), [[-(2**62)]], "a year outside 1 to 9999 in a nested value"),
    ("jsonb", pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 1), ("b", 2), ("a", 3)]], "a map in which a key stands twice"),
    ("timestamp", pa.timestamp("us"), [-(2**63)], "-9223372036854775808, and the microseconds of PostgreSQL's timestamps begin in 4713 BC"),
    ("timestamp", pa.timestamp("s"), [2**62], "4611686018427387904"),
    ("timestamp", pa.timestamp("ns"), [1_000_000_001], "1000000001"),
    ("timestamp(3)", pa.timestamp("us"), [NOON.replace(microsecond=1)], "'2024-05-01 12:00:00.000001', and the column keeps 3 digits of the second"),
    ("timestamptz(0)", pa.timestamp("us", "UTC"), [dt.datetime(1900, 1, 1, 0, 0, 0, 7)], "'1900-01-01 00:00:00.000007', and the column keeps 0"),
    ("time(0)", pa.time64("us"), [dt.time(0, 0, 0, 7)], "'00:00:00.000007', and the column keeps 0 digits of the second"),
    ("date", pa.date32(), [-2440589], "-2440589, and the days of PostgreSQL's dates go from 4713 BC"),
    ("date", pa.date32(), [2**31 - 1], "2147483647, and the days of PostgreSQL's dates go from 4713 BC"),
    ("interval", pa.duration("ns"), [1], "would lose data: 1"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "kind", "values", "words"), REFUSED, ids=str)
def test_a_value_that_the_column_would_change_is_refused_with_an_example(pg, declared, kind, values, words):
    pg.execute(f"{OTHERS} CREATE TABLE t (x {declared})")
    batch = column(values, kind)
    fit = fit_of(pg, batch.schema)
    with pytest.raises(SchemaError) as caught:
        fit(batch)
    assert caught.value.message.startswith(
        "sink `refunds.audit`: column `x` for table `t` in postgresql://server/db has "
    )
    assert words in caught.value.message
    assert len(caught.value.message) < 400
    assert caught.value.hint == "cast it in `select`, or keep such rows out by a rule"


def test_text_that_is_not_utf8_is_refused(pg):
    pg.execute("CREATE TABLE t (x text)")
    wrong = pa.array([b"caf\xe9"]).view(pa.string())
    batch = pa.record_batch([wrong], names=["x"])
    with pytest.raises(SchemaError, match=r"column `x` .* has Invalid UTF8"):
        fit_of(pg, batch.schema)(batch)


def test_a_time_of_day_beyond_the_day_is_refused(pg):
    pg.execute("CREATE TABLE t (x time)")
    batch = pa.record_batch([pa.array([86_400_000_000]).view(pa.time64("us"))], names=["x"])
    with pytest.raises(SchemaError, match="86400000000, and a time of day is from 0 to 24 hours"):
        fit_of(pg, batch.schema)(batch)


def test_what_lies_below_a_null_is_nobodys_business(pg):
    """Filters leave the bytes of values that they have made null."""
    pg.execute("CREATE TABLE t (x text, y varchar(1), z bigint[])")
    text = pa.array(["a\0b", "c", "wrong"])
    lists = pa.array([[1], [2], [3]])
    mask = pa.py_buffer(bytes([0b010]))
    hidden = pa.Array.from_buffers(pa.string(), 3, [mask, *text.buffers()[1:]])
    nested = pa.ListArray.from_buffers(lists.type, 3, [mask, lists.buffers()[1]], children=[lists.values])
    copy(pg, pa.record_batch([hidden, hidden, nested], names=["x", "y", "z"]))
    assert pg.execute("SELECT * FROM t ORDER BY ctid").fetchall() == [
        (None, None, None),
        ("c", "c", [2]),
        (None, None, None),
    ]


NEVER = [
    ("boolean", pa.int8(), "smallint"),
    ("boolean", pa.string(), "text"),
    ("integer", pa.bool_(), "boolean"),
    ("integer", pa.float64(), "double precision"),
    ("integer", pa.string(), "text"),
    ("real", pa.float64(), "double precision"),
    ("double precision", pa.decimal128(4, 2), "numeric(4,2)"),
    ("numeric", pa.float64(), "double precision"),
    ("numeric", pa.string(), "text"),
    ("money", pa.decimal128(10, 2), "numeric(10,2)"),
    ("text", pa.int64(), "bigint"),
    ("text", pa.binary(), "bytea"),
    ("text", pa.date32(), "date"),
    ("text", pa.struct([("a", pa.int8())]), "jsonb"),
    ("bytea", pa.string(), "text"),
    ("uuid", pa.binary(15), "bytea"),
    ("bpchar", pa.string(), "text"),
    ("uuid", pa.binary(), "bytea"),
    ("inet", pa.string(), "text"),
    ("xml", pa.string(), "text"),
    ("name", pa.string(), "text"),
    ("tsvector", pa.string(), "text"),
    ("int4range", pa.string(), "text"),
    ("jsonb", pa.int64(), "bigint"),
    ("jsonb", pa.struct([("a", pa.binary())]), "type struct<a: binary>"),
    ("date", pa.timestamp("us"), "timestamp"),
    ("date", pa.string(), "text"),
    ("timestamp", pa.date32(), "date"),
    ("timestamp", pa.timestamp("us", "UTC"), "timestamp with time zone"),
    ("timestamptz", pa.timestamp("us"), "timestamp"),
    ("timetz", pa.time64("us"), "time"),
    ("interval", pa.int64(), "bigint"),
    ("interval(3)", pa.duration("us"), "interval"),
    ("interval day", pa.duration("us"), "interval"),
    ("integer[]", pa.int32(), "integer"),
    ("int2vector", pa.list_(pa.int16()), "smallint[]"),
    ("integer", pa.list_(pa.int32()), "integer[]"),
    ("integer[]", pa.list_(pa.string()), "text[]"),
    ("integer[]", pa.list_(pa.list_(pa.int32())), "jsonb"),
    ("share[]", pa.list_(pa.decimal128(5, 2)), "numeric(5,2)[]"),
    ("point", pa.struct([("x", pa.float64()), ("y", pa.float64())]), "jsonb"),
    ("pair", pa.struct([("x", pa.float64()), ("y", pa.float64())]), "jsonb"),
]


@pytest.mark.parametrize(("declared", "kind", "rows"), NEVER, ids=str)
def test_a_column_of_another_type_is_refused_before_the_first_row(pg, declared, kind, rows):
    pg.execute(f"{OTHERS} CREATE TYPE pair AS (x float8, y float8); CREATE TABLE t (x {declared})")
    with pytest.raises(SchemaError) as caught:
        fit_of(pg, pa.schema([("x", kind)]))
    assert f"and the rows have {rows}, which does not go into it unchanged" in caught.value.message
    assert "cast it in `select`" in caught.value.hint


def test_the_usual_columns_do_without_pandas():
    """Arrow imports it, for half a second in every worker, as soon as it is given a Python value to compare with."""
    code = """
import sys
import pyarrow as pa
from pakka.sinks._postgres_column import Column, Fit, Place, Table
from pakka.sinks._postgres_copy import CopyStream
from pakka.sinks._postgres_type import PgType
to = [("int4", -1, pa.int64()), ("text", -1, pa.string()), ("varchar", 9, pa.string()), ("bpchar", 7, pa.string()), ("numeric", -1, pa.decimal128(20, 2)),
      ("numeric", 655366, pa.decimal128(20, 2)), ("timestamptz", -1, pa.timestamp("us", "UTC")), ("timestamp", 3, pa.timestamp("us")),
      ("date", -1, pa.date32()), ("bool", -1, pa.bool_()), ("float8", -1, pa.float64()), ("uuid", -1, pa.string()), ("bytea", -1, pa.binary())]
schema = pa.schema([(str(n), kind) for n, (_, _, kind) in enumerate(to)])
columns = [Column(str(n), "", PgType(name, 1, modifier), False, False, "", False) for n, (name, modifier, _) in enumerate(to)]
fit = Fit(Place(None, "", ""), schema, Table(1, "", "ordinary", "UTF8", tuple(columns)))
stream = CopyStream(fit.schema)
stream.start()
assert stream.write(fit(pa.RecordBatch.from_arrays([pa.nulls(3, kind) for kind in schema.types], schema=schema)))
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_jsonb_that_may_be_too_long_is_refused(pg, monkeypatch):
    monkeypatch.setattr("pakka.sinks._postgres_type._JSONB_BYTES_MAX", 9)
    pg.execute("CREATE TABLE t (x jsonb)")
    copy(pg, column([[1, 2, 3, 4], [1], None], pa.list_(pa.int64())))
    with pytest.raises(SchemaError, match="a value of more than 9 bytes, which jsonb may have no room for"):
        copy(pg, column([[1, 2, 3, 45]], pa.list_(pa.int64())))


def test_citext_takes_text(pg):
    if not pg.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'").fetchone():
        pytest.skip("this server has no citext")
    pg.execute("CREATE EXTENSION citext; CREATE TABLE t (x citext, y citext[])")
    copy(pg, pa.record_batch({"x": ["aB", None], "y": [["Ab"], None]}))
    assert pg.execute("SELECT x::text, y::text FROM t WHERE x = 'AB'").fetchall() == [("aB", "{Ab}")]


def test_a_wide_table_and_many_small_batches_arrive_whole(pg):
    names = [f"c{n}" for n in range(300)]
    pg.execute(f"CREATE TABLE t ({', '.join(f'{name} bigint' for name in names)})")
    table = pa.table({name: pa.array(range(500)) for name in names})
    copy(pg, *table.to_batches(max_chunksize=7))
    assert pg.execute("SELECT count(*), sum(c0), sum(c299) FROM t").fetchone() == (500, 124750, 124750)


def test_a_batch_of_several_megabytes_arrives_whole(pg):
    pg.execute("CREATE TABLE t (x text)")
    batch = pa.record_batch({"x": pc.binary_repeat(pa.array(["é"] * 40), pa.array(range(100_000, 100_040)))})
    copy(pg, batch, batch)
    assert pg.execute("SELECT count(*), sum(length(x)), min(length(x)) FROM t").fetchone() == (80, 8_001_560, 100_000)
