"""What stands in a type of Spark's, however deep: in lists, maps and structs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


IsWanted = Callable[["DataType"], bool]


def has(type_: DataType, is_wanted: IsWanted) -> bool:
    """Whether there is such a type anywhere in it."""
    return any(is_wanted(inner) for inner in _inner(type_))


def is_any(column: Column, type_: DataType, is_wanted: IsWanted, is_so: Callable[[Column, DataType], Column]) -> Column:
    """Whether it is so of a value of such a type in it. It is not of one that is null."""
    from pyspark.sql.functions import coalesce, exists, lit, map_keys, map_values
    from pyspark.sql.types import ArrayType, MapType, StructType

    if is_wanted(type_):
        return coalesce(is_so(column, type_), lit(False))
    if isinstance(type_, ArrayType) and has(items := type_.elementType, is_wanted):
        return coalesce(exists(column, lambda item: is_any(item, items, is_wanted, is_so)), lit(False))
    parts: list[tuple[Column, DataType]] = []
    if isinstance(type_, StructType):
        parts = [(column[field.name], field.dataType) for field in type_.fields]
    if isinstance(type_, MapType):
        parts = [(map_keys(column), ArrayType(type_.keyType)), (map_values(column), ArrayType(type_.valueType))]
    found = lit(False)
    for part, inside in parts:
        if has(inside, is_wanted):
            found = found | is_any(part, inside, is_wanted, is_so)
    return found


def rebuilt(type_: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """The type with what is neither a list nor a map nor a struct changed. Keys of maps stay."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(type_, ArrayType):
        return ArrayType(rebuilt(type_.elementType, change))
    if isinstance(type_, MapType):
        return MapType(type_.keyType, rebuilt(type_.valueType, change))
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, rebuilt(field.dataType, change)) for field in type_.fields])
    return change(type_)


def _inner(type_: DataType) -> Iterator[DataType]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield type_
    if isinstance(type_, ArrayType):
        yield from _inner(type_.elementType)
    elif isinstance(type_, MapType):
        yield from _inner(type_.keyType)
        yield from _inner(type_.valueType)
    elif isinstance(type_, StructType):
        for field in type_.fields:
            yield from _inner(field.dataType)
