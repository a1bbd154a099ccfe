"""From Kafka's records to columns. A record that cannot be decoded becomes text that says where it stands in Kafka."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pakka.sources import _kafka_decimal as decimal
from pakka.sources import _kafka_json as as_json
from pakka.sources._kafka_digits import without_endless
from pakka.sources._kafka_schema import check_cases, understood
from pakka.sources._kafka_type import IsWanted, has, is_any, rebuilt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

CORRUPT = "_corrupt_record"
"""Where the text of a record goes that cannot be decoded."""
METADATA = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp", "key": "_key"}
"""The record's own fields, and the columns that they are beside the decoded ones."""
HEADERS = "_headers"
_DECODED = "_pakka_decoded"
END = "_pakka_end"
"""Where the marks are while a value is decoded."""
_MARK_BYTES = 16
"""How long a mark is. It is another one at every start, so that no value can have it in it."""
_GOOD = "_pakka_good"
"""Whether a record may pass, where one that may not is an error."""
_BARE = "_pakka_bare"
"""An Avro value with the bytes of its decimals, if it is long."""
_LONG_VALUE_BYTES, _LONG_DECIMAL_BYTES = 10_000, 1_000
"""Spark takes 15 s for a decimal of a megabyte, and four times as long for one of two."""
_TOLD_MAX = {"key": 4096, "value": 131_072}
"""Of how many characters, or bytes that are no text, is told: so many that a topic takes them with its usual limit of a megabyte, though each be written with seven."""
_RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


def raw(records: DataFrame, has_headers: bool) -> DataFrame:
    """Spark's own columns."""
    return records.select(*_RAW, *(["headers"] if has_headers else []))


