"""The page of MySQL's types says what the code does. `PAKKA_WRITE_DOCS=1 pytest tests/docs/test_mysql_types.py` brings it up to
date.
"""

import os
import re

import pyarrow as pa
import pytest

from pakka.errors import SchemaError
from pakka.model.id import Binding
from pakka.sinks._columns import Place
from pakka.sinks._mysql_column import Column, declared_type
from pakka.sinks._mysql_encode import encoder
from tests.docs.pages import ROOT
from tests.docs.test_postgres_types import ARROW, rows

PAGE = ROOT / "docs" / "reference" / "mysql-types.md"
PART = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
WRITE = "PAKKA_WRITE_DOCS" in os.environ
PLACE = Place(Binding("docs", "mysql", ""), "mysql://", "refunds")
TEXT = {"charset": "utf8mb4"}

COLUMNS: list[tuple[str, Column, str]] = [
    (
        "tinyint, smallint, mediumint, int, bigint",
        Column("v", "bigint", "bigint"),
        "in its range, signed or `unsigned`",
    ),
    ("bit(1)", Column("v", "bit", "bit(1)"), ""),
    ("float", Column("v", "float", "float"), "no NaN, no infinity"),
    ("double", Column("v", "double", "double"), "no NaN, no infinity"),
    (
        "decimal(p,s)",
        Column("v", "decimal", "decimal(65,30)", precision=65, scale=30),
        "no more digits than the column has, before and behind the point",
    ),
    (
        "varchar(n)",
        Column("v", "varchar", "varchar(9)", **TEXT),
        "at most n characters, all of the column's character set",
    ),
    (
        "char(n)",
        Column("v", "char", "char(9)", **TEXT),
        "the same, and no space at the end, which the server takes away",
    ),
    ("tinytext, text, mediumtext", Column("v", "text", "text", **TEXT), "at most its bytes, all of its character set"),
    ("longtext", Column("v", "longtext", "longtext", **TEXT), "all of its character set"),
    ("enum", Column("v", "enum", "enum('a')", **TEXT), "one of its values, letter for letter"),
    ("json (of MySQL)", Column("v", "json", "json"), "text must be JSON, with whole numbers of at most 64 bits"),
    ("varbinary(n), tinyblob, blob, mediumblob, longblob", Column("v", "blob", "blob"), "at most its bytes"),
    ("binary(n)", Column("v", "binary", "binary(9)"), "exactly n bytes, since the server fills up shorter ones"),
    ("date", Column("v", "date", "date"), "the years 1 to 9999"),
    (
        "datetime(n)",
        Column("v", "datetime", "datetime(6)", fraction=6),
        "the years 1 to 9999; no more digits of the second than the column keeps; a TIMESTAMP is stored in UTC",
    ),
    (
        "timestamp(n)",
        Column("v", "timestamp", "timestamp(6)", fraction=6),
        "from 1970-01-01 00:00:01 to 2038-01-19 03:14:07 in UTC; no more digits of the second than the column keeps",
    ),
    ("time(n)", Column("v", "time", "time(6)", fraction=6), "no more digits of the second than the column keeps"),
]


def declared(kind: pa.DataType) -> str:
    try:
        return declared_type(PLACE, pa.field("v", kind), is_mariadb=False).removesuffix(" NULL")
    except SchemaError:
        return ""


def made() -> str:
    """What a column is declared as in a table that pakka makes."""
    words = {"": "**refused**", "decimal(38,18)": "`decimal(p,s)`"}
    lines = [("Spark", "column"), ("---", "---")]
    lines += [(name, words.get(declared(kind), f"`{declared(kind)}`")) for name, kind in ARROW.items()]
    return rows(*lines)


def taken() -> str:
    """What an existing column takes. A VOID column, all of it null, goes into any that may be null."""
    lines = [("column", "takes", "checked"), ("---", "---", "---")]
    for shown, column, check in COLUMNS:
        takes = [name for name, kind in ARROW.items() if name != "VOID" and encoder(kind, column) is not None]
        lines.append((shown, ", ".join(takes), check))
    return rows(*lines)


def test_the_page_says_what_the_code_does():
    parts = {"made": made(), "taken": taken()}
    text = PAGE.read_text(encoding="utf-8")
    expected = PART.sub(lambda match: f"<!-- table: {match[1]} -->\n{parts.pop(match[1])}\n<!-- end -->", text)
    assert parts == {}, "these have no place in the page"
    if WRITE:
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected, "run it with PAKKA_WRITE_DOCS=1"


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.duration("us"), pa.list_(pa.binary())], ids=str)
def test_a_type_that_the_page_calls_refused_is_refused(kind):
    assert declared(kind) == ""
    assert all(encoder(kind, column) is None for _, column, _ in COLUMNS)
