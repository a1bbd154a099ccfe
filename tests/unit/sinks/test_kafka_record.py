"""Rows become records, exactly; and what Kafka would refuse of them is refused before anything is staged."""

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pakka.errors import SchemaError
from pakka.model.id import Binding
from pakka.sinks._kafka_limit import OVERHEAD_BYTES, Limits
from pakka.sinks._kafka_record import HEADERS, TOPICS, Recipe, RecordEncoder
from pakka.sinks._spool import no_rows
from pakka.testing.contract.columns import MOMENTS, NESTED, NUMBERS, PLAIN, TEXTS
from tests.conformance.decode import loads, value_of

BINDING = Binding("refunds", "out", "spool")
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
INSTANT = pa.timestamp("us", "UTC")


def records(batch, recipe=None, look=None, **options):
    recipe = recipe or Recipe(**{"format": "json", "topic": "refunds", **options})
    return RecordEncoder(BINDING, recipe, batch.schema, look)(batch)


def column(values, kind=None, name="x"):
    return pa.record_batch([pa.array(values, kind)], names=[name])


def refused(batch, words, recipe=None, look=None, **options):
    with pytest.raises(SchemaError) as caught:
        records(batch, recipe, look, **options)
    assert words in caught.value.message
    assert caught.value.message.startswith("sink `refunds.out`: ")
    assert caught.value.hint
    return caught.value.message


# --- What a record is made of


def test_a_json_value_has_every_column_but_those_that_say_where_it_goes():
    batch = pa.record_batch(
        {
            "id": ["a", None],
            "amount": [1, 2],
            "to": ["refunds", "audit"],
            "part": pa.array([3, None], pa.int16()),
            "at": pa.array([NOON, None], INSTANT),
            "meta": pa.array([[("k", "v"), ("n", None)], None], pa.map_(pa.string(), pa.string())),
        }
    )
    made = records(batch, topic=None, topic_column="to", key="id", partition="part", timestamp="at", headers="meta")
    assert made.schema == pa.schema(
        {
            "topic": TOPICS,
            "key": pa.large_binary(),
            "value": pa.large_binary(),
            "partition": pa.int32(),
            "timestamp": pa.int64(),
            "headers": HEADERS,
        }
    )
    assert made.to_pylist() == [
        {
            "topic": "refunds",
            "key": b"a",
            "value": b'{"id":"a","amount":1}',
            "partition": 3,
            "timestamp": 1769860800000,
            "headers": [{"key": "k", "value": b"v"}, {"key": "n", "value": None}],
        },
        {
            "topic": "audit",
            "key": None,
            "value": b'{"id":null,"amount":2}',
            "partition": None,
            "timestamp": None,
            "headers": None,
        },
    ]


def test_without_options_a_record_has_a_value_and_no_key():
    made = records(column([1]))
    assert made.schema.names == ["key", "value"]
    assert made.to_pylist() == [{"key": None, "value": b'{"x":1}'}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.binary(2),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_a_raw_record_is_key_and_value_as_they_are(kind):
    is_text = pa.types.is_dictionary(kind) or "string" in str(kind)
    values = ["ab", None] if is_text else [b"\xff\0", None]
    batch = pa.record_batch({"value": pa.array(values, kind), "key": pa.array(values[::-1], kind)})
    made = records(batch, format="raw")
    assert made.column("value").to_pylist() == [b"ab" if is_text else b"\xff\0", None]
    assert made.column("key").to_pylist() == [None, b"ab" if is_text else b"\xff\0"]


def test_raw_takes_another_column_as_key_if_it_is_named():
    batch = pa.record_batch({"value": ["v"], "id": [7]})
    assert records(batch, format="raw", key="id").to_pylist() == [{"key": b"7", "value": b"v"}]


@pytest.mark.parametrize(
    ("values", "kind", "keys"),
    [
        ([7, None], pa.int64(), [b"7", None]),
        ([True], pa.bool_(), [b"true"]),
        ([Decimal("1.50")], pa.decimal128(9, 2), [b"1.50"]),
        ([dt.date(2026, 1, 31)], pa.date32(), [b'"2026-01-31"']),
        ([NOON], INSTANT, [b'"2026-01-31T12:00:00.000000Z"']),
        ([{"a": 1, "b": "x"}], None, [b'{"a":1,"b":"x"}']),
        (["चाय", ""], pa.string(), ["चाय".encode(), b""]),
    ],
)
def test_a_key_is_text_or_bytes_as_it_is_or_the_json_of_anything_else(values, kind, keys):
    assert records(column(values, kind), key="x").column("key").to_pylist() == keys


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.int64()), pa.list_(pa.map_(pa.string(), pa.int64())), pa.duration("s")]
)
def test_what_has_no_one_text_cannot_be_a_key(kind):
    refused(column([None], kind), "column `x` is ", key="x")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_time_of_a_record_is_in_milliseconds(unit):
    batch = pa.record_batch({"x": [1], "at": pa.array([NOON], pa.timestamp(unit, "Asia/Kolkata"))})
    assert records(batch, timestamp="at").column("timestamp").to_pylist() == [1769860800000]


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[("k", b"\xff")], [], None], pa.map_(pa.string(), pa.binary())),
        pa.array([[("k", b"\xff")], [], None], pa.map_(pa.large_string(), pa.large_binary())),
        pa.array([[{"key": "k", "value": b"\xff"}], [], None], HEADERS),
        pa.array(
            [[{"value": b"\xff", "key": "k"}], [], None],
            pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        ),
    ],
)
def test_headers_are_a_map_or_what_the_kafka_source_gives(headers):
    made = records(pa.record_batch({"x": [1, 2, 3], "h": headers}), headers="h").column("headers")
    assert made.to_pylist() == [[{"key": "k", "value": b"\xff"}], [], None]


