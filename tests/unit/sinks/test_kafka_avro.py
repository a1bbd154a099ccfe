"""Rows as Avro: what fastavro reads from the bytes is what went in, or the column or the row was refused by name."""

import datetime as dt
import io
import json
import random
from decimal import Decimal, localcontext

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pakka.errors import SchemaError
from pakka.model.id import Binding
from pakka.sinks._kafka_avro import AvroSchema
from pakka.sinks._kafka_record import Recipe, RecordEncoder
from pakka.sinks._spool import no_rows
from pakka.testing.contract.columns import MOMENTS, NESTED, NUMBERS, PLAIN, TEXTS

BINDING = Binding("refunds", "out", "spool")
REFUSED = {"interval": "Avro has no type for duration[us]", "map by number": "Avro has no type for map<int32, string>"}


def column(values, kind=None, name="x"):
    return pa.record_batch([pa.array(values, kind)], names=[name])


def avsc(*fields, **more):
    return json.dumps({"type": "record", "name": "Refund", "fields": list(fields), **more})


def encode(batch, schema=""):
    recipe = Recipe("avro", topic="refunds", schema=schema, max_record_bytes=1 << 20)
    return RecordEncoder(BINDING, recipe, batch.schema)(batch).column("value").to_pylist()


def decode(records, schema):
    parsed = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    rows = []
    for record in records:
        buffer = io.BytesIO(record)
        rows.append(fastavro.schemaless_reader(buffer, parsed, None))
        assert not buffer.read()
    return rows


def derived(batch):
    return AvroSchema.derived(batch.schema).record


def through(batch, schema=""):
    return decode(encode(batch, schema), schema or derived(batch))


