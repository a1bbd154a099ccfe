"""A schema of which no columns can be made is refused before anything is started, and the error says why."""

import json

import pytest

from pakka.errors import ConfigError
from pakka.sources import _kafka_decode as decode
from pakka.sources._kafka_schema import avro_schema
from tests.integration.conftest import need_connector
from tests.integration.test_kafka_decimal import PLAIN, are_bad, decoded

pytestmark = pytest.mark.spark


def of(*fields: tuple[str, object], **more) -> dict:
    return {"type": "record", "name": "Refund", "fields": [{"name": n, "type": t} for n, t in fields], **more}


def inner(*fields: tuple[str, object]) -> dict:
    return {**of(*fields), "name": "Line"}


CLASHES = {
    "a": of(("a", "long"), ("A", "long")),
    "v.a": of(("v", inner(("a", PLAIN), ("A", "string")))),
    "items.a": of(("items", {"type": "array", "items": ["null", inner(("b", "int"), ("a", "int"), ("A", "int"))]})),
    "by.v.a": of(("by", {"type": "map", "values": {**of(("v", inner(("a", "int"), ("A", "int")))), "name": "By"}})),
}


@pytest.mark.parametrize("place", CLASHES)
def test_avro_fields_that_differ_in_case_only_are_refused_with_their_names(spark, place):
    """Spark finds two of them, and makes a row of nulls of every record: all were dead letters, and the run said OK."""
    other = place[:-1] + "A"
    with pytest.raises(ConfigError, match=f"`{place}` and `{other}`, which Spark takes for one"):
        decoded(spark, [], CLASHES[place])


def test_where_case_counts_both_are_read(spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        found = decoded(spark, [b"\x02\x04"], CLASHES["a"]).collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert [(row.a, row.A, row._corrupt_record) for row in found] == [(1, 2, None)]


@pytest.mark.parametrize(
    "schema",
    [
        "a INT, A STRING",
        "a INT, a INT",
        "v ARRAY<STRUCT<a: DECIMAL(5,2), A: STRING>>",
        "m MAP<STRING, STRUCT<a: DECIMAL(5,2), A: INT>>",
    ],
)
def test_json_fields_that_differ_in_case_only_are_refused_where_spark_cannot_tell_them_apart(spark, schema):
    with pytest.raises(ConfigError, match=r"`[vm.]*a` and `[vm.]*[aA]`, which Spark takes for one"):
        decoded(spark, [], schema)


def test_json_fields_that_differ_in_case_only_are_read_where_spark_can_tell_them_apart(spark):
    found = decoded(spark, [b'{"v":{"a":1,"A":"x"}}'], "v STRUCT<a: INT, A: STRING>, w STRUCT<a: DECIMAL(5,2)>")
    assert found.select("v").collect()[0].v.asDict() == {"a": 1, "A": "x"}


WRONG = {
    "Undefined schema: strng": of(("a", "strng")),
    "recursive reference": of(("a", ["null", "Refund"])),
    "precision 39": of(("a", {**PLAIN, "precision": 39})),
    "CANNOT_PARSE_DATATYPE.*": of(("a", {"type": "long", "logicalType": "timestamp-nanos"})),
    "has a field without a name": {"type": "record", "name": "Refund", "fields": [{"type": "long"}]},
    "name": of(("v", {"type": "record", "name": "Line", "fields": [{"type": "long"}]})),
    "not of a record with fields": {"type": "record", "name": "Refund", "fields": {"a": "long"}},
}


@pytest.mark.parametrize("reason", WRONG)
def test_an_avro_schema_that_is_none_is_refused_with_the_reason(spark, reason):
    need_connector()
    records = spark.createDataFrame([], "value BINARY")
    with pytest.raises(ConfigError, match=f"source kafka: the Avro schema .*{reason}") as refused:
        decode.from_avro(records, avro_schema(json.dumps(WRONG[reason]))[0])
    assert refused.value.hint
    assert "\n\tat " not in str(refused.value)


def test_a_json_schema_with_keys_that_json_does_not_have_is_refused_with_the_reason(spark):
    with pytest.raises(ConfigError, match=r"is not understood: Input schema .* can only contain STRING as a key type"):
        decoded(spark, [], "m MAP<INT, INT>")


@pytest.mark.parametrize("schema", ["id VARCHAR(5)", "id INT, m MAP<STRING, CHAR(5)>"])
def test_a_json_schema_of_types_that_json_does_not_have_is_refused_with_the_reason(spark, schema):
    with pytest.raises(ConfigError, match=r"the JSON schema is not understood: .*char/varchar") as refused:
        decoded(spark, [], schema)
    assert "STRING" in str(refused.value.hint)


def test_an_avro_type_may_have_the_name_of_the_mark(spark):
    schema = of(("a", {"type": "fixed", "name": "_pakka_end", "size": 1}))
    assert are_bad(decoded(spark, [b"x", b"xy"], schema).collect()) == [False, True]
