"""JSON values as they are, or not at all. Spark changes some without a word: it rounds a decimal to the places that are declared, makes -56 of a TINYINT of 200,
takes a number for seconds since 1970, and `10:00` for today.

So these are read by a wider type, and a record is no good of which a value is not what is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pakka.sources._kafka_type import rebuilt

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_DIGITS_MAX = 38
"""Of a decimal of Spark's."""
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FIRST_HALF = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_SECOND_HALF = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"{_FIRST_HALF}(?!{_SECOND_HALF})|(?<!{_FIRST_HALF}){_SECOND_HALF}"


def is_changed(type_: DataType) -> bool:
    """Whether Spark may make another value of one of this type."""
    from pyspark.sql.types import ByteType, DateType, DecimalType, TimestampType

    return isinstance(type_, ByteType | DateType | DecimalType | TimestampType)


def wider(type_: DataType) -> DataType:
    """The type as it is read. A decimal has as many places behind the point as it can have beside the digits before it."""
    from pyspark.sql.types import ByteType, DateType, DecimalType, ShortType, StringType, TimestampType

    def of(inner: DataType) -> DataType:
        if isinstance(inner, DecimalType):
            return DecimalType(_DIGITS_MAX, _DIGITS_MAX - inner.precision + inner.scale)
        if isinstance(inner, DateType | TimestampType):
            return StringType()
        return ShortType() if isinstance(inner, ByteType) else inner

    return rebuilt(type_, of)


def does_not_fit(column: Column, type_: DataType) -> Column:
    """Whether what was read is not of the declared type, or not only."""
    from pyspark.sql.types import DateType, TimestampType

    if isinstance(type_, DateType | TimestampType):
        return column.isNotNull() & ~(column.rlike(_DATE) & column.try_cast(type_).isNotNull())
    return ~column.try_cast(type_).eqNullSafe(column)


def has_half_a_character(value: Column) -> Column:
    r"""Whether JSON has half of a character that UTF-16 writes as two, such as `\ud800`. Spark makes a question mark of it."""
    from pyspark.sql.functions import lit, replace

    # Of two backslashes the second is a character, and begins nothing.
    return value.contains("\\u") & replace(value, lit("\\\\"), lit("//")).rlike(_HALF)
