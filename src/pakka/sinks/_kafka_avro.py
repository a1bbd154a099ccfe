"""Rows as Avro, a column at a time: the bytes of each row, without a schema before them.

fastavro reads the schema; its writer takes rows one by one as Python dicts, 29 us a row of 8 columns against 2.3 us here. What it
makes of the bytes is what the tests compare with.

Avro is exact or refused: a column fits the type of its field without a loss, or the sink does not open; a value that does not
fit (a long that is no int, a null where none may be) is a ValueError.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from fastavro.schema import SchemaParseException

from pakka.sinks import _avro_bytes as avro
from pakka.sinks._numpy import numbers_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}

Schema = Any
"""An Avro schema as JSON has it: a name, an object, or a list for a union."""
Encode = Callable[[pa.Array], pa.Array]
"""The bytes of every value of a column. A value that does not fit is a ValueError."""


class MisfitError(ValueError):
    """A column does not fit the schema, whatever its values are."""

    def __init__(self, column: str, what: str) -> None:
        super().__init__(what)
        self.column = column


class AvroSchema(NamedTuple):
    """A record of Avro, and the types that its fields name."""

    record: Mapping[str, Any]
    named: Mapping[str, Schema]

    @classmethod
    def parse(cls, text: str) -> AvroSchema:
        """Of the text of an .avsc file; a ValueError says what is wrong with it."""
        named: dict[str, Schema] = {}
        try:
            parsed = fastavro.parse_schema(json.loads(text), named)
        except (SchemaParseException, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"it is no Avro schema: {error}") from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ValueError("it is the schema of no record, and a row needs one")
        return cls(parsed, named)

    @classmethod
    def derived(cls, schema: pa.Schema) -> AvroSchema:
        """The schema that fits these columns: every field may be null, since Spark's word for it that none is does not hold."""
        return cls.parse(json.dumps(_record("row", list(schema))))


class AvroEncoder:
    """Encodes rows by a schema, whose fields are matched with columns by name."""

    def __init__(self, columns: pa.Schema, schema: AvroSchema) -> None:
        self.parts = _fields(list(columns), schema.record, schema.named)

    def __call__(self, rows: pa.RecordBatch, encode: Callable[[str, pa.Array, Encode], pa.Array]) -> pa.Array:
        """`encode` is asked to call what it is given, and to say which row it is that does not fit."""
        made = [
            avro.repeated(part, rows.num_rows) if isinstance(part, bytes) else encode(name, rows.column(name), part)
            for name, part in self.parts
        ]
        return avro.joined(*made) if made else avro.repeated(b"", rows.num_rows)


# The schema of columns.


def _record(name: str, fields: Sequence[pa.Field]) -> dict[str, Any]:
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise MisfitError(field.name, "its name is none in Avro: letters of ASCII, digits and `_`")
    made = []
    for field in fields:
        try:
            made.append({"name": field.name, "type": _nullable(f"{name}.{field.name}", field.type), "default": None})
        except MisfitError as error:
            raise MisfitError(field.name, str(error)) from error
    return {"type": "record", "name": name, "fields": made}


def _nullable(name: str, kind: pa.DataType) -> Schema:
    inner = _type(name, kind)
    return inner if inner == "null" else ["null", inner]


def _type(name: str, kind: pa.DataType) -> Schema:
    if pt.is_dictionary(kind):
        return _type(name, kind.value_type)
    if pt.is_struct(kind):
        return _record(name, list(kind))
    if pt.is_map(kind) and _is_string(kind.key_type):
        return {"type": "map", "values": _nullable(name, kind.item_type)}
    if _is_list(kind):
        return {"type": "array", "items": _nullable(name, kind.value_type)}
    if pt.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pt.is_timestamp(kind):
        word = "timestamp" if kind.tz is not None else "local-timestamp"
        return {"type": "long", "logicalType": f"{word}-{'millis' if kind.unit in ('s', 'ms') else 'micros'}"}
    for test, schema in _PLAIN:
        if test(kind):
            return schema
    raise MisfitError(name, f"Avro has no type for {kind}")


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


