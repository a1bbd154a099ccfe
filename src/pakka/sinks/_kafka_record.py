"""Rows to the records of Kafka, a column at a time, on the executors.

What Kafka would refuse of a record it refuses when the record is sent, and that is after the decision, where an epoch can
no longer be aborted. So all of it is looked at here, before anything is prepared.

The columns of encoded rows, which lie in the spool: `topic` (dictionary of text; not there if the topic is fixed), `key` and
`value` (large binary), `partition` (int32), `timestamp` (int64, ms) and `headers` (list of key and value), of which
the last three are there only if the sink names a column for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.errors import SchemaError
from pakka.model.id import Binding, nearest
from pakka.sinks import _text
from pakka.sinks._kafka_limit import Gauge, Look, Refuser, culprit, first

if TYPE_CHECKING:
    from pakka.sinks._kafka_avro import AvroEncoder

BINARY = pa.large_binary()
TOPICS = pa.dictionary(pa.int32(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TICKS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a row becomes a record: which column is what. One of `topic` and `topic_column` is given."""

    format: Literal["json", "avro", "raw"]
    topic: str | None = None
    topic_column: str | None = None
    key: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    schema: str = ""
    """The text of an Avro schema; without it one is made that fits the columns."""
    max_record_bytes: int = 1_000_000
    """Of key, value and headers together with what Kafka adds, before compression."""

    @property
    def places(self) -> dict[str, str]:
        """The columns that say where a record goes and are no part of its value, each with the option that names it."""
        named = {
            "topic_column": self.topic_column,
            "partition": self.partition,
            "timestamp": self.timestamp,
            "headers": self.headers,
        }
        return {column: option for option, column in named.items() if column is not None}


