"""What SQLite can hold: the form of each Arrow column in a SQLite table, exact or refused.

SQLite has five kinds of values, and a column's declared type only leans towards one of them (its affinity): a number
that meets a TEXT column becomes text, '007' that meets a NUMERIC column becomes 7, NaN becomes NULL. None of that may
happen to a user's rows, so values are put into their final form on the executors, before they are staged, and a column
whose affinity would change them is refused.

Arrow's functions are imported where a type needs them. Text and 64-bit integers, all that an audit writes, need none, and
the import takes longer than that of Arrow's own library.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from pakka.errors import SchemaError
from pakka.model.id import nearest
from pakka.sinks._columns import Place
from pakka.sinks._spool import no_rows

_VALUE_BYTES_MAX = 1_000_000_000
"""SQLite's own limit for one value."""
_COLUMNS_MAX = 2000
"""SQLite's own limit for one table."""
_DAY_FIRST, _DAY_LAST = -719162, 2932896
"""0001-01-01 and 9999-12-31 as days: what fits into four digits, so that text sorts as time does."""
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MOMENT = {b"pakka": b"moment"}
"""Marks text that is a date or a time, and so can never be taken for a number."""

_ACCEPTS = {
    "INTEGER": {"INTEGER", "NUMERIC", "BLOB"},
    "REAL": {"REAL", "BLOB"},
    "TEXT": {"TEXT", "BLOB"},
    "MOMENT": {"TEXT", "BLOB", "NUMERIC"},
    "BLOB": {"BLOB", "NUMERIC"},
    "NULL": {"INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC"},
}
"""Which affinities leave a kind of value exactly as it is."""


def quoted(name: str) -> str:
    """An identifier as SQL, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def fold(name: str) -> str:
    """A name as SQLite compares it: ASCII letters only, so that `Id` is `id`, and `É` is not `é`."""
    return name.encode().lower().decode()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that exists."""

    name: str
    declared: str
    is_not_null: bool

    @property
    def affinity(self) -> str:
        """SQLite's own five rules, in its own order."""
        declared = self.declared.upper()
        if "INT" in declared:
            return "INTEGER"
        if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
            return "TEXT"
        if "BLOB" in declared or not declared:
            return "BLOB"
        if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
            return "REAL"
        return "NUMERIC"


def kind_of(field: pa.Field) -> str:
    """The kind of a column that has been encoded."""
    if pt.is_null(field.type):
        return "NULL"
    if pt.is_int64(field.type):
        return "INTEGER"
    if pt.is_float64(field.type):
        return "REAL"
    if pt.is_binary(field.type) or pt.is_large_binary(field.type):
        return "BLOB"
    return "MOMENT" if field.metadata == _MOMENT else "TEXT"


def declared_type(field: pa.Field) -> str:
    """What a column is declared as in a table that pakka makes."""
    return {"MOMENT": "TEXT", "NULL": ""}.get(kind := kind_of(field), kind)


def check_columns(place: Place, columns: Iterable[Column], schema: pa.Schema) -> None:
    """Refuse encoded rows that the table cannot take as they are. SQLite does not tell `Id` from `id`."""
    have = {fold(c.name): c for c in columns}
    rows = {fold(f.name): f for f in schema}
    for name, field in rows.items():
        if name not in have:
            raise place.refuse(
                f"{place} has no column `{field.name}`, and the rows have one ({declared_type(field) or 'NULL'}); "
                f"{nearest(field.name, (c.name for c in have.values()))}",
                hint="add it with ALTER TABLE, or leave it out with `select`",
            )
        column = have[name]
        if column.affinity not in _ACCEPTS[kind_of(field)]:
            raise place.refuse(
                f"column `{column.name}` of {place} is declared {column.declared or 'without a type'}, and the rows have "
                f"{declared_type(field)}, which SQLite would convert",
                hint=f"cast it in `select`, or declare the column {declared_type(field)}",
            )
    for name, column in have.items():
        if name not in rows:
            raise place.refuse(
                f"{place} has a column `{column.name}` ({column.declared or 'no type'}) that the rows lack; "
                f"{nearest(column.name, (f.name for f in rows.values()))}",
                hint="add it with `select`, or write to another table",
            )