def from_json(records: DataFrame, schema: StructType) -> tuple[DataFrame, Column, Column]:
    """The records with what was decoded beside them, the struct that holds it, and the condition under which a record is no good.

    Spark reads one JSON document and passes over all that follows it. So a value is read as the second item of a list of three,
    between two marks that nobody knows before: whatever it is, if it is not one document, one of them does not come out.
    """
    from pyspark.sql.functions import col, expr, get, lit
    from pyspark.sql.functions import from_json as parse
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    check_cases(records.sparkSession, schema, lambda inner: has(inner, as_json.is_changed))
    mark = secrets.token_hex(_MARK_BYTES)
    fields = [StructField(f.name, as_json.wider(f.dataType)) for f in schema.fields]
    item = StructType([*fields, StructField(END, StringType())])
    whole = StructType().add("items", ArrayType(item)).add(CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    marked = f'{{"{END}":"{mark}"}}'
    wrapped = expr(f"""concat('{{"items":[{marked},', CAST(value AS STRING), ',{marked}]}}')""")
    finite = without_endless(expr("CAST(value AS STRING)"), wrapped, whole)
    with understood("JSON", "take types that JSON has, such as STRING for VARCHAR(5), or `format: raw`"):
        decoded = records.withColumn(_DECODED, parse(finite, whole, options))
    items = f"{_DECODED}.items"
    # Spark puts a replacement character for bytes that are no text.
    is_bad = expr(
        f"value IS NULL OR NOT is_valid_utf8(CAST(value AS STRING)) OR {_DECODED}.{CORRUPT} IS NOT NULL OR NOT (size({items}) <=> 3) "
        f"OR get({items}, 1) IS NULL OR NOT (get({items}, 0).{END} <=> '{mark}') OR NOT (get({items}, 2).{END} <=> '{mark}')"
    )
    is_bad |= as_json.has_half_a_character(expr("CAST(value AS STRING)"))
    read = get(col(_DECODED)["items"], lit(1))
    is_bad |= is_any(read, schema, as_json.is_changed, as_json.does_not_fit)
    return decoded, _declared(read, schema, as_json.is_changed), is_bad


def from_avro(records: DataFrame, schema: str) -> tuple[DataFrame, Column, Column]:
    """As `from_json`. Of a record that it cannot read Spark makes a row of nulls, which a record may be by right, and it passes
    over bytes that follow one. So a value is read with a mark behind it, as one more field, which must come out as it is.
    """
    from pyspark.sql.avro.functions import from_avro as parse
    from pyspark.sql.functions import col, concat, expr, is_valid_utf8, length, when
    from pyspark.sql.types import StructType

    mark = secrets.token_hex(_MARK_BYTES)
    writer = json.loads(schema)
    with understood("Avro", "mend it, or take `format: raw` and decode the values in `process`"):
        declared = records.select(parse("value", schema)).schema[0].dataType
    assert isinstance(declared, StructType)
    check_cases(records.sparkSession, declared, lambda _: True)
    options = {"mode": "PERMISSIVE"}
    value = col("value")
    if has(declared, decimal.is_decimal):
        bare = parse("value", json.dumps(decimal.as_bytes(writer)), options)
        records = records.withColumn(_BARE, when(length("value") > _LONG_VALUE_BYTES, bare))
        is_endless = is_any(col(_BARE), declared, decimal.is_decimal, lambda d, _: length(d) > _LONG_DECIMAL_BYTES)
        value = when(~is_endless, value)
    wider = decimal.as_avro_has_it(writer)
    end = {"name": END, "type": {"type": "fixed", "name": f"{END}_{mark}", "size": _MARK_BYTES}}
    marked = json.dumps({**wider, "fields": [*wider["fields"], end]})
    decoded = records.withColumn(_DECODED, parse(concat(value, expr(f"X'{mark}'")), marked, options))
    is_bad = expr(f"NOT ({_DECODED}.{END} <=> X'{mark}')")
    # Nor does it look whether a text is one, and no sink could take another.
    is_bad |= is_any(col(_DECODED), declared, _is_text, lambda text, _: ~is_valid_utf8(text))
    is_bad |= is_any(col(_DECODED), declared, decimal.is_decimal, decimal.does_not_fit)
    return decoded, _declared(col(_DECODED), declared, decimal.is_decimal), is_bad


def _is_text(type_: DataType) -> bool:
    from pyspark.sql.types import StringType

    return isinstance(type_, StringType)


def _declared(read: Column, schema: StructType, is_wider: IsWanted) -> Column:
    """The columns of the schema out of what was read by wider types, and as they come out of Spark's readers, which keep nobody's NOT NULL."""
    from pyspark.sql.functions import struct

    taken = []
    for field in schema.fields:
        column, type_ = read[field.name], field.dataType
        if has(type_, is_wider):
            column = column.try_cast(rebuilt(type_, lambda inner: inner))
        taken.append(column.alias(field.name))
    return struct(*taken)


def columns(
    decoded: DataFrame,
    struct: Column,
    is_bad: Column,
    names: Sequence[str],
    *,
    is_strict: bool,
    has_metadata: bool,
    has_headers: bool,
) -> DataFrame:
    """The decoded columns, the record's own, and the text of what cannot be decoded; if `is_strict`, that is an error."""
    from pyspark.sql.functions import col, when

    beside: list[Any] = []
    if has_metadata:
        beside += [col(field).alias(name) for field, name in METADATA.items()]
    if has_headers:
        beside.append(col("headers").alias(HEADERS))
    if not is_strict:
        return decoded.select(
            *[struct[name].alias(name) for name in names], *beside, when(is_bad, _told()).alias(CORRUPT)
        )
    looked_at = decoded.select(_refusal(is_bad).alias(_GOOD), struct.alias(_DECODED), *beside)
    kept = [name for name in looked_at.columns if name not in (_GOOD, _DECODED)]
    return looked_at.where(_GOOD).select(*[col(_DECODED)[name].alias(name) for name in names], *kept)


def _refusal(is_bad: Column) -> Column:
    """True, or an error that tells of the record.

    It goes by something that Spark cannot know beforehand, and so cannot move. A filter that Spark may move it puts below what is read, where each
    mention of a value decodes the record once more; and what is no filter it leaves out if the pipeline asks for other columns only.
    """
    from pyspark.sql.functions import concat, lit, raise_error, spark_partition_id, when

    words = concat(lit("source kafka: a record cannot be decoded: "), _told())
    return when(is_bad, raise_error(words).cast("boolean")).otherwise(spark_partition_id() >= 0)


def _told() -> Column:
    """A record as JSON: where it stands, its key and its value; bytes that are no text in hexadecimal, and of long ones the beginning."""
    from pyspark.sql.functions import expr

    fields = ["topic", "partition", "offset", "timestamp"]
    for name, longest in _TOLD_MAX.items():
        text = f"CAST({name} AS STRING)"
        is_cut = f"IF(is_valid_utf8({text}), length({text}), length({name})) > {longest}"
        fields.append(f"IF(is_valid_utf8({text}), substring({text}, 1, {longest}), NULL) AS {name}")
        fields.append(f"IF(is_valid_utf8({text}), NULL, hex(substring({name}, 1, {longest}))) AS {name}_hex")
        fields.append(f"IF({is_cut}, TRUE, NULL) AS {name}_cut")
        fields.append(f"IF({is_cut}, length({name}), NULL) AS {name}_bytes")
    return expr(f"to_json(struct({', '.join(fields)}))")
