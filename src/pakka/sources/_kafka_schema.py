"""The schema of a topic's values: whether it is one, before anything is started."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pakka.errors import ConfigError
from pakka.sources._kafka_lookout import WHOSE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_JAVA_CLASS = re.compile(r"^:? *[\w.$]+(?:Exception|Error): *")


def avro_schema(text: str) -> tuple[str, list[str]]:
    """A schema that describes a record, as JSON, and the names of its fields."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{WHOSE}: the Avro schema is not JSON: {error}", hint="give the text of an .avsc file, or its path"
        ) from error
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if not fields or not isinstance(fields, list):
        raise ConfigError(
            f"{WHOSE}: the Avro schema is not of a record with fields, and columns are made of those",
            hint='begin it with {"type": "record", "name": ..., "fields": [...]}; for other values take `format: raw`',
        )
    nameless = [field for field in fields if not isinstance(field, dict) or not isinstance(field.get("name"), str)]
    if nameless:
        raise ConfigError(
            f"{WHOSE}: the Avro schema has a field without a name: {json.dumps(nameless[0])}",
            hint='write each as {"name": ..., "type": ...}',
        )
    return json.dumps(schema), [field["name"] for field in fields]


@contextmanager
def understood(kind: str, hint: str) -> Iterator[None]:
    """What Spark or Avro cannot make columns of is wrong in the configuration."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"{WHOSE}: the {kind} schema is not understood: {_reason(error)}", hint=hint) from error


def _reason(error: Exception) -> str:
    """The first line that says something."""
    for line in str(error).splitlines():
        words = _JAVA_CLASS.sub("", line).strip()
        if words and "An error occurred while calling" not in words:
            return words.split("due to data type mismatch: ")[-1]
    return type(error).__name__


def check_cases(
    spark: SparkSession, type_: DataType, is_looked_into: Callable[[DataType], bool], where: str = ""
) -> None:
    """Refuse two fields of one record that Spark would take for one, in the type and in what it has inside that is looked into."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    does_case_count = spark.conf.get("spark.sql.caseSensitive") == "true"
    inside: list[tuple[str, DataType]] = []
    if isinstance(type_, StructType):
        known: dict[str, str] = {}
        for name in type_.names:
            key = name if does_case_count else name.lower()
            if key in known:
                other = known[key]
                raise ConfigError(
                    f"{WHOSE}: the schema has the fields `{where}{other}` and `{where}{name}`, which Spark takes for one",
                    hint="name one of them otherwise (of Avro only the order counts), or set `spark.sql.caseSensitive: true` under `spark:`",
                )
            known[key] = name
        inside = [(f"{where}{field.name}.", field.dataType) for field in type_.fields]
    elif isinstance(type_, ArrayType):
        inside = [(where, type_.elementType)]
    elif isinstance(type_, MapType):
        inside = [(where, type_.valueType)]
    for path, inner in inside:
        if is_looked_into(inner):
            check_cases(spark, inner, is_looked_into, path)
