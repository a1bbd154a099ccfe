"""Rows fitted to a MySQL table: columns matched by name, checked before the first row, and every value before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.errors import SchemaError
from pakka.model.id import nearest
from pakka.sinks._columns import Place
from pakka.sinks._mysql_column import Column, Table, name_trouble
from pakka.sinks._mysql_encode import Encode, encoder
from pakka.sinks._mysql_index import fold
from pakka.sinks._spool import no_rows

OPERATIONS = ("insert", "update", "delete")
"""What a row that mirrors a change may say of itself."""


class Fit:
    """Turns batches of rows into what a column of the table each takes, or refuses them, naming the column.

    `operation` is the column of the rows that is not stored and says what to do with each; it comes last. A row that deletes
    may have nulls wherever it likes, but for its key.
    """

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        table: Table,
        *,
        key: Sequence[str] = (),
        operation: str = "",
        value_bytes_max: int,
    ) -> None:
        self.place = place
        self.key = frozenset(fold(name) for name in key)
        self.operation = operation
        self.value_bytes_max = value_bytes_max
        stored = [field for field in schema if field.name != operation]
        self._check_names(schema)
        pairs = [(field, self._find(field, table)) for field in stored]
        self._check_missing(stored, table)
        self.columns = tuple(column for _, column in pairs)
        self._encoders = [(field.name, column, self._encoder(field, column)) for field, column in pairs]
        self.schema = self(no_rows(schema)).schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        must = self._operations(batch) if self.operation else None
        arrays = [
            self._encode(batch.column(name), name, column, encode, must) for name, column, encode in self._encoders
        ]
        names = [column.name for column in self.columns]
        if self.operation:
            arrays.append(batch.column(self.operation).cast(pa.string()))
            names.append(self.operation)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _encode(self, array: pa.Array, name: str, column: Column, encode: Encode, must: pa.Array | None) -> pa.Array:
        if array.null_count:
            is_key = fold(name) in self.key
            if is_key:
                raise self._refuse(name, f"{array.null_count} nulls, and it is of the key", "add a `not_null` rule")
            if not column.is_nullable:
                nulls = pc.sum(pc.and_(pc.is_null(array), must) if must is not None else pc.is_null(array)).as_py()
                if nulls:
                    raise self._refuse(name, f"{nulls} nulls, and the column is NOT NULL", "add a `not_null` rule")
        try:
            encoded = encode(array)
        except (ValueError, OverflowError) as error:
            raise self._refuse(name, str(error), "cast it in `select`, or keep such rows out by a rule") from error
        self._check_size(name, encoded)
        return encoded

    def _check_size(self, name: str, encoded: pa.Array) -> None:
        if encoded.nbytes > self.value_bytes_max and not pt.is_primitive(encoded.type):
            longest = pc.max(pc.binary_length(encoded)).as_py() or 0
            if longest > self.value_bytes_max:
                raise self._refuse(
                    name,
                    f"a value of {longest} bytes, and the server moves at most {self.value_bytes_max} at once",
                    "raise `max_allowed_packet` of the server, or keep such rows out by a rule",
                )

    def _operations(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are not deletes, after a look that each says one of the three words."""
        told = batch.column(self.operation)
        strange = told.filter(pc.invert(pc.is_in(told, value_set=pa.array(OPERATIONS, pa.string()).cast(told.type))))
        if len(strange):
            raise self._refuse(self.operation, f"{strange[0].as_py()!r}", f"it must be one of {', '.join(OPERATIONS)}")
        return pc.not_equal(told, "delete")

    def _check_names(self, schema: pa.Schema) -> None:
        if not len(schema):
            raise self.place.refuse("the rows have no columns", hint="choose columns with `select`")
        names = [fold(name) for name in schema.names]
        for name in schema.names:
            if names.count(fold(name)) > 1:
                raise self.place.refuse(
                    f"the rows have column `{name}` twice, and the server does not tell upper from lower case",
                    hint="rename one of them with `select`",
                )
            if trouble := name_trouble(name):
                raise self.place.refuse(
                    f"column `{name}` cannot have that name: {trouble}", hint="rename it with `select`"
                )
        lacking = self.key - set(names)
        if lacking:
            raise self.place.refuse(f"the rows lack key column `{min(lacking)}`", hint="add it with `select`")
        if self.operation and self.operation not in schema.names:
            raise self.place.refuse(
                f"the rows lack column `{self.operation}`, which says what to do with each",
                hint="set `operation` of the sink",
            )

    def _find(self, field: pa.Field, table: Table) -> Column:
        column = table.find(field.name)
        if column is None:
            raise self.place.refuse(
                f"{self.place} has no column `{field.name}`, and the rows have one ({field.type}); "
                f"{nearest(field.name, (c.name for c in table.columns))}",
                hint="set `evolve: add_columns`, add it with ALTER TABLE, or leave it out with `select`",
            )
        if column.is_generated:
            raise self.place.refuse(
                f"column `{column.name}` of {self.place} is generated by the server", hint="leave it out with `select`"
            )
        return column

    def _check_missing(self, stored: Sequence[pa.Field], table: Table) -> None:
        """What the rows lack is left to the server, where it can fill it."""
        have = {fold(field.name) for field in stored}
        for column in table.columns:
            is_filled = column.is_nullable or column.has_default or column.is_generated or column.is_numbered
            if fold(column.name) not in have and not is_filled:
                raise self.place.refuse(
                    f"{self.place} has a column `{column.name}` ({column.declared}, NOT NULL, without a default) that the rows lack; "
                    f"{nearest(column.name, (field.name for field in stored))}",
                    hint="add it with `select`, or give the column a default",
                )

    def _encoder(self, field: pa.Field, column: Column) -> Encode:
        encode = encoder(field.type, column)
        if encode is None:
            where = f" of character set {column.charset}" if column.charset else ""
            raise self.place.refuse(
                f"column `{column.name}` of {self.place} is {column.declared}{where}, and the rows have {field.type}, which it would not "
                "keep exactly",
                hint="cast it in `select`, or change the column",
            )
        return encode

    def _refuse(self, name: str, what: str, hint: str) -> SchemaError:
        return self.place.refuse(f"column `{name}` for {self.place} has {what}", hint=hint)
