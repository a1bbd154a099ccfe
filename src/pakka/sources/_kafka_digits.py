"""JSON in which a decimal would hold Spark for minutes or hours: it writes out the zeros of an exponent, whatever the column can hold, and
reads a text of a million digits in the square of their number. A task that met one would be killed, begun again, and meet it again.
And a decimal of which Spark would make another: it takes the commas out of a text, and makes 123 of `1,23`.

A look at the text finds every value that may have one, and few others: a text such as `12e34567` may be good. So these few are read twice, first with
texts for decimals, and of what is still too much then nothing is read. Of a field that stands twice the first look sees the last value only, so there
it is no good; VARIANT, which refuses such, tells.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_LONG_CHARACTERS = 1000
"""Of a number the reader itself takes no more, and of a text of digits not either from here on."""
# A stranger may repeat what these look for a million times. So what is repeated in them is possessive: Java's matcher takes a frame of its stack for each
# turn of another group, and comes back to each turn.
# JSON may write any character with its number, and Java takes any digits there are.
_ESCAPED = r"\\u[0-9a-fA-F]{4}"
_E = (
    # The look ahead says the same as what follows it, and spares most letters the rest: it halves the time.
    rf"[eE\\](?![a-tv-zA-Z\s\"':_}}\]])(?:u00[46]5|(?<=(?:[\p{{Nd}}.]|{_ESCAPED})[eE]))"
    r"(?:[+-]|\\u002[bBdD])?"
)
"""Between the digits of a number and those of its exponent."""
_IN_TEXT = rf"(?:\p{{Nd}}|(?!\\u00[46]5){_ESCAPED}){{5,}}+(?=[\"'])"
"""The digits of an exponent, to the end of a text, if they are five or more: ten thousand zeros take no time. No e, so that nothing is looked at for each of many."""
_NUMBER = r"-?[0-9][0-9.]*+[eE][+-]?[0-9]{5,}+"
"""The same without quotes. It need not end well: the reader takes a number before it looks what follows."""
_BEFORE_NUMBER = r"[\s:,\[]"
_LONG_TEXT = rf"[\"'][+-]?(?:[\p{{Nd}}.]|{_ESCAPED}){{{_LONG_CHARACTERS}}}+"
_COMMA = (
    # The look back keeps the end of a text from being taken for the beginning of one, as in "x","y".
    rf"[\"'](?<=[\s:,\[][\"'])(?:[\p{{Nd}}.eE+-]|(?!\\u002[cC]){_ESCAPED})*+(?:,|\\u002[cC])(?:[\p{{Nd}}.,eE+-]|{_ESCAPED})*+[\"']"
)
"""A text of what numbers are written with, and a comma."""
_LIKE_COMMA = r",(?<=[\p{Nd}.eE+\-,\"'a-fA-F],)(?=[\p{Nd}.eE+\-,\\]|[\"'][\s,}\]])"
"""A comma between what it may have beside it there, for a quick look. Between two fields, or two words, it has something else."""
_ESCAPED_COMMA = r"\u002"
_MARK_FROM, _MARK_BELOW = 10**17, 10**18


def without_endless(value: Column, document: Column, schema: StructType) -> Column:
    """The JSON document, of the schema, or null if a decimal in it is too much for Spark, which none can hold, or has a comma.

    `value` is the part of it that a stranger has written.
    """
    from pyspark.sql.functions import from_json, length, lit, regexp_replace, to_json, try_parse_json, when
    from pyspark.sql.types import StructType

    texts = _texts(schema)
    if texts is None:
        return document
    assert isinstance(texts, StructType)
    is_like = value.rlike(f"{_E}(?:{_IN_TEXT}|[0-9]{{5}})")
    is_risky = (
        is_like & (value.rlike(f"{_E}{_IN_TEXT}") | value.rlike(f"{_BEFORE_NUMBER}{_NUMBER}"))
        | (length(value) > _LONG_CHARACTERS) & value.rlike(_LONG_TEXT)
        | (value.rlike(_LIKE_COMMA) | value.contains(_ESCAPED_COMMA)) & value.rlike(_COMMA)
    )
    # A number that is read as a text goes through a double, which has one name for many. So it is replaced by one that nobody knows before.
    mark = str(_MARK_FROM + secrets.randbelow(_MARK_BELOW - _MARK_FROM))
    marked = regexp_replace(document, lit(f"(?<={_BEFORE_NUMBER}){_NUMBER}"), lit(mark))
    read = to_json(from_json(marked, texts))
    is_bad = try_parse_json(document).isNull() | read.rlike(f'{mark}|{_E}{_IN_TEXT}(?!":)|{_LONG_TEXT}|{_COMMA}(?!:)')
    return when(is_risky & is_bad, None).otherwise(document)


def _texts(type_: DataType) -> DataType | None:
    """Texts where the type has decimals, and nothing else of it; None if it has none."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructField, StructType

    if isinstance(type_, DecimalType):
        return StringType()
    if isinstance(type_, ArrayType):
        items = _texts(type_.elementType)
        return ArrayType(items) if items is not None else None
    if isinstance(type_, MapType):
        values = _texts(type_.valueType)
        return MapType(type_.keyType, values) if values is not None else None
    if isinstance(type_, StructType):
        fields = [(field.name, _texts(field.dataType)) for field in type_.fields]
        kept = [StructField(name, inner) for name, inner in fields if inner is not None]
        return StructType(kept) if kept else None
    return None
