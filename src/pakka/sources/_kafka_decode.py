"""From Kafka's records to columns. A record that cannot be decoded becomes text that says where it stands in Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pakka.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt_record"
"""Where the text of a record goes that cannot be decoded."""
METADATA = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp", "key": "_key"}
"""The record's own fields, and the columns that they are beside the decoded ones."""
HEADERS = "_headers"
_DECODED = "_pakka_decoded"
_END = "_pakka_end"
_END_HEX = b"pakkaEND".hex()
"""What stands behind an Avro value while it is read."""
_RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


def raw(records: DataFrame, has_headers: bool) -> DataFrame:
    """Spark's own columns."""
    return records.select(*_RAW, *(["headers"] if has_headers else []))


def from_json(records: DataFrame, schema: StructType) -> tuple[DataFrame, Column, Column]:
    """The records with what was decoded beside them, the struct that holds it, and the condition under which a record is no good.

    Spark reads one JSON document and passes over all that follows it. So a value is read as a field with another one behind it:
    what follows the document then breaks it, or takes the other field's place.
    """
    from pyspark.sql.functions import col, expr
    from pyspark.sql.functions import from_json as parse
    from pyspark.sql.types import BooleanType, StringType, StructType

    whole = StructType().add("value", schema).add("end", BooleanType()).add(CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    wrapped = expr("""concat('{"value":', CAST(value AS STRING), ',"end":true}')""")
    decoded = records.withColumn(_DECODED, parse(wrapped, whole, options))
    # Spark puts a replacement character for bytes that are no text.
    is_bad = expr(
        f"value IS NULL OR NOT is_valid_utf8(CAST(value AS STRING)) OR {_DECODED}.value IS NULL OR {_DECODED}.end IS NULL "
        f"OR {_DECODED}.{CORRUPT} IS NOT NULL"
    )
    return decoded, col(_DECODED)["value"], is_bad


def from_avro(records: DataFrame, schema: str) -> tuple[DataFrame, Column, Column]:
    """As `from_json`. Of a record that it cannot read Spark makes a row of nulls, which a record may be by right, and it passes
    over bytes that follow one. So a value is read with known bytes behind it, as one more field, which must come out as they are.
    """
    from pyspark.sql.avro.functions import from_avro as parse
    from pyspark.sql.functions import col, expr

    writer = json.loads(schema)
    end = {"name": _END, "type": {"type": "fixed", "name": _END, "size": len(_END_HEX) // 2}}
    marked = json.dumps({**writer, "fields": [*writer["fields"], end]})
    decoded = records.withColumn(_DECODED, parse(expr(f"concat(value, X'{_END_HEX}')"), marked, {"mode": "PERMISSIVE"}))
    return decoded, col(_DECODED), expr(f"NOT ({_DECODED}.{_END} <=> X'{_END_HEX}')")


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
    from pyspark.sql.functions import col, expr, raise_error, when

    told = _told()
    taken: list[Any] = [struct[name].alias(name) for name in names]
    if has_metadata:
        taken += [col(field).alias(name) for field, name in METADATA.items()]
    if has_headers:
        taken.append(col("headers").alias(HEADERS))
    if not is_strict:
        return decoded.select(*taken, when(is_bad, told).alias(CORRUPT))
    words = expr("concat('source kafka: a record cannot be decoded: ', _pakka_told)")
    refused = decoded.withColumn("_pakka_told", told).where(
        when(is_bad, raise_error(words).cast("boolean")).otherwise(True)
    )
    return refused.select(*taken)


def _told() -> Column:
    """A record as JSON: where it stands, its key and its value; bytes that are no text in hexadecimal."""
    from pyspark.sql.functions import expr

    fields = ["topic", "partition", "offset", "timestamp"]
    for name in ("key", "value"):
        text = f"CAST({name} AS STRING)"
        fields.append(f"IF(is_valid_utf8({text}), {text}, NULL) AS {name}")
        fields.append(f"IF(is_valid_utf8({text}), NULL, hex({name})) AS {name}_hex")
    return expr(f"to_json(struct({', '.join(fields)}))")


def avro_schema(whose: str, text: str) -> tuple[str, list[str]]:
    """A schema that describes a record, as JSON, and the names of its fields."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{whose}: the Avro schema is not JSON: {error}", hint="give the text of an .avsc file, or its path"
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record" or not schema.get("fields"):
        raise ConfigError(
            f"{whose}: the Avro schema is not of a record with fields, and columns are made of those",
            hint='begin it with {"type": "record", "name": ..., "fields": [...]}; for other values take `format: raw`',
        )
    return json.dumps(schema), [str(field["name"]) for field in schema["fields"]]
