"""A JSON value is taken as it is, or it is a dead letter. Spark changes some without a word."""

import pytest

from tests.integration.test_kafka_decimal import are_bad, decoded

pytestmark = pytest.mark.spark

# What becomes of each value; None where it is no good.
TAKEN = {
    ("TINYINT", "127"): "127",
    ("TINYINT", "-128"): "-128",
    ("TINYINT", "null"): "NULL",
    ("TINYINT", "200"): None,
    ("TINYINT", "255"): None,
    ("TINYINT", "-129"): None,
    ("DATE", '"2026-03-01"'): "2026-03-01",
    ("DATE", '"2026-03-01T10:00:00Z"'): "2026-03-01",
    ("DATE", "null"): "NULL",
    ("DATE", '"20260301"'): None,
    ("DATE", '"12"'): None,
    ("DATE", '"-5"'): None,
    ("DATE", '"2026"'): None,
    ("DATE", '"2026-03"'): None,
    ("DATE", '"2026-02-30"'): None,
    ("DATE", "20260301"): None,
    ("DATE", '""'): None,
    ("TIMESTAMP", '"2026-03-01T10:00:00Z"'): "2026-03-01 10:00:00",
    ("TIMESTAMP", '"2026-03-01T10:00:00.25+05:30"'): "2026-03-01 04:30:00.25",
    ("TIMESTAMP", '"2026-03-01 10:00:00 Asia/Kolkata"'): "2026-03-01 04:30:00",
    ("TIMESTAMP", '"2026-03-01"'): "2026-03-01 00:00:00",
    ("TIMESTAMP", "null"): "NULL",
    ("TIMESTAMP", '"10:00"'): None,
    ("TIMESTAMP", '"T10:00:05"'): None,
    ("TIMESTAMP", '"2026"'): None,
    ("TIMESTAMP", '"2026-02-30T00:00:00Z"'): None,
    ("TIMESTAMP", '"2026-03-01 25"'): None,
    ("TIMESTAMP", "1767261600"): None,
    ("TIMESTAMP", "1767261600000"): None,
    ("TIMESTAMP", '{"2026-03-01":1}'): None,
}


@pytest.mark.parametrize("type_", ["TINYINT", "DATE", "TIMESTAMP"])
def test_a_json_value_is_taken_as_it_is_or_not_at_all(spark, type_):
    """-56 of 200, the 13th of January 1970 of 12, today of 10:00, and of milliseconds the year 57972."""
    expected = {value: taken for (of, value), taken in TAKEN.items() if of == type_}
    places = {"x {}": "{}", "x ARRAY<STRUCT<y: {}>>": '[{{"y":{}}}]', "x MAP<STRING, {}>": '{{"y":{}}}'}
    for schema, place in places.items():
        values = [f'{{"x":{place.format(value)}}}'.encode() for value in expected]
        made = decoded(spark, values, schema.format(type_))
        assert made.drop("_corrupt_record").schema.simpleString().count(type_.lower()) == 1
        inner = {"x {}": "x", "x ARRAY<STRUCT<y: {}>>": "get(x, 0).y", "x MAP<STRING, {}>": "x['y']"}[schema]
        found = made.selectExpr(f"coalesce(CAST({inner} AS STRING), 'NULL') AS x", "_corrupt_record").collect()
        assert {v: None if bad else r.x for v, bad, r in zip(expected, are_bad(found), found, strict=True)} == expected


HALVES = [
    r'{"s":"\ud800"}',
    r'{"s":"\uDC00"}',
    r'{"s":"a\udc00b"}',
    r'{"s":"\ud83d\ud83d\ude00"}',
    r'{"s":"\ud83d\ude00\ude00"}',
    r'{"s":"\ud83d \ude00"}',
    r'{"s":"\\\ud83d"}',
    r'{"s":"\\ud83d\ude00"}',
    r'{"m":{"\ud800":1}}',
]
WHOLE = [r'{"s":"\ud83d\ude00\uD83D\uDE00"}', r'{"s":"\\ud800"}', r'{"s":"\\\\ud800 \u20ac"}', '{"s":"😀"}', "{}"]


def test_a_json_text_with_half_a_character_is_no_good(spark):
    """Spark makes a question mark of it."""
    values = [text.encode() for text in [*WHOLE, *HALVES]]
    found = decoded(spark, values, "s STRING, m MAP<STRING, INT>").collect()
    assert are_bad(found) == [False] * len(WHOLE) + [True] * len(HALVES)
    assert [row.s for row in found[: len(WHOLE)]] == ["😀😀", r"\ud800", r"\\ud800 €", "😀", None]
