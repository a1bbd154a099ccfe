"""The page of PostgreSQL's types says what the code does. `PAKKA_WRITE_DOCS=1 pytest tests/docs/test_postgres_types.py` brings it
up to date.
"""

import os
import re

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from pakka.sinks._postgres_type import CASTS, PgType, cast_of, declared_type
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "postgres-types.md"
PART = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
WRITE = "PAKKA_WRITE_DOCS" in os.environ

LONG = spark.LongType()
SPARK: dict[str, spark.DataType | pa.DataType] = {
    "BOOLEAN": spark.BooleanType(),
    "BYTE": spark.ByteType(),
    "SHORT": spark.ShortType(),
    "INT": spark.IntegerType(),
    "LONG": LONG,
    "FLOAT": spark.FloatType(),
    "DOUBLE": spark.DoubleType(),
    "DECIMAL(p,s)": spark.DecimalType(38, 18),
    "STRING": spark.StringType(),
    "BINARY": spark.BinaryType(),
    "DATE": spark.DateType(),
    "TIME": pa.time64("ns"),  # which Spark 4.0 does not have
    "TIMESTAMP": spark.TimestampType(),
    "TIMESTAMP_NTZ": spark.TimestampNTZType(),
    "INTERVAL DAY TO SECOND": spark.DayTimeIntervalType(),
    "ARRAY of a type above": spark.ArrayType(LONG),
    "ARRAY of ARRAY": spark.ArrayType(spark.ArrayType(LONG)),
    "ARRAY of STRUCT or MAP": spark.ArrayType(spark.MapType(spark.StringType(), LONG)),
    "STRUCT": spark.StructType([spark.StructField("a", LONG)]),
    "MAP": spark.MapType(spark.StringType(), LONG),
    "STRUCT or MAP with BINARY inside": spark.StructType([spark.StructField("a", spark.BinaryType())]),
    "VARIANT": spark.VariantType(),
    "VOID": spark.NullType(),
}
ARROW = {n: k if isinstance(k, pa.DataType) else to_arrow_type(k, timezone="UTC") for n, k in SPARK.items()}

COLUMNS: dict[str, tuple[str, PgType, str]] = {
    "bool": ("boolean", PgType("bool"), ""),
    "int2": ("smallint", PgType("int2"), "in its range; a DECIMAL must be whole"),
    "int4": ("integer", PgType("int4"), "in its range; a DECIMAL must be whole"),
    "int8": ("bigint", PgType("int8"), "in its range; a DECIMAL must be whole"),
    "float4": ("real", PgType("float4"), "whole numbers up to 2^24"),
    "float8": ("double precision", PgType("float8"), "whole numbers up to 2^53"),
    "numeric": (
        "numeric, numeric(p,s)",
        PgType("numeric"),
        "no more digits than the column has, before and behind the point",
    ),
    "text": ("text", PgType("text"), "no NUL character"),
    "varchar": ("varchar, varchar(n)", PgType("varchar"), "at most n characters, blanks at the end included"),
    "bpchar": ("char(n)", PgType("bpchar", 0, 7), "exactly n characters, since the server fills up shorter ones"),
    "citext": ("citext", PgType("citext"), "no NUL character"),
    "enum": ("an enumeration", PgType("enum"), "one of its labels"),
    "uuid": ("uuid", PgType("uuid"), "36 characters, upper or lower case"),
    "json": ("json", PgType("json"), "text must be JSON, as for jsonb"),
    "jsonb": (
        "jsonb",
        PgType("jsonb"),
        "text must be JSON, without a key twice in one object, without `\\u0000`, and with numbers that a `numeric` holds",
    ),
    "bytea": ("bytea", PgType("bytea"), ""),
    "date": ("date", PgType("date"), "from 4713 BC on"),
    "time": ("time, time(n)", PgType("time"), "no more digits of the second than the column keeps"),
    "timestamp": (
        "timestamp, timestamp(n)",
        PgType("timestamp"),
        "from 4713 BC on; no more digits of the second than the column keeps",
    ),
    "timestamptz": (
        "timestamp with time zone",
        PgType("timestamptz"),
        "from 4713 BC on; no more digits of the second than the column keeps",
    ),
    "interval": ("interval", PgType("interval"), ""),
}


def rows(*lines: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def made() -> str:
    """What a column is declared as in a table that pakka makes."""
    lines = [("Spark", "column"), ("---", "---")]
    for name, kind in ARROW.items():
        declared = declared_type(kind)
        words = {
            None: "**refused**",
            "numeric(38,18)": "`numeric(p,s)`",
            "bigint[]": "an array of that type's column, such as `bigint[]`",
        }
        lines.append((name, words.get(declared, f"`{declared}`")))
    return rows(*lines)


def taken() -> str:
    """What an existing column takes. A VOID column, all of it null, goes into any that may be null."""
    lines = [("column", "takes", "checked"), ("---", "---", "---")]
    for shown, to, check in COLUMNS.values():
        takes = [name for name, kind in ARROW.items() if name != "VOID" and cast_of(kind, to) is not None]
        lines.append((shown, ", ".join(takes), check))
    array = PgType("_int8", 0, -1, PgType("int8", 20))
    takes = [name for name, kind in ARROW.items() if name != "VOID" and cast_of(kind, array) is not None]
    lines.append(("an array of any of these", ", ".join(takes), "each element as in a column of its type"))
    return rows(*lines)


def test_the_page_says_what_the_code_does():
    parts = {"made": made(), "taken": taken()}
    text = PAGE.read_text(encoding="utf-8")
    expected = PART.sub(lambda match: f"<!-- table: {match[1]} -->\n{parts.pop(match[1])}\n<!-- end -->", text)
    assert parts == {}, "these have no place in the page"
    if WRITE:
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected, "run it with PAKKA_WRITE_DOCS=1"


def test_the_page_leaves_out_no_type_of_column():
    assert {name: shape[1].name for name, shape in COLUMNS.items()} == {name: name for name in CASTS}


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.struct([("a", pa.duration("us"))])], ids=str)
def test_a_type_that_the_page_calls_refused_is_refused(kind):
    assert declared_type(kind) is None
    assert all(cast_of(kind, to) is None for _, to, _ in COLUMNS.values())
