"""Writers that lie, each in one way. None of them could be told from an honest one by the happy path alone."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pakka.model.id import Slot
from pakka.model.prepared import Prepared
from pakka.testing.twins.honest import HonestWriter, packed, transaction

REMEMBERED: dict[Slot, bytes] = {}
"""What a process remembers and no other does."""


class Eager(HonestWriter):
    """Shows its rows at prepare."""

    def stage(self, rows: bytes) -> None:
        super().stage(packed([], self.schema))
        with self.fenced() as db:
            db.execute("INSERT INTO visible VALUES (?)", [rows])


class Hasty(HonestWriter):
    """Shows its rows as they come."""

    def write(self, batch: pa.RecordBatch) -> None:
        with self.fenced() as db:
            db.execute("INSERT INTO visible VALUES (?)", [packed([batch], batch.schema)])

    def prepare(self, checksum: str) -> Prepared:
        with self.fenced() as db:
            db.execute(
                "UPDATE slots SET state = 'prepared', rows = ? WHERE slot = ?",
                [packed([], self.schema), str(self.slot)],
            )
        return Prepared(self.slot, 0, checksum, {"form": 1})


class Forgetful(HonestWriter):
    """Keeps what it has prepared in the memory of its process."""

    def stage(self, rows: bytes) -> None:
        super().stage(b"")
        REMEMBERED[self.slot] = rows


class Careless(HonestWriter):
    """Loses its last batch, and tells the rows that it was given."""

    def stage(self, rows: bytes) -> None:
        super().stage(packed(self.batches[:-1], self.schema))


class Obliging(HonestWriter):
    """Takes any id, used or not."""

    def begin(self) -> None:
        with self.fenced() as db:
            values = [str(self.slot), self.slot.epoch]
            db.execute("INSERT OR REPLACE INTO slots VALUES (?, ?, 'begun', NULL)", values)


class Fearless(HonestWriter):
    """Prepares under any fence."""

    def check_fence(self, db: sqlite3.Connection) -> None:
        return


class Jumbling(HonestWriter):
    """Puts a row's texts into each other's columns."""

    def stage(self, rows: bytes) -> None:
        texts = [n for n, f in enumerate(self.schema) if pa.types.is_string(f.type)]
        order = list(range(len(self.schema)))
        for place, number in zip(texts, texts[::-1], strict=True):
            order[place] = number
        mixed = [pa.RecordBatch.from_arrays([b.column(n) for n in order], schema=self.schema) for b in self.batches]
        super().stage(packed(mixed, self.schema))


class Messy(HonestWriter):
    """Leaves its litter when it gives up."""

    def discard(self) -> None:
        return


class Clinging(HonestWriter):
    """Hands over a record that holds something of its process."""

    def prepare(self, checksum: str) -> Prepared:
        return replace(super().prepare(checksum), detail={"form": 1, "connection": object()})


class Miscounting(HonestWriter):
    """Tells one row less than it has."""

    def prepare(self, checksum: str) -> Prepared:
        prepared = super().prepare(checksum)
        return replace(prepared, rows=max(0, prepared.rows - 1))


class Converting(HonestWriter):
    """The base of those that change values on their way."""

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [self.convert(column) for column in batch.columns]
        self.batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def convert(self, column: pa.Array) -> pa.Array:
        return column


class Shortening(Converting):
    """Cuts texts to 255 characters."""

    def convert(self, column: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(column, 0, 255) if pa.types.is_string(column.type) else column


class Nulling(Converting):
    """Stores NaN as null, as SQLite does."""

    def convert(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_floating(column.type):
            return column
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


class Rounding(Converting):
    """Rounds decimals to whole numbers."""

    def convert(self, column: pa.Array) -> pa.Array:
        return pc.round(column).cast(column.type) if pa.types.is_decimal(column.type) else column


class Wrapping(Converting):
    """Takes instants through nanoseconds, where the years before 1678 come out in another century."""

    def convert(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_timestamp(column.type):
            return column
        zone = column.type.tz
        return column.cast(pa.timestamp("ns", zone), safe=False).cast(column.type, safe=False)


class Flattening(Converting):
    """Does not tell an empty list from none."""

    def convert(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_list(column.type):
            return column
        values: list[Any] = [value or None for value in column.to_pylist()]
        return pa.array(values, column.type)


class Blunt(HonestWriter):
    """Refuses what it cannot store with an error of its own, after it has begun."""

    def write(self, batch: pa.RecordBatch) -> None:
        if any(pa.types.is_duration(field.type) for field in batch.schema):
            raise ValueError("intervals are not supported")
        super().write(batch)


class Late(HonestWriter):
    """Stages what it cannot store, and finds out at the commit."""

    def stage(self, rows: bytes) -> None:
        is_nested = any(pa.types.is_nested(field.type) for field in self.schema)
        super().stage(rows)
        if is_nested:
            with transaction(self.sink.path) as db:
                db.execute("UPDATE slots SET state = 'spoilt' WHERE slot = ?", [str(self.slot)])
