"""Decimals of up to 18 digits cross from the JVM as the whole numbers they are kept as, and become decimals again in the task.

Spark's Arrow writer makes two objects of every decimal, which for two columns of eight is a fifth of the JVM's time; a
number of 64 bits is one store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

_LONG_DIGITS = 18
"""Up to here Spark keeps a decimal in a long."""


def unscaled(columns: Sequence[Column], schema: StructType, spark: SparkSession) -> list[Column]:
    """The columns as they cross; `schema` says what they are."""
    return [
        _unscaled(column, spark) if _is_small(field.dataType) else column
        for column, field in zip(columns, schema.fields, strict=True)
    ]


def restored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that has crossed, with the decimals of `schema`. The other columns are left as they came."""
    columns = [
        _restored(column, field.type) if pa.types.is_decimal(field.type) and column.type == pa.int64() else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_small(kind: object) -> bool:
    from pyspark.sql.types import DecimalType

    return isinstance(kind, DecimalType) and kind.precision <= _LONG_DIGITS


def _unscaled(column: Column, spark: SparkSession) -> Column:
    """SQL has no word for it, though Spark's own sums of decimals use it."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    given: Any = column
    session: Any = spark
    sql = session._jvm.org.apache.spark.sql
    inner = sql.classic.ExpressionUtils.expression(given._jc)
    return ClassicColumn(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.UnscaledValue(inner)))


def _restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """128 bits, the lower half first; what is under a null is never looked at."""
    end = column.offset + len(column)
    is_valid, numbers = column.buffers()
    low = np.frombuffer(numbers, np.int64, end)
    halves = np.empty((end, 2), np.int64)
    halves[:, 0] = low
    np.right_shift(low, 63, out=halves[:, 1])
    return pa.Array.from_buffers(kind, len(column), [is_valid, pa.py_buffer(halves)], offset=column.offset)