_PLAIN: list[tuple[Callable[[pa.DataType], bool], Schema]] = [
    (pt.is_null, "null"),
    (pt.is_boolean, "boolean"),
    (lambda kind: pt.is_int32(kind) or (pt.is_integer(kind) and kind.bit_width < 32), "int"),
    (lambda kind: pt.is_int64(kind) or pt.is_uint32(kind), "long"),
    (lambda kind: pt.is_float16(kind) or pt.is_float32(kind), "float"),
    (pt.is_float64, "double"),
    (_is_string, "string"),
    (_is_bytes, "bytes"),
    (pt.is_date, {"type": "int", "logicalType": "date"}),
    (pt.is_time32, {"type": "int", "logicalType": "time-millis"}),
    (pt.is_time64, {"type": "long", "logicalType": "time-micros"}),
]


# How a column is encoded by a schema.


def _fields(
    columns: Sequence[pa.Field], record: Mapping[str, Any], named: Mapping[str, Schema]
) -> list[tuple[str, Encode | bytes]]:
    """For each field of the schema its column and how to encode it, or the bytes of its default."""
    kinds = {column.name: column.type for column in columns}
    fields = {field["name"]: field for field in record["fields"]}
    for name in kinds:
        if name not in fields:
            raise MisfitError(name, "the schema has no field of this name")
    parts: list[tuple[str, Encode | bytes]] = []
    for name, field in fields.items():
        if name in kinds:
            try:
                parts.append((name, _fit(kinds[name], field["type"], named)))
            except ValueError as error:
                raise MisfitError(name, str(error)) from error
        elif "default" in field:
            parts.append((name, _default(field, named)))
        else:
            raise MisfitError(name, "the rows lack it, and its field has no default")
    return parts


def _default(field: Mapping[str, Any], named: Mapping[str, Schema]) -> bytes:
    """The bytes of a field's default, which fastavro makes as those of a record that has nothing else."""
    kind, value = field["type"], field["default"]
    # A union's is of its first type.
    branch, kind = (avro.varint(0), kind[0]) if isinstance(kind, list) else (b"", kind)
    whole = named.get(kind, kind) if isinstance(kind, str) else kind
    name = whole if isinstance(whole, str) else whole["type"]
    alone = {"type": "record", "name": "alone", "fields": [{"name": "it", "type": _alone(kind, named, set())}]}
    buffer = io.BytesIO(branch)
    buffer.seek(len(branch))
    try:
        if name in ("bytes", "fixed"):
            # A schema has them as text, a character a byte.
            value = value.encode("latin-1")
        if name == "int" and not -(2**31) <= value < 2**31:
            raise ValueError(f"{value} is no int")
        fastavro.schemaless_writer(buffer, alone, {"it": value})
    except (ValueError, TypeError) as error:
        raise MisfitError(field["name"], f"the rows lack it, and its default cannot be written: {error}") from error
    return buffer.getvalue()


def _alone(schema: Schema, named: Mapping[str, Schema], seen: set[str]) -> Schema:
    """The same schema with the definition of every type in it, at its first place."""
    if isinstance(schema, list):
        return [_alone(branch, named, seen) for branch in schema]
    whole = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(whole, str) or whole.get("name") in seen:
        return whole if isinstance(whole, str) else whole["name"]
    seen |= {whole["name"]} if "name" in whole else set()
    made = {key: value for key, value in whole.items() if not key.startswith("__")}
    for key in {"items", "values"} & set(made):
        made[key] = _alone(made[key], named, seen)
    if "fields" in made:
        made["fields"] = [{**field, "type": _alone(field["type"], named, seen)} for field in made["fields"]]
    return made


