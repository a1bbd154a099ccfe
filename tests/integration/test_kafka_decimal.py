"""A decimal of a Kafka record is taken as it is, or the record is a dead letter: of an amount of money nobody rounds a paisa off, or a lakh."""

import io
import json
from decimal import Decimal

import fastavro
import pytest

from pakka.sources import _kafka_decode as decode
from tests.integration.conftest import need_connector

pytestmark = pytest.mark.spark

COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
ALONE = {"is_strict": False, "has_metadata": False, "has_headers": False}


def decoded(spark, values: list[bytes], schema, **options):
    """The columns, of a JSON schema in Spark's types or of an Avro one."""
    from pyspark.sql.types import StructType

    records = spark.createDataFrame([(None, bytearray(v), "t", 0, i, None) for i, v in enumerate(values)], COLUMNS)
    if isinstance(schema, str):
        read = StructType.fromDDL(schema)
        return decode.columns(*decode.from_json(records, read), read.names, **ALONE | options)
    need_connector()
    names = [field["name"] for field in schema["fields"]]
    return decode.columns(*decode.from_avro(records, json.dumps(schema)), names, **ALONE | options)


def are_bad(rows) -> list[bool]:
    return [row._corrupt_record is not None for row in rows]


GOOD = [
    '{"amount":1.230}',
    '{"amount":"1.23"}',
    '{"amount":99999999.99,"a.b":[{"c":1.5},null]}',
    "{}",
    '{"m":{"x":1.5,"y":null},"v":{"x":1.25,"v":[1],"i":{"k":{"n":[2.5]}}}}',
    '{"m":{},"v":{"i":{}}}',
]
BAD = [
    '{"amount":1.239}',
    '{"amount":"1.239"}',
    '{"amount":99999999.999}',
    '{"a.b":[{"c":1.55}]}',
    '{"m":{"x":1.5,"y":1.55}}',
    '{"v":{"x":1.255,"v":1}}',
    '{"v":{"i":{"k":{"n":[2.5,2.55]}}}}',
]


def test_a_json_decimal_is_taken_as_it_is_or_not_at_all(spark):
    """Spark rounds what has more places than are declared."""
    schema = (
        "amount DECIMAL(10,2), `a.b` ARRAY<STRUCT<c: DECIMAL(3,1) NOT NULL>>, m MAP<STRING, DECIMAL(3,1)>, "
        "v STRUCT<x: DECIMAL(5,2), v: VARIANT, i: MAP<STRING, STRUCT<n: ARRAY<DECIMAL(3,1)>>>>"
    )
    made = decoded(spark, [text.encode() for text in [*GOOD, *BAD]], schema)
    assert made.schema["amount"].dataType.simpleString() == "decimal(10,2)"
    assert made.schema["m"].dataType.simpleString() == "map<string,decimal(3,1)>"
    found = made.drop("v").collect()
    assert are_bad(found) == [False] * len(GOOD) + [True] * len(BAD)
    assert [str(row.amount) for row in found[:4]] == ["1.23", "1.23", "99999999.99", "None"]
    assert str(found[2]["a.b"][0].c) == "1.5"
    assert found[4].m == {"x": Decimal("1.5"), "y": None}
    assert [str(row.x) for row in made.select("v.x").collect()[4:5]] == ["1.25"]


def test_many_decimals_are_planned_as_fast_as_few(spark):
    """The plan once doubled with each: with thirteen no epoch ever began."""
    names = [f"d{i}" for i in range(30)]
    schema = ", ".join(f"{name} DECIMAL(10,2)" for name in names)
    values = [json.dumps(dict.fromkeys(names, 1.25)), json.dumps({**dict.fromkeys(names, 1.25), "d29": 1.255})]
    found = decoded(spark, [text.encode() for text in values], schema).collect()
    assert are_bad(found) == [False, True]
    assert {str(found[0][name]) for name in names} == {"1.25"}


def of(kind: dict) -> dict:
    return {"type": "record", "name": "Refund", "fields": [{"name": "amount", "type": kind}]}