def test_no_rows_tell_the_schema():
    batch = pa.record_batch({"to": ["a"], "x": [1]})
    encode = RecordEncoder(BINDING, Recipe("json", topic_column="to"), batch.schema)
    assert encode(no_rows(batch.schema)).schema == encode(batch).schema


def test_slices_of_a_batch_are_encoded_as_what_they_are():
    batch = pa.record_batch(
        {
            "x": ["a", "b", "c", "d"],
            "to": ["t1", "t2", "t3", "t4"],
            "h": pa.array(
                [[("k", b"1")], [("k", b"2"), ("l", b"3")], [], [("m", b"4")]], pa.map_(pa.string(), pa.binary())
            ),
        }
    )
    recipe = Recipe("json", topic_column="to", headers="h", key="x")
    whole = records(batch, recipe).to_pylist()
    assert records(batch.slice(1, 2), recipe).to_pylist() == whole[1:3]
    assert records(batch.slice(3), recipe).to_pylist() == whole[3:]


# --- Values


def same(value):
    """A form in which NaN is NaN, an instant has no zone, and a map no order."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return {name: same(inner) for name, inner in value.items()}
    return [same(inner) for inner in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("hard", [*PLAIN, *NUMBERS, *TEXTS, *MOMENTS, *NESTED], ids=lambda c: c.name)
def test_hard_values_are_read_back_from_json_or_their_column_is_refused(hard):
    batch = column(list(hard.values), hard.kind)
    if pa.types.is_duration(hard.kind):
        refused(batch, "column `x` is duration[us], and JSON cannot hold it")
        return
    texts = records(batch).column("value").to_pylist()
    found = [value_of(loads(text.decode())["x"], hard.kind) for text in texts]
    assert [same(v) for v in found] == [same(v) for v in batch.column("x").to_pylist()]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KINDS = st.sampled_from(
    [
        (pa.string(), TEXT),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.float64(), st.floats()),
        (pa.binary(), st.binary(max_size=20)),
        (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
        (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXT, st.none() | st.integers(0, 9), max_size=3).map(lambda d: list(d.items()))),
        (pa.struct([("a", pa.string()), ('"', pa.int64())]), st.fixed_dictionaries({"a": TEXT, '"': st.integers(0, 9)})),
        (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), kind=KINDS, name=TEXT)
def test_whatever_is_in_a_row_json_gives_it_back(data, kind, name):
    arrow, values = kind
    batch = column(data.draw(st.lists(st.none() | values, min_size=1, max_size=8)), arrow, name)
    texts = records(batch, max_record_bytes=1 << 20).column("value").to_pylist()
    found = [value_of(loads(text.decode())[name], arrow) for text in texts]
    assert [same(v) for v in found] == [same(v) for v in batch.column(0).to_pylist()]


# --- What is refused: by name, with the row


def with_y(values, kind=None):
    return column(values, kind).append_column("y", pa.array([0]))


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (column([1], name="y"), {"key": "x"}, "no column `x`, which `key` needs"),
        (column([1], name="tpoic"), {"topic": None, "topic_column": "topic"}, "did you mean `tpoic`?"),
        (column(["t"], name="to"), {"topic": None, "topic_column": "to"}, "no column is left"),
        (column([1], name="y"), {"format": "raw"}, "no column `value`"),
        (pa.record_batch({"value": ["v"], "y": [1]}), {"format": "raw"}, "column `y` has no place in a raw record"),
        (column([1], name="value"), {"format": "raw"}, "column `value` is int64, and it cannot be a raw value"),
        (pa.record_batch([pa.array([1])] * 2, names=["x", "x"]), {}, "column `x` twice"),
        (with_y([1]), {"topic": None, "topic_column": "x"}, "column `x` is int64, and it cannot be a topic"),
        (with_y([1.5]), {"partition": "x"}, "column `x` is double, and it cannot be a partition"),
        (with_y([NOON], pa.timestamp("us")), {"timestamp": "x"}, "it cannot be the time of a record"),
        (with_y([1]), {"timestamp": "x"}, "it cannot be the time of a record"),
        (with_y([["k"]]), {"headers": "x"}, "it cannot be headers"),
        (with_y([[(1, b"v")]], pa.map_(pa.int32(), pa.binary())), {"headers": "x"}, "it cannot be headers"),
        (column([None], pa.duration("s")), {}, "column `x` is duration[s], and JSON cannot hold it"),
        (
            pa.record_batch([pa.StructArray.from_arrays([pa.array([1])] * 2, names=["a", "a"])], names=["x"]),
            {},
            "JSON cannot hold it",
        ),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_before_the_first_row(batch, options, words):
    recipe = Recipe(**{"format": "json", "topic": "refunds", **options})
    with pytest.raises(SchemaError) as caught:
        RecordEncoder(BINDING, recipe, batch.schema)
    assert words in caught.value.message


def with_x(**more):
    rows = len(next(iter(more.values())))
    return pa.record_batch({"x": list(range(rows)), **more})


ILL = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")])


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (with_x(to=["a", None]), {"topic": None, "topic_column": "to"}, "column `to` of row 1 of a slot is null"),
        (with_x(to=["a", "b c"]), {"topic": None, "topic_column": "to"}, "column `to` of row 1 of a slot is 'b c'"),
        (with_x(to=["a", ".."]), {"topic": None, "topic_column": "to"}, "row 1"),
        (with_x(to=["a", "x" * 250]), {"topic": None, "topic_column": "to"}, "row 1"),
        (with_x(to=["", "x"]), {"topic": None, "topic_column": "to"}, "row 0"),
        (with_x(to=["चाय", "x"]), {"topic": None, "topic_column": "to"}, "row 0"),
        (with_x(p=[0, None, -1]), {"partition": "p"}, "column `p` of row 2 of a slot is -1"),
        (with_x(p=[0, 2**31]), {"partition": "p"}, "column `p` of row 1 of a slot is 2147483648"),
        (with_x(at=pa.array([1, 0], pa.timestamp("ms", "UTC"))), {"timestamp": "at"}, "column `at` of row 1 of a slot is 0 ms"),
        (with_x(at=pa.array([1000, 999], INSTANT)), {"timestamp": "at"}, "column `at` of row 1"),
        (with_x(at=pa.array([-1], pa.timestamp("s", "UTC"))), {"timestamp": "at"}, "column `at` of row 0"),
        (with_x(at=pa.array([-18446744073709551], pa.timestamp("s", "UTC"))), {"timestamp": "at"}, "column `at` of row 0"),
        (with_x(at=pa.array([2**60], pa.timestamp("s", "UTC"))), {"timestamp": "at"}, "column `at` of row 0"),
        (with_x(h=pa.array([[("k", b"")], [("a", b""), ("a\0", b"")]], pa.map_(pa.string(), pa.binary()))), {"headers": "h"}, "column `h` of row 1 of a slot has NUL"),
        (with_x(h=pa.array([[], [None]], HEADERS)), {"headers": "h"}, "column `h` of row 1 of a slot has a header without a key"),
        (with_x(h=pa.array([[{"key": None, "value": b""}]], HEADERS)), {"headers": "h"}, "column `h` of row 0"),
        (pa.record_batch({"x": ILL}), {}, "column `x` of row 1 of a slot is malformed"),
        (pa.record_batch({"value": ILL}), {"format": "raw"}, "column `value` of row 1 of a slot is malformed"),
        (with_x(h=pa.MapArray.from_arrays([0, 1, 2], ILL, ILL)), {"headers": "h"}, "column `h` of row 1 of a slot is malformed"),
        (with_x(d=pa.array([0, 2932897], pa.date32())), {}, "column `d` of row 1 of a slot has a year outside 1 to 9999"),
        (with_x(d=pa.array([[0], [2**62]], pa.list_(pa.timestamp("us")))), {}, "column `d` of row 1"),
        (with_x(d=pa.array([0, -719163], pa.date32())), {"key": "d"}, "column `d` of row 1 of a slot has a year"),
    ],
)  # fmt: skip
def test_a_row_that_kafka_would_refuse_is_named(batch, options, words):
    refused(batch, words, **options)


def test_rows_are_counted_over_all_batches_of_a_slot():
    good, bad = with_x(p=[0, 1, 2]), with_x(p=[0, -1])
    encode = RecordEncoder(BINDING, Recipe("json", "refunds", partition="p"), good.schema)
    encode(good)
    encode(good)
    with pytest.raises(SchemaError, match="column `p` of row 7 of a slot"):
        encode(bad)


def test_a_record_is_refused_as_soon_as_it_is_larger_than_the_limit():
    h = pa.array([[("kk", b"vvv"), ("k", None)], [("kk", b"vvvv"), ("k", None)]], pa.map_(pa.string(), pa.binary()))
    batch = pa.record_batch({"value": ["v" * 50] * 2, "key": ["k" * 5] * 2, "h": h})
    fits = 50 + 5 + (2 + 3 + 10) + (1 + 10) + OVERHEAD_BYTES
    records(batch.slice(0, 1), format="raw", headers="h", max_record_bytes=fits)
    words = f"column `value` of row 1 of a slot makes a record of {fits + 1} bytes, and topic `refunds` takes {fits}"
    refused(batch, words, format="raw", headers="h", max_record_bytes=fits)


def test_the_widest_column_of_a_record_that_is_too_large_is_named():
    batch = pa.record_batch({"id": ["a", "b"], "note": ["x", "y" * 500], "amount": [1, 2]})
    refused(batch, "column `note` of row 1 of a slot makes a record of ", max_record_bytes=200)


# --- What the topics say of themselves


TAKES = {
    "refunds": Limits(4, 300),
    "small": Limits(1, 110),
    "compacted": Limits(4, 300, needs_key=True),
    "now": Limits(4, 300, ahead_ms=1000, behind_ms=10_000_000_000_000),
    "late": Limits(4, 300, behind_ms=100_000),
}
FAR = pa.array([NOON, dt.datetime(9000, 1, 1, tzinfo=dt.UTC)], INSTANT)


def ago(seconds):
    return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)


def to(*topics, **more):
    return pa.record_batch({"x": [0] * len(topics), "to": list(topics), **more})


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (to("refunds", "refunds", "nowhere"), {}, "column `to` of row 2 of a slot is `nowhere`, and there is no such topic"),
        (to("refunds", "small", p=[3, 1]), {"partition": "p"}, "column `p` of row 1 of a slot is 1, and topic `small` has no"),
        (to("refunds", "small", y=["y" * 20] * 2), {}, "row 1 of a slot makes a record of "),
        (to("refunds", "compacted", k=[None, None]), {"key": "k"}, "column `k` of row 1 of a slot is null, and topic `compacted`"),
        (to("refunds", "now", at=FAR), {"timestamp": "at"}, "column `at` of row 1 of a slot is further ahead of now than topic `now`"),
        (to("refunds", "late", at=[NOON, ago(95)]), {"timestamp": "at"}, "column `at` of row 1 of a slot is further behind now than topic `late`"),
    ],
)  # fmt: skip
def test_each_record_is_held_against_its_own_topic(batch, options, words):
    refused(batch, words, look=TAKES.get, topic=None, topic_column="to", **options)
    times = [NOON, NOON, NOON, None, ago(80)]
    good = to(
        "refunds", "compacted", "now", "late", "late", p=[3, None, 0, 0, 0], k=["a", "b", None, None, None], at=times
    )
    more = {"partition": "p", "key": "k", "timestamp": "at"}
    assert len(records(good, look=TAKES.get, topic=None, topic_column="to", **more)) == 5


def test_a_fixed_topic_that_is_not_there_is_refused_before_the_first_row():
    schema = column([1]).schema
    with pytest.raises(SchemaError, match="`topic` is `nowhere`, and there is no such topic"):
        RecordEncoder(BINDING, Recipe("json", "nowhere"), schema, TAKES.get)
    with pytest.raises(SchemaError, match="`topic` is 'a b', which cannot be the name"):
        RecordEncoder(BINDING, Recipe("json", "a b"), schema)


def test_a_topic_is_looked_at_once():
    asked = []

    def look(topic):
        asked.append(topic)
        return Limits(1, 1000)

    encode = RecordEncoder(BINDING, Recipe("json", topic_column="to"), to("a").schema, look)
    for _ in range(3):
        encode(to("a", "b", "a"))
    assert asked == ["a", "b"]


def test_numbers_that_json_has_no_word_for_are_text():
    values = records(column([math.nan, math.inf, -math.inf])).column("value").to_pylist()
    assert [json.loads(v)["x"] for v in values] == ["NaN", "Infinity", "-Infinity"]
