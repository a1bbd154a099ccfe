"""Where a row's file stands: directories such as `pakka_epoch=12/day=2026-01-31`, by Spark's own rules for names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pakka.errors import SchemaError
from pakka.model.id import Slot, nearest

EPOCH_COLUMN = "pakka_epoch"
"""The column a reader gains: the directory of every epoch is `pakka_epoch=N`."""

_EPOCH = re.compile(rf"{EPOCH_COLUMN}=(0|[1-9]\d*)", re.ASCII)
_NULL = "__HIVE_DEFAULT_PARTITION__"
# What Spark escapes in a partition's name, and NUL, which no file name can hold.
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def escape(text: str) -> str:
    """A name or a value as a part of a path; Spark, DuckDB and pyarrow all read it back."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def epoch_directory(epoch: int) -> str:
    """Not padded with zeros, so that readers take the column for a number."""
    return f"{EPOCH_COLUMN}={epoch}"


def parse_epoch_directory(name: str) -> int | None:
    """The epoch whose directory has this name; None if it is no epoch's."""
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


def part_prefix(slot: Slot) -> str:
    """How the names of an attempt's files begin. No two attempts have the same, in whatever epoch they end."""
    return f"part-{slot.number:05d}-{hashlib.sha256(str(slot).encode()).hexdigest()[:12]}-"


def check_columns(subject: object, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse, before a row is written, what no reader could read back as it was."""
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in seen:
            raise SchemaError(
                f"{subject}: the rows have two columns `{seen[name.lower()]}` and `{name}`, which Spark and DuckDB take for one; "
                "nothing was written",
                hint=f"give one of them another name: `select: [..., {name} AS {name}_2]`",
            )
        seen[name.lower()] = name
        if name.lower() == EPOCH_COLUMN:
            raise SchemaError(
                f"{subject}: the rows have a column `{name}`, which is the column that readers get from the directories of "
                "epochs; nothing was written",
                hint=f"give it another name: `select: [..., {name} AS source_epoch]`",
            )
    for name in columns:
        if name not in schema.names:
            raise SchemaError(
                f"{subject}: partition_by names `{name}`, which is no column of the rows; nothing was written",
                hint=nearest(name, schema.names),
            )
        if name.startswith(("_", ".")):
            raise SchemaError(
                f"{subject}: partition_by names `{name}`, and readers pass over directories that begin with `{name[0]}`; "
                "nothing was written",
                hint=f"give it another name: `select: [..., {name} AS {name.lstrip('_.') or 'part'}]`",
            )
        kind = _plain(schema.field(name).type)
        if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
            raise SchemaError(
                f"{subject}: partition_by names `{name}`, which is {kind}; text, whole numbers, booleans and dates can be the "
                "name of a directory; nothing was written",
                hint=f"cast it: `select: [..., cast({name} AS string) AS {name}]`",
            )
    if len(set(columns)) < len(columns):
        raise SchemaError(f"{subject}: partition_by names a column twice: {', '.join(columns)}; nothing was written")
    if schema.names and set(schema.names) == set(columns):
        raise SchemaError(
            f"{subject}: partition_by names every column, so nothing would be left for the files; nothing was written",
            hint="leave at least one column out of partition_by",
        )


def split(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each partition, without the partition columns, by its directory.

    Grouped by Arrow; Python sees distinct values only. Null and empty text share a directory, as in Hive and Spark.
    """
    names, codes = _encode(table.column(columns[0]), columns[0])
    for column in columns[1:]:
        more_names, more_codes = _encode(table.column(column), column)
        both = pc.add(pc.multiply(codes, pa.scalar(len(more_names), pa.int64())), more_codes).dictionary_encode()
        pairs = [divmod(key, len(more_names)) for key in both.dictionary.to_pylist()]
        names, codes = [f"{names[a]}/{more_names[b]}" for a, b in pairs], both.indices.cast(pa.int64())
    rest = table.drop_columns(list(columns))
    if len(names) == 1:
        yield names[0], rest
        return
    order = pc.sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    rest = rest.take(order)
    begin = 0
    for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield names[code], rest.slice(begin, end - begin)
        begin = end


def _encode(column: pa.ChunkedArray, name: str) -> tuple[list[str], pa.Array]:
    """The directory of each distinct value, and for each row the position of its own."""
    values = column.cast(_plain(column.type)).combine_chunks()
    encoded = values.dictionary_encode(null_encoding="encode")
    texts = encoded.dictionary.cast(pa.string()).to_pylist()
    prefix = escape(name)
    return [f"{prefix}={escape(text) if text else _NULL}" for text in texts], encoded.indices.cast(pa.int64())


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