class RowEncoder:
    """Puts rows into the form in which SQLite stores them, or refuses them, naming the column."""

    def __init__(self, place: Place, schema: pa.Schema, not_null: Iterable[str] = ()) -> None:
        self.place = place
        self.not_null = {fold(name) for name in not_null}
        names = [fold(name) for name in schema.names]
        double = next((name for name in schema.names if names.count(fold(name)) > 1), None)
        if double is not None:
            raise place.refuse(
                f"the rows have column `{double}` twice, and SQLite does not tell upper from lower case",
                hint="rename one of them with `select`",
            )
        if not 0 < len(names) <= _COLUMNS_MAX:
            raise place.refuse(
                f"the rows have {len(names)} columns, and a SQLite table has from 1 to {_COLUMNS_MAX}",
                hint="choose columns with `select`",
            )
        if any("\0" in name for name in names):
            raise place.refuse("a column's name has a NUL character", hint="rename it with `select`")
        self.encoders = [self._encoder(field) for field in schema]
        self.schema = self(no_rows(schema)).schema
        """The schema of encoded rows."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays, fields = [], []
        for field, array, encode in zip(batch.schema, batch.columns, self.encoders, strict=True):
            if array.null_count and fold(field.name) in self.not_null:
                raise self._refuse(field, f"{array.null_count} nulls, which its table refuses", "add a `not_null` rule")
            encoded = encode(array)
            if encoded.nbytes > _VALUE_BYTES_MAX:
                self._check_length(field, encoded)
            arrays.append(encoded)
            is_moment = pt.is_temporal(field.type)
            fields.append(pa.field(field.name, encoded.type, metadata=_MOMENT if is_moment else None))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _encoder(self, field: pa.Field) -> Callable[[pa.Array], pa.Array]:
        encode = _plain_encoder(field.type)
        if encode is None:
            raise self._refuse(field, f"type {field.type}, which SQLite cannot hold", "cast it in `select`")

        def checked(array: pa.Array) -> pa.Array:
            try:
                return encode(array)
            except (ValueError, OverflowError) as error:
                raise self._refuse(field, str(error), "cast it in `select`, or keep such rows out by a rule") from error

        return checked

    def _check_length(self, field: pa.Field, array: pa.Array) -> None:
        import pyarrow.compute as pc

        longest = pc.max(pc.binary_length(array)).as_py() if not pt.is_primitive(array.type) else 0
        if longest > _VALUE_BYTES_MAX:
            raise self._refuse(
                field,
                f"a value of {longest} bytes, and SQLite takes {_VALUE_BYTES_MAX}",
                "keep such rows out by a rule",
            )

    def _refuse(self, field: pa.Field, what: str, hint: str) -> SchemaError:
        return self.place.refuse(f"column `{field.name}` for {self.place} has {what}", hint=hint)


def _plain_encoder(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    """How a column of this type is stored; None if it cannot be. A value that cannot be stored is a ValueError."""
    if pt.is_dictionary(kind):
        inner = _plain_encoder(kind.value_type)
        return inner and (lambda array: inner(array.cast(kind.value_type)))
    if (
        pt.is_null(kind)
        or pt.is_int64(kind)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_string(kind)
        or pt.is_large_string(kind)
    ):
        return lambda array: array
    if pt.is_boolean(kind) or pt.is_integer(kind):
        return lambda array: array.cast(pa.int64())
    if pt.is_floating(kind):
        return _encode_float
    if pt.is_decimal(kind):
        return _encode_decimal
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        return _encode_moment
    if pt.is_fixed_size_binary(kind):
        return lambda array: array.cast(pa.binary())
    if pt.is_nested(kind) and is_in_json(kind):
        return encode_nested
    return None


def _encode_float(array: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    array = array.cast(pa.float64())
    if pc.any(pc.is_nan(array)).as_py():
        raise ValueError("NaN, which SQLite stores as NULL")
    return array


def _encode_decimal(array: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    text = array.cast(pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([None if v is None else format(v, "f") for v in array.to_pylist()], pa.string())
    return text


def _encode_moment(array: pa.Array) -> pa.Array:
    """ISO 8601. An instant is given in UTC, with `Z`, whatever the session's time zone; a wall time has no zone."""
    import pyarrow.compute as pc

    kind = array.type
    if pt.is_time(kind):
        return array.cast(pa.string())
    per_day = 1 if pt.is_date32(kind) else _PER_DAY[kind.unit if pt.is_timestamp(kind) else "ms"]
    ticks = array.cast(pa.int32() if pt.is_date32(kind) else pa.int64())
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is not None and not (
        _DAY_FIRST * per_day <= ends["min"] and ends["max"] < (_DAY_LAST + 1) * per_day
    ):
        raise ValueError("a year outside 1 to 9999")
    if not pt.is_timestamp(kind):
        return array.cast(pa.string())
    # Through the bare number: Arrow's own way would need a time zone database on every machine.
    text = ticks.cast(pa.timestamp(kind.unit)).cast(pa.string())
    return pc.binary_join_element_wise(text, "Z", "") if kind.tz is not None else text


def encode_nested(array: pa.Array) -> pa.Array:
    """JSON: a struct is an object, a list an array, a map an array of pairs; times and decimals are text as above."""
    return pa.array([None if value is None else _to_json(value) for value in array.to_pylist()], pa.string())


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_text_in_json)


def _text_in_json(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ", "microseconds") + "Z"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    return str(value.isoformat())


def is_in_json(kind: pa.DataType) -> bool:
    """Whether JSON has an exact form for every value of this type."""
    if pt.is_struct(kind):
        return all(is_in_json(field.type) for field in kind)
    if pt.is_map(kind):
        return is_in_json(kind.key_type) and is_in_json(kind.item_type)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return is_in_json(kind.value_type)
    if pt.is_timestamp(kind):
        return bool(kind.unit != "ns")
    simple = (pt.is_null, pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_string, pt.is_large_string, pt.is_decimal)
    return any(test(kind) for test in (*simple, pt.is_date))