def same(value):
    """A form in which NaN is NaN, an instant has no zone, and a map no order."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return sorted((name, same(inner)) for name, inner in value.items())
    if isinstance(value, list) and value and all(isinstance(inner, tuple) for inner in value):
        return sorted((name, same(inner)) for name, inner in value)
    return [same(inner) for inner in value] if isinstance(value, list) else value


def assert_same(found, wanted):
    assert [same(v) for v in found] == [
        same({} if v == [] and isinstance(f, dict) else v) for v, f in zip(wanted, found, strict=True)
    ]


@pytest.mark.parametrize("hard", [*PLAIN, *NUMBERS, *TEXTS, *MOMENTS, *NESTED], ids=lambda c: c.name)
def test_hard_values_are_read_back_by_the_derived_schema_or_their_column_is_refused(hard):
    batch = column(list(hard.values), hard.kind)
    if hard.name in REFUSED:
        with pytest.raises(SchemaError, match="column `x` is ") as caught:
            encode(batch)
        assert REFUSED[hard.name] in caught.value.message
        return
    assert_same([row["x"] for row in through(batch)], batch.column("x").to_pylist())


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBER = st.integers(-(2**63), 2**63 - 1)
KINDS = [
    (pa.string(), TEXT),
    (pa.large_binary(), st.binary(max_size=200)),
    (pa.int64(), NUMBER),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(38, 6), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -6)))),
    (pa.decimal256(60, 3), st.integers(-(10**60) + 1, 10**60 - 1).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -3)))),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.list_(pa.int64()), st.lists(st.none() | NUMBER, max_size=4)),
    (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(st.none() | TEXT, max_size=3), max_size=3)),
    (pa.map_(pa.string(), pa.binary()), st.dictionaries(TEXT, st.none() | st.binary(max_size=5), max_size=3).map(lambda d: list(d.items()))),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.struct([("c", pa.int64())])))]),
     st.fixed_dictionaries({"a": st.none() | TEXT, "b": st.none() | st.lists(st.none() | st.fixed_dictionaries({"c": st.none() | NUMBER}), max_size=3)})),
]  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data(), kind=st.sampled_from(KINDS), start=st.integers(0, 3))
def test_whatever_is_in_a_row_avro_gives_it_back(data, kind, start):
    arrow, values = kind
    rows = data.draw(st.lists(st.none() | values, min_size=4, max_size=12))
    batch = column(rows, arrow).append_column("n", pa.array(range(len(rows)))).slice(start)
    found = through(batch)
    assert [row["n"] for row in found] == list(range(start, len(rows)))
    assert_same([row["x"] for row in found], batch.column("x").to_pylist())


def test_every_length_of_a_number_is_read_back():
    edges = [sign * (2**bits + more) for bits in range(63) for more in (-1, 0, 1) for sign in (1, -1)]
    values = sorted({v for v in [*edges, -(2**63), 2**63 - 1] if -(2**63) <= v < 2**63})
    assert [row["x"] for row in through(column(values, pa.int64()))] == values
    decimals = [Decimal(v) for v in values]
    assert [row["x"] for row in through(column(decimals, pa.decimal128(38, 0)))] == decimals


def test_the_bytes_are_those_that_fastavro_writes():
    schema = avsc(
        {"name": "id", "type": "string"},
        {"name": "amount", "type": ["null", "long"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    )
    rows = [
        {"id": "a", "amount": -5, "price": Decimal("-1.27"), "tags": ["x", ""]},
        {"id": "", "amount": None, "price": Decimal("327.67"), "tags": []},
    ]
    batch = pa.RecordBatch.from_pylist(
        rows,
        pa.schema(
            [
                ("id", pa.string()),
                ("amount", pa.int64()),
                ("price", pa.decimal128(9, 2)),
                ("tags", pa.list_(pa.string())),
            ]
        ),
    )
    for made, row in zip(encode(batch, schema), rows, strict=True):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, json.loads(schema), row)
        # fastavro writes a list as one block too, so that even this is the same.
        assert made == buffer.getvalue()


def test_no_rows_make_no_records():
    batch = column([{"a": [1]}], pa.struct([("a", pa.list_(pa.decimal128(5, 2)))]))
    assert encode(no_rows(batch.schema)) == []


# --- A schema that is given


AT = dt.datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=dt.UTC)
FITS = [
    ("int", pa.int64(), [1, -(2**31)], None),
    ("long", pa.int8(), [1, -1], None),
    ("long", pa.uint64(), [2**63 - 1], None),
    ("double", pa.float32(), [0.5], None),
    (["null", "string"], pa.string(), ["a", None], None),
    (["string", "null"], pa.string(), ["a", None], None),
    (["string"], pa.string(), ["a"], None),
    (["null", "string"], pa.null(), [None], None),
    ("null", pa.null(), [None], None),
    ("string", pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], None),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), ["0f4a5b1c-1111-4222-8333-444455556666"], "uuid"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), ["B", "A"], None),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), [b"abc"], None),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary(3), [b"abc"], None),
    ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}, pa.decimal128(9, 2), [Decimal("-1.25")], None),
    ({"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}, pa.decimal128(6, 2), [Decimal("-9999.99"), Decimal("0.01")], None),
    ({"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 6, "scale": 2}, pa.decimal128(6, 2), [Decimal("-9999.99"), Decimal("1.00")], None),
    ({"type": "int", "logicalType": "date"}, pa.date64(), [dt.date(2026, 1, 31)], None),
    ({"type": "int", "logicalType": "time-millis"}, pa.time64("us"), [dt.time(1, 2, 3, 4000)], None),
    ({"type": "long", "logicalType": "time-micros"}, pa.time32("s"), [dt.time(1, 2, 3)], None),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "Asia/Kolkata"), [AT], None),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("ns", "UTC"), [AT], None),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), [AT.replace(tzinfo=None)], None),
    ({"type": "long", "logicalType": "of-nobody"}, pa.int64(), [7], None),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), [[("k", 1)]], None),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "kind", "values", "form"), FITS)
def test_a_column_goes_into_a_field_that_holds_it_without_a_loss(schema, kind, values, form):
    batch = column(values, kind)
    found = [row["x"] for row in through(batch, avsc({"name": "x", "type": schema}))]
    wanted = batch.column("x").to_pylist()
    assert_same([str(v) if form == "uuid" else v for v in found], wanted)


def test_fields_are_matched_by_name_and_missing_ones_have_their_defaults():
    schema = avsc(
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["REFUND", "SALE"]}, "default": "SALE"},
        {"name": "b", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "Kind"}, "default": ["SALE"]},
        {"name": "a", "type": "string"},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [
            {"name": "other", "type": "Kind", "default": "REFUND"}, {"name": "n", "type": "int"}]}},
        namespace="shop",
    )  # fmt: skip
    batch = pa.record_batch({"a": ["x"], "b": [1], "inner": [{"n": 5}]})
    assert through(batch, schema) == [
        {"kind": "SALE", "b": 1, "note": None, "tags": ["SALE"], "a": "x", "inner": {"other": "REFUND", "n": 5}}
    ]


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        ("int", pa.string(), "it does not fit Avro's int"),
        ("float", pa.float64(), "it does not fit Avro's float"),
        ("double", pa.int64(), "it does not fit Avro's double"),
        ("bytes", pa.string(), "it does not fit Avro's bytes"),
        ("string", pa.binary(), "it does not fit Avro's string"),
        ("long", pa.timestamp("us", "UTC"), "it does not fit Avro's long"),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.int64(), "timestamp-micros"),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us"), "timestamp-micros"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us", "UTC"), "local-timestamp-micros"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.binary(), "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 2}, pa.decimal128(9, 2), "90 digits"),
        (["null", "int", "string"], pa.string(), "a union of several types"),
        ("string", pa.null(), "it does not fit Avro's string"),
        ({"type": "map", "values": "string"}, pa.map_(pa.int32(), pa.string()), "it does not fit Avro's map"),
        ({"type": "array", "items": "int"}, pa.list_(pa.string()), "it does not fit Avro's int"),
        ("int", pa.duration("s"), "it does not fit Avro's int"),
    ],
)  # fmt: skip
def test_a_column_that_a_field_would_change_is_refused_before_the_first_row(schema, kind, words):
    recipe = Recipe("avro", topic="refunds", schema=avsc({"name": "x", "type": schema}))
    with pytest.raises(SchemaError, match="column `x` is ") as caught:
        RecordEncoder(BINDING, recipe, column([], kind).schema)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([{"name": "y", "type": "int", "default": 0}], "column `x` is int64, and the schema has no field of this name"),
        ([{"name": "x", "type": "int"}, {"name": "z", "type": "int"}], "column `z`: the rows lack it, and its field has no default"),
    ],
)  # fmt: skip
def test_columns_and_fields_must_be_the_same(fields, words):
    with pytest.raises(SchemaError) as caught:
        encode(column([1]), avsc(*fields))
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("schema", "kind", "values", "words"),
    [
        ("int", pa.int64(), [1, 2**31], "not in range"),
        ("long", pa.uint64(), [1, 2**63], "not in range"),
        ("string", pa.string(), ["a", None], "a null, and its field takes none"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [[1], [None]], "a null"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), ["A", "B"], "'B', which is none of the symbols"),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), [b"abc", b"ab"], "has not the 3 bytes"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}, pa.decimal128(9, 2), [Decimal("1.20"), Decimal("1.25")], ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}, pa.decimal128(9, 0), [Decimal(999), Decimal(1000)], ""),
        ({"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0}, pa.decimal128(3, 0), [Decimal(99), Decimal(128)], ""),
        ({"type": "string", "logicalType": "uuid"}, pa.string(), ["0a1b2c3d-0000-1111-2222-333344445555", "0a1b2c3d"], "'0a1b2c3d', which is no UUID"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), [1000, 1001], "would lose data"),
        ({"type": "int", "logicalType": "time-millis"}, pa.time64("us"), [1000, 1001], "would lose data"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_with_its_row(schema, kind, values, words):
    with pytest.raises(SchemaError, match="column `x` of row 1 of a slot has ") as caught:
        encode(column(values, kind), avsc({"name": "x", "type": schema}))
    assert words in caught.value.message


@pytest.mark.parametrize("bits", [128, 256])
def test_a_decimal_is_written_as_it_is_or_refused(bits):
    """Arrow makes another number of one in seven that have no room for more places behind the point."""
    chance, refused = random.Random(bits), 0
    most, make = (38, pa.decimal128) if bits == 128 else (76, pa.decimal256)
    for _ in range(1500):
        had, precision = chance.randint(most // 2, most), chance.randint(most - 2, most)
        places = chance.randint(0, had)
        scale = min(precision, max(0, places + chance.randint(-2, most // 2)))
        value = Decimal(f"{chance.randint(-(10**had) + 1, 10**had - 1)}E-{places}")
        number = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        try:
            (found,) = through(column([value], make(had, places)), avsc({"name": "x", "type": number}))
        except SchemaError:
            refused += 1
            with localcontext(prec=200):
                moved = value.scaleb(scale)
                assert moved != moved.to_integral_value() or abs(moved) >= 10**precision
        else:
            assert found["x"] == value
    assert 100 < refused < 1400


def test_records_in_records_have_names_of_their_own():
    inner = pa.struct([("z", pa.int64())])
    batch = pa.record_batch(
        {"a": pa.array([{"b": {"z": 1}}], pa.struct([("b", inner)])), "a_b": pa.array([{"z": 2}], inner)}
    )
    assert through(batch) == [{"a": {"b": {"z": 1}}, "a_b": {"z": 2}}]


def test_a_struct_that_has_a_field_twice_is_refused():
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([3])], names=["a", "a"])
    with pytest.raises(SchemaError, match=r"column `x` is .* Avro cannot hold it"):
        encode(pa.record_batch({"x": twice}))


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ffa", b"\xffa"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000", Decimal("2.56")),
        (["bytes", "string"], "x", b"x"),
        (["string", "null"], "x", "x"),
        (["null", "string"], None, None),
        ("int", 2**31 - 1, 2**31 - 1),
    ],
)
def test_a_default_is_that_of_the_schema(kind, default, value):
    schema = avsc({"name": "x", "type": "long"}, {"name": "y", "type": kind, "default": default})
    assert through(column([1]), schema) == [{"x": 1, "y": value}]


@pytest.mark.parametrize(("kind", "default"), [("int", 2**31), ("bytes", "\u0100")])
def test_a_default_that_its_field_cannot_hold_is_refused(kind, default):
    with pytest.raises(SchemaError, match="column `y`: the rows lack it, and its default cannot be written"):
        encode(column([1]), avsc({"name": "x", "type": "long"}, {"name": "y", "type": kind, "default": default}))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"string"',
        '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "money"}]}',
    ],
)
def test_what_is_no_schema_of_a_record_is_refused(text):
    with pytest.raises(SchemaError, match="`schema`: it is "):
        encode(column([1]), text)


@pytest.mark.parametrize("name", ["a-b", "1a", "चाय", ""])
def test_a_name_that_avro_has_not_is_refused(name):
    with pytest.raises(SchemaError, match="its name is none in Avro"):
        encode(column([1], name=name))
