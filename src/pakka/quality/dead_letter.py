"""What a dead letter looks like: the row as it was, the rules it broke, the epoch and the time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pakka.model.rule import quoted
from pakka.quality.judge import Judge

SCHEMA = pa.schema(
    [
        pa.field("pipeline", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("rules", pa.list_(pa.string()), nullable=False),
        pa.field("row", pa.string()),
    ]
)


def row_sql(columns: Sequence[str], raw_column: str | None) -> str:
    """A broken row as JSON, with its nulls, or the raw text of a record that could not be parsed."""
    fields = ", ".join(quoted_whole(c) for c in columns)
    as_json = f"to_json(struct({fields}), map('ignoreNullFields', 'false'))"
    return as_json if raw_column is None else f"coalesce({quoted(raw_column)}, {as_json})"


def quoted_whole(column: str) -> str:
    """A column's own name as an identifier; unlike a path, a dot in it is just a dot."""
    return "`" + column.replace("`", "``") + "`"


def letters(judge: Judge, pipeline: str, epoch: int, at_us: int, masks: pa.Array, rows: pa.Array) -> pa.RecordBatch:
    """The dead letters of some broken rows."""
    size = len(rows)
    by_mask = {mask: judge.words(mask) for mask in masks.unique().to_pylist()}
    columns = [
        pa.repeat(pa.scalar(pipeline), size),
        pa.repeat(pa.scalar(epoch, pa.int64()), size),
        pa.repeat(pa.scalar(at_us, SCHEMA.field("at").type), size),
        pa.array([by_mask[m] for m in masks.to_pylist()], SCHEMA.field("rules").type),
        readable(rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def readable(rows: pa.Array) -> pa.Array:
    """Rows as text that every sink can hold.

    A malformed record may be malformed in its very bytes. They are spelt in hexadecimal: left as they are, one of them
    would be refused by every sink and hold up the pipeline for ever.
    """
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        spelt = (
            None if row is None else row.decode(errors="backslashreplace") for row in rows.cast(pa.binary()).to_pylist()
        )
        return pa.array(spelt, pa.string())
    return rows