def _fit(kind: pa.DataType, schema: Schema, named: Mapping[str, Schema]) -> Encode:
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if pt.is_dictionary(kind):
        inner = _fit(kind.value_type, schema, named)
        return lambda array: inner(array.dictionary_decode())
    if isinstance(schema, list):
        return _fit_union(kind, schema, named)
    return _not_null(_fit_one(kind, schema if isinstance(schema, dict) else {"type": schema}, named))


def _fit_union(kind: pa.DataType, schema: Sequence[Schema], named: Mapping[str, Schema]) -> Encode:
    rest = [branch for branch in schema if branch != "null"]
    if len(rest) != 1:
        raise ValueError("its field is a union of several types, and a column has one")
    is_there = avro.varint(schema.index(rest[0]))
    inner = None if pt.is_null(kind) else _fit(kind, rest[0], named)
    if "null" not in schema:
        return lambda array: avro.joined(avro.repeated(is_there, len(array)), _checked(inner, array))
    is_null = avro.varint(schema.index("null"))

    def encode(array: pa.Array) -> pa.Array:
        there = array.drop_null()
        made = avro.joined(avro.repeated(is_there, len(there)), _checked(inner, there))
        return avro.spread(made, array, is_null) if array.null_count else made

    return encode


def _checked(encode: Encode | None, array: pa.Array) -> pa.Array:
    if encode is None:
        if len(array):
            raise ValueError("a null, and its field takes none")
        return avro.repeated(b"", 0)
    return encode(array)


def _not_null(encode: Encode) -> Encode:
    def checked(array: pa.Array) -> pa.Array:
        if array.null_count and not pt.is_null(array.type):
            raise ValueError("a null, and its field takes none")
        return encode(array)

    return checked


def _fit_one(kind: pa.DataType, schema: Mapping[str, Any], named: Mapping[str, Schema]) -> Encode:
    name, logical = str(schema["type"]), str(schema.get("logicalType", ""))
    if name == "record" and pt.is_struct(kind):
        return _struct_encoder(_fields(list(kind), schema, named))
    if name == "array" and _is_list(kind):
        return _list_encoder(_fit(kind.value_type, schema["items"], named))
    if name == "map" and pt.is_map(kind) and _is_string(kind.key_type):
        return _map_encoder(_fit(kind.item_type, schema["values"], named))
    if logical == "decimal" and pt.is_decimal(kind):
        return _decimal_encoder(schema)
    encode = _moment_encoder(kind, name, logical) or _plain_encoder(kind, schema, logical)
    if encode is None:
        words = f"{name} ({logical})" if logical else name
        raise ValueError(f"it does not fit Avro's {words}")
    return encode


def _plain_encoder(kind: pa.DataType, schema: Mapping[str, Any], logical: str) -> Encode | None:
    name = schema["type"]
    is_number = not re.fullmatch(r"date|decimal|(local-)?time(stamp)?-\w+", logical)
    if name == "null" and pt.is_null(kind):
        return lambda array: avro.repeated(b"", len(array))
    if name == "boolean" and pt.is_boolean(kind):
        return lambda array: avro.fixed(numbers_of(array.cast(pa.uint8())))
    if name in ("int", "long") and pt.is_integer(kind) and is_number:
        return _int_encoder(pa.int32() if name == "int" else pa.int64())
    if name in ("float", "double") and pt.is_floating(kind) and (name == "double" or kind.bit_width <= 32):
        arrow = pa.float32() if name == "float" else pa.float64()
        return lambda array: avro.fixed(numbers_of(array.cast(arrow)))
    if name == "string" and _is_string(kind):
        return _uuid_encoder if logical == "uuid" else avro.with_length
    if name == "bytes" and _is_bytes(kind) and is_number:
        return lambda array: avro.with_length(array.cast(pa.binary()) if pt.is_fixed_size_binary(kind) else array)
    if name == "enum" and _is_string(kind):
        return _enum_encoder(schema["symbols"])
    if name == "fixed" and _is_bytes(kind) and is_number:
        return _fixed_encoder(schema["size"])
    return None


