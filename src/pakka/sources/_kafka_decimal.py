"""Decimals of an Avro record as they are, or not at all. Of one that is declared with 18 digits or fewer Spark takes the lowest 64 bits, however many bytes it has.

So they are read with more digits than are declared, and a record is no good of which one does not fit what is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_LONG_DIGITS = 18
"""Up to which Spark's reader of Avro takes a decimal for a long."""
_LONG_BYTES = 8


def is_decimal(type_: DataType) -> bool:
    from pyspark.sql.types import DecimalType

    return isinstance(type_, DecimalType)


def as_avro_has_it(schema: Any) -> Any:
    """The Avro schema, with one digit more than Spark would take for a long where there may be more."""

    def wider(decimal: dict[str, Any]) -> dict[str, Any]:
        precision, scale, size = decimal.get("precision"), decimal.get("scale", 0), decimal.get("size", _LONG_BYTES + 1)
        # What is declared badly Avro takes for mere bytes.
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
            return decimal
        has_room = decimal["type"] == "bytes" or (type(size) is int and size > _LONG_BYTES)
        return {**decimal, "precision": _LONG_DIGITS + 1} if has_room and precision <= _LONG_DIGITS else decimal

    return _avro(schema, wider)


def as_bytes(schema: Any) -> Any:
    """The Avro schema, with decimals as the bytes that they are."""
    return _avro(schema, lambda d: {key: value for key, value in d.items() if key != "logicalType"})


def does_not_fit(column: Column, type_: DataType) -> Column:
    """Whether the decimal was read with more than is declared."""
    return ~column.try_cast(type_).eqNullSafe(column)


def _avro(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema, with each decimal in it changed."""
    if isinstance(schema, list):
        return [_avro(each, change) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # It may stand beside a type that is none, of a record or of the field itself, and means nothing there.
    if schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed"):
        return change(schema)
    inner = ("type", "items", "values", "fields")
    return {key: _avro(value, change) if key in inner else value for key, value in schema.items()}