def number(unscaled: int, size: int | None = None) -> bytes:
    return unscaled.to_bytes(size or unscaled.bit_length() // 8 + 1, "big", signed=True)


def as_bytes(value: bytes) -> bytes:
    """As Avro writes bytes: how many, and then they."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, {"type": "bytes"}, value)
    return buffer.getvalue()


PLAIN = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
WIDE = {**PLAIN, "precision": 30}
FIXED = {**PLAIN, "type": "fixed", "name": "Amount", "size": 16}
SHORT = {**FIXED, "size": 5}


@pytest.mark.parametrize(
    ("kind", "digits", "written"),
    [
        (PLAIN, 10, lambda n: as_bytes(number(n))),
        (PLAIN, 10, lambda n: as_bytes(number(n, 40))),
        (WIDE, 30, lambda n: as_bytes(number(n))),
        (FIXED, 10, lambda n: number(n, 16)),
    ],
    ids=["bytes", "bytes with room", "more digits than a long has", "fixed"],
)
def test_an_avro_decimal_with_more_digits_than_are_declared_is_no_good(spark, kind, digits, written):
    """Of one with up to 18 digits Spark takes the lowest 64 bits: 1.25 rupees where ten crore crore were written."""
    good = [125, -125, 0, 10**digits - 1, 1 - 10**digits]
    bad = [10**digits, -(10**digits), 2**100 + 125, 125 - 2**100, *([2**64 + 125, -(2**64)] if digits < 19 else [])]
    made = decoded(spark, [written(n) for n in [*good, *bad]], of(kind))
    assert made.schema["amount"].dataType.simpleString() == f"decimal({digits},2)"
    found = made.collect()
    assert are_bad(found) == [False] * len(good) + [True] * len(bad)
    assert [row.amount for row in found[: len(good)]] == [Decimal(f"{n}E-2") for n in good]


def test_an_avro_decimal_is_looked_at_wherever_it_stands(spark):
    inner = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "c", "type": ["null", PLAIN]}, {"name": "s", "type": SHORT}],
    }
    fields = {
        "items": {"type": "array", "items": inner},
        "by": {"type": "map", "values": PLAIN},
        "either": ["null", "string", "Line"],
        "text": "string",
        "wrong": {**PLAIN, "precision": 1},
    }
    schema = {"type": "record", "name": "Refund", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    # fastavro would see to the digits itself, and knows nothing of a scale larger than the precision.
    plain = json.loads(json.dumps(schema).replace('"logicalType": "decimal"', '"doc": ""'))
    short, usual, huge = number(125, 5), number(125), number(2**64 + 125)

    def row(c=usual, by=usual, either=None):
        line = {"c": c, "s": short}
        made = {"items": [line, {"c": None, "s": short}], "by": {"x": by}, "either": either, "text": "t", "wrong": huge}
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, plain, made)
        return buffer.getvalue()

    good = [row(), row(either="text"), row(either={"c": usual, "s": short})]
    bad = [row(c=huge), row(by=huge), row(either={"c": huge, "s": short})]
    found = decoded(spark, [*good, *bad], schema).collect()
    assert are_bad(found) == [False] * len(good) + [True] * len(bad)
    amount = Decimal("1.25")
    assert [(line.c, line.s) for line in found[0]["items"]] == [(amount, amount), (None, amount)]
    assert (found[0].by, found[0].wrong) == ({"x": amount}, huge)
    assert found[2].either.member1.c == amount


STRAY = {"logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "beside"),
    [
        (PLAIN, STRAY),
        ({"type": "record", "name": "Line", "fields": [{"name": "amount", "type": PLAIN}], **STRAY}, {}),
        ({"type": "array", "items": PLAIN, **STRAY}, {}),
    ],
    ids=["the field", "a record", "a list"],
)
def test_an_avro_decimal_is_found_in_what_is_called_a_decimal_and_is_none(spark, kind, beside):
    """Avro passes over the word, on a field or a record. What stands in it was read as without it: 1.25 for 2^64 + 125."""
    schema = of(kind)
    schema["fields"][0].update(beside)
    values = [as_bytes(number(n)) for n in (125, 2**64 + 125)]
    if kind["type"] == "array":
        values = [b"\x02" + value + b"\x00" for value in values]
    assert are_bad(decoded(spark, values, schema).collect()) == [False, True]


BADLY = [{}, {"precision": "10"}, {"precision": 10, "scale": None}, {"precision": 10, "scale": -1}, {"precision": True}]


@pytest.mark.parametrize("how", BADLY, ids=str)
def test_an_avro_decimal_that_is_declared_badly_is_the_bytes_that_it_is(spark, how):
    """So Avro says. One without a precision became a number of 19 digits, and a word for a number ended the run with a bare TypeError."""
    made = decoded(
        spark, [as_bytes(b"more than nineteen digits")], of({"type": "bytes", "logicalType": "decimal", **how})
    )
    assert [(row.amount, row._corrupt_record) for row in made.collect()] == [(b"more than nineteen digits", None)]


def test_an_avro_decimal_of_bytes_has_no_size_and_one_that_is_written_there_means_nothing(spark):
    found = decoded(spark, [as_bytes(number(n)) for n in (125, 2**64 + 125)], of({**PLAIN, "size": 5})).collect()
    assert are_bad(found) == [False, True]


@pytest.mark.parametrize("kind", [PLAIN, WIDE])
def test_an_avro_decimal_of_megabytes_holds_nobody_up(spark, kind):
    """Spark counts its digits for minutes, and a task that is begun again does it again: the test fails by its time."""
    long_text = {"name": "text", "type": "string"}
    schema = of(kind)
    schema["fields"] = [*schema["fields"], long_text]
    text = as_bytes(b"t" * 100_000)
    found = decoded(spark, [as_bytes(number(2**70_000_000)) + text, as_bytes(number(125)) + text], schema).collect()
    assert are_bad(found) == [True, False]
    assert found[1].amount == Decimal("1.25")


def test_an_avro_text_that_is_none_is_no_good_wherever_it_stands(spark):
    """Spark looks at no text in Avro. The first sink that did stopped the pipeline, and again at each restart."""
    line = {"type": "record", "name": "Line", "fields": [{"name": "note", "type": ["null", "string"]}]}
    fields = {
        "id": "string",
        "lines": {"type": "array", "items": line},
        "by": {"type": "map", "values": {"type": "map", "values": "string"}},
        "either": ["null", "long", "string"],
    }
    schema = {"type": "record", "name": "Refund", "fields": [{"name": n, "type": t} for n, t in fields.items()]}

    def row(broken: str) -> bytes:
        where = dict.fromkeys(["id", "note", "key", "inner key", "value", "either"], "good") | {broken: "BAD"}
        made = {
            "id": where["id"],
            "lines": [{"note": None}, {"note": where["note"]}],
            "by": {"x": {}, where["key"]: {where["inner key"]: where["value"]}},
            "either": where["either"],
        }
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, made)
        # Half of a character of UTF-16, which is none by itself.
        return buffer.getvalue().replace(b"BAD", "\ud800".encode("utf-8", "surrogatepass"))

    broken = ["id", "note", "key", "inner key", "value", "either"]
    found = decoded(spark, [row(""), *(row(name) for name in broken)], schema).collect()
    assert are_bad(found) == [False] + [True] * len(broken)
    assert found[0]["lines"][1].note == "good"


@pytest.mark.parametrize("format_", ["avro", "json"])
@pytest.mark.parametrize("is_strict", [False, True], ids=["with dead letters", "without"])
def test_a_record_is_decoded_once_however_many_decimals_it_has(spark, format_, is_strict):
    """Without dead letters the plan had 863 copies of Spark's decoder for 20 Avro decimals, and no memory was enough for 100."""
    names = [f"d{i}" for i in range(20)]
    schema = {"type": "record", "name": "Refund", "fields": [{"name": name, "type": PLAIN} for name in names]}
    value = as_bytes(number(125)) * 20
    if format_ == "json":
        schema = ", ".join(f"{name} DECIMAL(10,2)" for name in names)
        value = json.dumps(dict.fromkeys(names, 1.25)).encode()
    made = decoded(spark, [value], schema, is_strict=is_strict)
    # Twice: once more for the long ones, of which the first look sees whether they can be read at all.
    assert made._jdf.queryExecution().optimizedPlan().toString().count(f"from_{format_}(") == 2
    assert [str(row.d19) for row in made.collect()] == ["1.25"]


ASKED = {
    "a column": ["amount"],
    "none that is decoded": ["_offset"],
    "none at all": ["1 AS one"],
    "a count": ["count(*)"],
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("format_", ["avro", "json"])
def test_without_dead_letters_no_bad_record_slips_through_whatever_is_asked_for(spark, format_, asked):
    """Spark leaves out what is not asked for."""
    values = [as_bytes(number(n)) for n in (125, 10**10)]
    if format_ == "json":
        values = [b'{"amount":1.25}', b'{"amount":1.255}']
    schema = of(PLAIN) if format_ == "avro" else "amount DECIMAL(10,2)"
    strict = {"is_strict": True, "has_metadata": True}
    assert len(decoded(spark, values[:1], schema, **strict).selectExpr(*asked).collect()) == 1
    made = decoded(spark, values, schema, **strict)
    for rows in (made, made.where("_offset = 0"), made.where("amount > 1000")):
        with pytest.raises(Exception, match=r"source kafka: a record cannot be decoded: .*\"offset\":1"):
            rows.selectExpr(*asked).collect()