def _moment_encoder(kind: pa.DataType, name: str, logical: str) -> Encode | None:
    """As the number that the logical type counts. A fraction that it does not count is refused, and not cut off."""
    if (name, logical) == ("int", "date") and pt.is_date(kind):
        return lambda array: avro.ints(array.cast(pa.date32()).cast(pa.int32()))
    word, _, rest = logical.rpartition("-")
    unit = _UNITS.get(rest)
    if unit is None:
        return None
    if word == "time" and pt.is_time(kind):
        to, number = (pa.time32("ms"), pa.int32()) if unit == "ms" else (pa.time64(unit), pa.int64())
        return lambda array: avro.ints(array.cast(to).cast(number))
    wanted = "timestamp" if pt.is_timestamp(kind) and kind.tz is not None else "local-timestamp"
    if word == wanted and pt.is_timestamp(kind):
        return lambda array: avro.ints(array.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64()))
    return None


def _int_encoder(kind: pa.DataType) -> Encode:
    return lambda array: avro.ints(array.cast(kind))


def _enum_encoder(symbols: Sequence[str]) -> Encode:
    known = pa.array(symbols, pa.large_string())

    def encode(array: pa.Array) -> pa.Array:
        found = pc.index_in(array.cast(pa.large_string()), known)
        if found.null_count:
            strange = array.filter(found.is_null())[0].as_py()
            raise ValueError(f"{strange[:60]!r}, which is none of the symbols of its field")
        return avro.ints(found)

    return encode


def _uuid_encoder(array: pa.Array) -> pa.Array:
    """Of a text that is none, readers would stop at the record."""
    is_uuid = pc.match_substring_regex(array, _UUID)
    if not pc.all(is_uuid).as_py() and len(array):
        strange = array.filter(pc.invert(is_uuid))[0].as_py()
        raise ValueError(f"{strange[:60]!r}, which is no UUID")
    return avro.with_length(array)


def _fixed_encoder(size: int) -> Encode:
    def encode(array: pa.Array) -> pa.Array:
        values = array.cast(pa.binary()) if pt.is_fixed_size_binary(array.type) else array
        lengths = pc.binary_length(values)
        if len(values) and not pc.all(pc.equal(lengths, pa.scalar(size, lengths.type))).as_py():
            raise ValueError(f"a value that has not the {size} bytes of its field")
        return values.cast(avro.BINARY)

    return encode


def _decimal_encoder(schema: Mapping[str, Any]) -> Encode:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > 76:
        raise ValueError(f"its field has {precision} digits, and a column at most 76")
    wide = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    size = schema["size"] if schema["type"] == "fixed" else None
    most = Decimal((0, (9,) * precision, -scale))

    def encode(array: pa.Array) -> pa.Array:
        # Where more places are wanted Arrow multiplies, and does not see each time that there is no room for the product: it gives another number.
        ends = pc.min_max(array).as_py()
        if ends["min"] is not None and (ends["min"] < -most or ends["max"] > most):
            raise ValueError(
                f"a decimal of more than the {precision - scale} digits that its field has before the point"
            )
        # A digit that would be cut off is an error of Arrow's.
        return avro.decimals(array.cast(wide), size)

    return encode


def _struct_encoder(parts: Sequence[tuple[str, Encode | bytes]]) -> Encode:
    def encode(array: pa.Array) -> pa.Array:
        children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        made = [
            avro.repeated(part, len(array)) if isinstance(part, bytes) else part(children[name]) for name, part in parts
        ]
        return avro.joined(*made) if made else avro.repeated(b"", len(array))

    return encode


def _list_encoder(item: Encode) -> Encode:
    return lambda array: avro.blocks(pc.list_value_length(array), item(pc.list_flatten(array)))


def _map_encoder(item: Encode) -> Encode:
    def encode(array: pa.Array) -> pa.Array:
        kind = array.type
        pairs = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        keys, values = pc.list_flatten(pairs).flatten()
        return avro.blocks(pc.list_value_length(pairs), avro.joined(avro.with_length(keys), item(values)))

    return encode