class RecordEncoder:
    """Turns rows into records, or refuses them with `SchemaError`. One for each attempt at a slot: it counts the rows.

    `look` asks what a topic takes. Without it every topic is taken to be there and to have enough partitions.
    """

    def __init__(self, binding: Binding, recipe: Recipe, schema: pa.Schema, look: Look | None = None) -> None:
        self.recipe = recipe
        self.refuser = Refuser(binding)
        self.key = recipe.key or ("key" if recipe.format == "raw" and "key" in schema.names else None)
        self._check_columns(schema)
        self._check_types(schema)
        self._avro = self._open_avro(schema) if recipe.format == "avro" else None
        self.gauge = Gauge(self.refuser, recipe.topic, recipe.max_record_bytes, look)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            self._check_well_formed(field, column)
        recipe, made = self.recipe, dict[str, pa.Array]()
        if recipe.topic_column is not None:
            made["topic"] = self._topics(recipe.topic_column, batch.column(recipe.topic_column))
        made["key"] = pa.nulls(len(batch), BINARY) if self.key is None else self._keys(self.key, batch.column(self.key))
        made["value"] = self._values(batch)
        if recipe.partition is not None:
            made["partition"] = self._partitions(recipe.partition, batch.column(recipe.partition))
        if recipe.timestamp is not None:
            made["timestamp"] = self._timestamps(recipe.timestamp, batch.column(recipe.timestamp))
        if recipe.headers is not None:
            made["headers"] = self._headers(recipe.headers, batch.column(recipe.headers))
        records = pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
        self._check_limits(records, batch)
        self.refuser.rows += batch.num_rows
        return records

    def _check_columns(self, schema: pa.Schema) -> None:
        names = schema.names
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise self.refuser.plain(f"the rows have column `{double}` twice", "rename one of them with `select`")
        wanted = {**self.recipe.places, **({self.recipe.key: "key"} if self.recipe.key else {})}
        if self.recipe.format == "raw":
            wanted["value"] = "format: raw"
        for column, option in wanted.items():
            if column not in names:
                raise self.refuser.plain(
                    f"the rows have no column `{column}`, which `{option}` needs; {nearest(column, names)}",
                    "add it with `select`",
                )
        rest = [name for name in names if name not in self.recipe.places]
        if not rest:
            raise self.refuser.plain("no column is left for the value of the records", "add one with `select`")
        extra = set(rest) - {"value", self.key}
        if self.recipe.format == "raw" and extra:
            raise self.refuser.plain(
                f"column `{min(extra)}` has no place in a raw record, which is made of `value` and of a key",
                "leave it out with `select`, or use `format: json`",
            )

    def _check_types(self, schema: pa.Schema) -> None:
        recipe = self.recipe
        headers = "MAP<STRING, BINARY> or ARRAY<STRUCT<key: STRING, value: BINARY>>"
        rules: list[tuple[str | None, Callable[[pa.DataType], bool], str, str]] = [
            ("value" if recipe.format == "raw" else None, _is_bytes, "a raw value", "BINARY or STRING"),
            (self.key, _is_key, "a key", "STRING or BINARY"),
            (recipe.topic_column, _is_text, "a topic", "STRING"),
            (recipe.partition, pt.is_integer, "a partition", "INT"),
            (recipe.timestamp, _is_instant, "the time of a record", "TIMESTAMP"),
            (recipe.headers, _is_headers, "headers", headers),
        ]
        for name, test, role, wanted in rules:
            if name is not None and not test(schema.field(name).type):
                raise self.refuser.misfit(
                    schema.field(name), f"it cannot be {role}", f"cast it to {wanted} in `select`"
                )
        for field in self._value_fields(schema) if recipe.format != "raw" else ():
            is_unwritable = recipe.format == "json" and _text.unwritable(field.type) is not None
            if is_unwritable or _has_double(field.type):
                words = "JSON" if recipe.format == "json" else "Avro"
                raise self.refuser.misfit(field, f"{words} cannot hold it", "cast it in `select`, or leave it out")

    def _open_avro(self, schema: pa.Schema) -> AvroEncoder:
        # Late, because the other formats have no use for it.
        from pakka.sinks._kafka_avro import AvroEncoder, AvroSchema, MisfitError

        columns = pa.schema(self._value_fields(schema))
        try:
            avro = AvroSchema.parse(self.recipe.schema) if self.recipe.schema else AvroSchema.derived(columns)
            return AvroEncoder(columns, avro)
        except MisfitError as error:
            is_there = error.column in columns.names
            words = f" is {columns.field(error.column).type}, and" if is_there else ":"
            hint = "cast or rename it in `select`, leave it out, or change the schema"
            raise self.refuser.plain(f"column `{error.column}`{words} {error}", hint) from error
        except ValueError as error:
            raise self.refuser.plain(f"`schema`: {error}", "give the text of an .avsc file") from error

    def _value_fields(self, schema: pa.Schema) -> Sequence[pa.Field]:
        return [field for field in schema if field.name not in self.recipe.places]

    def _check_well_formed(self, field: pa.Field, column: pa.Array) -> None:
        """Text that is not UTF-8 passes through Spark and Arrow unnoticed. In a record it would be the reader's trouble."""
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            # A slice of lists has the elements of all of them below it, and a copy only its own.
            row = culprit(column, lambda part: part.take(pa.array(np.arange(len(part)))).validate(full=True))
            hint = "if the column holds bytes, cast it to BINARY, not to STRING"
            raise self.refuser.row(field.name, row, f"is malformed: {error}", hint) from error

    def _topics(self, name: str, column: pa.Array) -> pa.Array:
        if column.null_count:
            row = first(column.is_null()) or 0
            hint = "give each row the name of a topic, or keep it out by a `not_null` rule"
            raise self.refuser.row(name, row, "is null, and it is the topic", hint)
        topics = _decoded(column).dictionary_encode().cast(TOPICS)
        self.gauge.learn(name, topics)
        return topics

    def _keys(self, name: str, column: pa.Array) -> pa.Array:
        if _is_bytes(column.type):
            return _decoded(column).cast(BINARY)
        try:
            return _text.json_values(column).cast(BINARY)
        except ValueError as error:
            raise self._no_text(name, column, error) from error

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        if self.recipe.format == "raw":
            return _decoded(batch.column("value")).cast(BINARY)
        rows = batch.select([field.name for field in self._value_fields(batch.schema)])
        if self._avro is not None:
            return self._avro(rows, self._fitting)
        try:
            return _text.json_objects(rows).cast(BINARY)
        except _text.NoTextError as error:
            raise self._no_text(error.column, batch.column(error.column), error) from error

    def _fitting(self, name: str, column: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> pa.Array:
        try:
            return encode(column)
        except ValueError as error:
            hint = "keep such rows out by a rule, cast the column in `select`, or change the schema"
            raise self.refuser.row(name, culprit(column, encode), f"has {error}", hint) from error

    def _no_text(self, name: str, column: pa.Array, error: ValueError) -> SchemaError:
        hint = "keep such rows out by a rule, or cast the column in `select`"
        return self.refuser.row(name, culprit(column, _text.json_values), f"has {error}", hint)

    def _partitions(self, name: str, column: pa.Array) -> pa.Array:
        try:
            return column.cast(pa.int32())
        except pa.ArrowInvalid as error:
            row = culprit(column, lambda part: part.cast(pa.int32()))
            what = f"is {column[row]}, which is no number of a partition"
            raise self.refuser.row(name, row, what, "partitions begin at 0") from error

    def _timestamps(self, name: str, column: pa.Array) -> pa.Array:
        kind = column.type
        ticks = column.cast(pa.timestamp(kind.unit)).cast(pa.int64())
        if kind.unit == "s":
            # What would not fit into 64 bits as milliseconds becomes 0, and so is refused below.
            most = pa.scalar(np.iinfo(np.int64).max // 1000, pa.int64())
            is_in = pc.and_(pc.greater(ticks, pa.scalar(0, pa.int64())), pc.less_equal(ticks, most))
            ticks = pc.multiply(pc.if_else(is_in, ticks, pa.scalar(0, pa.int64())), pa.scalar(1000, pa.int64()))
        stamps = pc.divide(ticks, pa.scalar(_TICKS_PER_MS.get(kind.unit, 1), pa.int64()))
        # librdkafka understands 0 as now, and the broker refuses what is below it.
        row = first(pc.less_equal(stamps, pa.scalar(0, pa.int64())))
        if row is not None:
            hint = "a record's time lies after 1970-01-01; null leaves it to the producer"
            raise self.refuser.row(name, row, f"is {column[row].value} {kind.unit} from 1970, and it is the time", hint)
        return stamps

    def _headers(self, name: str, column: pa.Array) -> pa.Array:
        lists = column.cast(HEADERS)
        entries = pc.list_flatten(lists)
        keys = pc.if_else(entries.is_valid(), entries.field("key"), pa.scalar(None, pa.string()))
        entry = first(pc.fill_null(pc.match_substring(keys, "\0"), pa.scalar(True)))
        if entry is not None:
            row = pc.list_parent_indices(lists)[entry].as_py()
            what = "has NUL in the key of a header" if keys[entry].is_valid else "has a header without a key"
            raise self.refuser.row(name, row, what, "keep such headers out, or such rows by a rule")
        return lists

    def _check_limits(self, records: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        """Each record against its own topic."""
        if not records.num_rows:
            return
        self.gauge.check_size(records, batch)
        self.gauge.check_key(records, self.key or "key")
        if self.recipe.partition is not None:
            self.gauge.check_partition(records, self.recipe.partition)
        if self.recipe.timestamp is not None:
            self.gauge.check_timestamp(records, self.recipe.timestamp)


def _decoded(column: pa.Array) -> pa.Array:
    """A column of text or bytes without a dictionary, and without a fixed size, which some casts do not know."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.binary()) if pt.is_fixed_size_binary(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pt.is_string(kind) or pt.is_large_string(kind) or (pt.is_dictionary(kind) and _is_text(kind.value_type))
    )


def _is_bytes(kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    return bool(_is_text(kind) or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _is_key(kind: pa.DataType) -> bool:
    """A map has no order, so equal keys could have different texts, and land in different partitions."""
    return _text.unwritable(kind) is None and not _has_double(kind) and not _has_map(kind)


def _is_instant(kind: pa.DataType) -> bool:
    """A wall time is no instant until somebody says where the wall is."""
    return bool(pt.is_timestamp(kind) and kind.tz is not None)


def _is_headers(kind: pa.DataType) -> bool:
    if pt.is_map(kind):
        return _is_header(kind.key_type, kind.item_type)
    if not (pt.is_list(kind) or pt.is_large_list(kind)) or not pt.is_struct(kind.value_type):
        return False
    entry = {field.name: field.type for field in kind.value_type}
    return set(entry) == {"key", "value"} and _is_header(entry["key"], entry["value"])


def _is_header(key: pa.DataType, value: pa.DataType) -> bool:
    """Arrow does not convert everything inside a list, so these are the types that Spark hands over."""
    is_bytes = pt.is_binary(value) or pt.is_large_binary(value) or pt.is_string(value) or pt.is_large_string(value)
    return bool(pt.is_string(key) or pt.is_large_string(key)) and bool(is_bytes)


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    if pt.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(number).type for number in range(kind.num_fields)]


def _has_map(kind: pa.DataType) -> bool:
    return bool(pt.is_map(kind)) or any(map(_has_map, _inner(kind)))


def _has_double(kind: pa.DataType) -> bool:
    """Has a struct, in it or itself, two fields of one name? An object of JSON would lose one of them."""
    names = [field.name for field in kind] if pt.is_struct(kind) else []
    return len(names) > len(set(names)) or any(map(_has_double, _inner(kind)))
