"""The table in PostgreSQL: how it is named, read from the catalog, made and widened, and whether rows fit into it.

Columns are found by name. Rows are refused before the first one is sent if a column of theirs is not in the table, or is
of a type that the column cannot hold exactly; values that do not fit are refused batch by batch, with an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.errors import BugError, ConfigError, SchemaError
from pakka.model.id import nearest
from pakka.postgres_line import ask_at_once
from pakka.sinks._columns import Place
from pakka.sinks._numpy import Ints, is_valid_of, numbers_of
from pakka.sinks._postgres_page import PAGE_BYTES, PageRoom
from pakka.sinks._postgres_type import Cast, PgType, cast_of, declared_type
from pakka.sinks._spool import no_rows

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "Column",
    "Fit",
    "Place",
    "Table",
    "Target",
    "add_columns_statements",
    "create_statements",
    "quoted",
    "read_table",
]

_NAME_BYTES_MAX = 63
"""PostgreSQL cuts off the rest of a longer name, with no more than a notice."""
_COLUMNS_MAX = 1600
_ROW_BYTES_MAX = 500_000_000
"""PostgreSQL makes a row up in a gigabyte of memory, where short values in an array take more room than here."""
_KEY_BYTES_MAX = 2600
"""What fits into one row of an index, with room for its header."""
_SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')

_KINDS = {"r": "ordinary", "p": "partitioned", "v": "view", "m": "materialized view", "f": "foreign"}
_PERSISTENCE = {"u": "unlogged", "t": "temporary"}

_READ = """
SELECT c.oid::bigint, n.nspname, c.relkind::text, c.relpersistence::text, getdatabaseencoding(),
       c.relhasindex AND EXISTS (SELECT 1 FROM pg_index WHERE indrelid = c.oid AND (indisunique OR indisexclusion)),
       a.attname, format_type(a.atttypid, a.atttypmod), d.type_oid::bigint, d.modifier,
       CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typnamespace = 'pg_catalog'::regnamespace OR t.typname = 'citext' THEN t.typname
            ELSE '' END,
       e.oid::bigint,
       CASE WHEN e.typtype = 'e' THEN 'enum' WHEN e.typnamespace = 'pg_catalog'::regnamespace OR e.typname = 'citext' THEN e.typname
            ELSE '' END,
       ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = coalesce(e.oid, t.oid) ORDER BY enumsortorder),
       a.attnotnull OR d.is_not_null, a.atthasdef OR d.has_default, a.attidentity::text, a.attgenerated::text
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN LATERAL (
    WITH RECURSIVE down (depth, type_oid, modifier, is_not_null, has_default) AS (
        SELECT 0, a.atttypid, a.atttypmod, false, false
        UNION ALL
        SELECT depth + 1, typbasetype, CASE WHEN typtypmod >= 0 THEN typtypmod ELSE modifier END, is_not_null OR typnotnull,
               has_default OR typdefault IS NOT NULL
        FROM down JOIN pg_type ON oid = type_oid WHERE typtype = 'd'
    )
    SELECT * FROM down ORDER BY depth DESC LIMIT 1
) d ON true
LEFT JOIN pg_type t ON t.oid = d.type_oid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A' AND t.typname NOT IN ('int2vector', 'oidvector')
WHERE c.oid = to_regclass(%s)
ORDER BY a.attnum
"""


def quoted(name: str) -> str:
    """An identifier as SQL, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Target:
    """The table that rows go to; without a schema, the first of that name on the connection's search path."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """`table` or `schema.table`. A part with a dot in it stands in double quotes; elsewhere a name is what is written."""
        match = _PART.match(text)
        first, rest = (_part(match), text[match.end() :]) if match else ("", text)
        if rest.startswith("."):
            second = _PART.fullmatch(rest[1:])
            made = cls(first, _part(second) if second else rest[1:])
        else:
            made = cls(None, first) if match and not rest else cls(None, text)
        for name in (made.table, *([made.schema] if made.schema is not None else [])):
            if (problem := _name_problem(name)) is not None:
                raise ConfigError(
                    f"postgres: {text!r} cannot be the name of a table: {problem}", hint="choose another name"
                )
        return made

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        return quoted(self.table) if self.schema is None else f"{quoted(self.schema)}.{quoted(self.table)}"


def _part(match: re.Match[str]) -> str:
    return match[2] if match[1] is None else match[1].replace('""', '"')


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if "\0" in name:
        return "it has a NUL character"
    size = len(name.encode(errors="surrogatepass"))
    return f"it has {size} bytes, and PostgreSQL keeps {_NAME_BYTES_MAX}" if size > _NAME_BYTES_MAX else None


@dataclass(frozen=True)
class Column:
    """A column of a table that exists."""

    name: str
    type_name: str
    """As the server writes it, such as `character varying(20)`."""
    type: PgType
    is_not_null: bool
    has_default: bool
    identity: str
    """`always`, `by default` or empty."""
    is_generated: bool

    @property
    def is_optional(self) -> bool:
        """Whether rows may do without it: the server fills it in."""
        return not self.is_not_null or self.has_default or self.is_generated or bool(self.identity)


@dataclass(frozen=True)
class Table:
    """A table as the catalog has it."""

    oid: int
    schema: str
    kind: str
    """`ordinary`, `partitioned`, `view`, `materialized view`, `foreign`, `unlogged` or `temporary`."""
    encoding: str
    columns: tuple[Column, ...]
    is_unique: bool = False
    """Whether a row may keep another one out: there is a unique index, or an exclusion constraint."""


def read_table(db: psycopg.Connection[Any], target: Target, first: str = "") -> Table | None:
    """What the catalog knows of the target; None if there is no such table. `first` is what the server does before it looks."""
    if db.info.encoding != "utf-8":
        raise BugError(
            f"the connection speaks {db.info.encoding}, and text in a binary COPY would be taken for that; nothing was written"
        )
    rows = ask_at_once(db, first.replace("%", "%%") + _READ, [target.sql])
    if not rows:
        return None
    oid, schema, kind, persistence, encoding, is_unique = rows[0][:6]
    columns = tuple(_column(row[6:]) for row in rows if row[6] is not None)
    return Table(oid, schema, _PERSISTENCE.get(persistence) or _KINDS.get(kind, "other"), encoding, columns, is_unique)


def _column(row: Sequence[Any]) -> Column:
    name, type_name, oid, modifier, kind, element_oid, element, labels, not_null, default, identity, generated = row
    inner = PgType(element, element_oid, modifier, labels=tuple(labels)) if element_oid is not None else None
    made = PgType(kind, oid, modifier, inner, () if inner else tuple(labels))
    words = {"a": "always", "d": "by default"}.get(identity, "")
    # The expression of a generated column stands where a default would.
    return Column(name, type_name, made, not_null, default and not generated, words, bool(generated))


def create_statements(target: Target, schema: pa.Schema, key: Sequence[str] = ()) -> list[str]:
    """How to make the table for these rows. Columns of the key are its primary key."""
    names = list(schema.names)
    if not 0 < len(names) <= _COLUMNS_MAX:
        raise _refuse_to_make(target, f"the rows have {len(names)} columns, and a table has from 1 to {_COLUMNS_MAX}")
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise _refuse_to_make(target, f"the rows have column `{double}` twice", "rename one of them with `select`")
    for name in key:
        if name not in names:
            raise _refuse_to_make(target, f"the rows lack key column `{name}`; {nearest(name, names)}")
    columns = [_declaration(target, field) for field in schema]
    if key:
        columns.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in key)})")
    return [f"CREATE TABLE IF NOT EXISTS {target.sql} ({', '.join(columns)})"]


def add_columns_statements(target: Target, table: Table, schema: pa.Schema) -> list[str]:
    """How to add what the rows have and the table lacks. Rows that are there get nulls."""
    have = {column.name for column in table.columns}
    new = [_declaration(target, field) for field in schema if field.name not in have]
    return (
        [f"ALTER TABLE {target.sql} {', '.join(f'ADD COLUMN IF NOT EXISTS {column}' for column in new)}"] if new else []
    )


def _declaration(target: Target, field: pa.Field) -> str:
    problem = _name_problem(field.name)
    if problem is None and field.name in _SYSTEM_COLUMNS:
        problem = "every table of PostgreSQL has a column of that name already"
    if problem is not None:
        raise _refuse_to_make(target, f"column `{field.name}`: {problem}", "rename it with `select`")
    declared = declared_type(field.type)
    if declared is None:
        raise _refuse_to_make(
            target, f"column `{field.name}` has type {field.type}, which PostgreSQL cannot hold exactly"
        )
    return f"{quoted(field.name)} {declared}"


def _refuse_to_make(target: Target, what: str, hint: str = "choose or cast columns with `select`") -> SchemaError:
    return SchemaError(f"table `{target}`: {what}; nothing was written", hint=hint)


class Fit:
    """Brings batches into exactly the form that the table's columns take, or refuses them, naming the column.

    Columns in `leave_out` are text that the table does not store. They come last in a fitted batch, as they are.
    """

    def __init__(
        self, place: Place, schema: pa.Schema, table: Table, key: Sequence[str] = (), leave_out: Sequence[str] = ()
    ) -> None:
        self.place = place
        self.table = table
        self.key = tuple(key)
        self.names = list(schema.names)
        self.types = list(schema.types)
        self._check_names(leave_out)
        have = {column.name: column for column in table.columns}
        self.columns = [name for name in self.names if name not in leave_out]
        """The columns of the table that the rows fill, in the order in which they are sent."""
        self._order = [schema.get_field_index(name) for name in (*self.columns, *leave_out)]
        self._casts: list[Cast] = [self._cast(have, schema.field(name)) for name in self.columns]
        self._casts += [self._text(schema.field(name)) for name in leave_out]
        self._not_null = {name for name in self.columns if have[name].is_not_null} | set(self.key)
        self._check_missing(have.values())
        self._room = PageRoom({name: column.type for name, column in have.items()}, self.columns)
        if table.encoding != "UTF8":
            raise place.refuse(
                f"{place} is in a database with encoding {table.encoding}, and pakka writes UTF8 only",
                hint="write to a database that was made with `ENCODING 'UTF8'`",
            )
        self.schema = self(no_rows(schema)).schema
        """The schema of fitted batches."""

    def __call__(self, batch: pa.RecordBatch, deletes: pa.Array | None = None) -> pa.RecordBatch:
        """`deletes` is true for rows that only name what to delete: of them, only the key must be there."""
        if batch.schema.names != self.names or batch.schema.types != self.types:
            raise self.place.refuse(
                f"a batch has columns {_words(batch.schema.names, batch.schema.types)}, where {_words(self.names, self.types)} "
                "were announced",
                hint="every batch of a slot must have the columns that its writer was opened with",
            )
        arrays: dict[str, pa.Array] = {}
        for index, cast in zip(self._order, self._casts, strict=True):
            name, array = self.names[index], batch.column(index)
            try:
                made = cast(array)
            except (ValueError, OverflowError, pa.ArrowNotImplementedError) as error:
                raise self._refuse(name, str(error), "cast it in `select`, or keep such rows out by a rule") from error
            # Of the fitted column, since a null may also hide in the dictionary of a column that has one.
            if made.null_count and name in self._not_null:
                self._check_nulls(name, made, None if name in self.key else deletes)
            arrays[name] = made
        self._check_bytes(arrays)
        schema = pa.schema([pa.field(name, array.type) for name, array in arrays.items()])
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)

    def _check_nulls(self, name: str, array: pa.Array, may_be: pa.Array | None) -> None:
        nulls = array.null_count if may_be is None else pc.sum(pc.and_not(array.is_null(), may_be)).as_py() or 0
        if nulls:
            raise self._refuse(name, f"{nulls} nulls, which its table refuses", "add a `not_null` rule")

    def _check_names(self, leave_out: Sequence[str]) -> None:
        double = next((name for name in self.names if self.names.count(name) > 1), None)
        if double is not None:
            raise self.place.refuse(f"the rows have column `{double}` twice", hint="rename one of them with `select`")
        if not set(self.names) - set(leave_out):
            raise self.place.refuse("the rows have no columns to store", hint="choose columns with `select`")
        for what, wanted in (("key column", self.key), ("column", leave_out)):
            for name in wanted:
                if name not in self.names:
                    raise self.place.refuse(
                        f"the rows lack {what} `{name}`; {nearest(name, self.names)}", hint="add it with `select`"
                    )

    def _cast(self, have: dict[str, Column], field: pa.Field) -> Cast:
        column = have.get(field.name)
        declared = declared_type(field.type) or f"type {field.type}"
        if column is None:
            raise self.place.refuse(
                f"{self.place} has no column `{field.name}`, and the rows have one ({declared}); {nearest(field.name, have)}",
                hint="add it with ALTER TABLE or `evolve: add_columns`, or leave it out with `select`",
            )
        if column.is_generated or column.identity == "always":
            raise self.place.refuse(
                f"column `{field.name}` of {self.place} is generated by the server, and the rows have one of that name",
                hint="leave it out with `select`",
            )
        cast = cast_of(field.type, column.type)
        if cast is None:
            raise self.place.refuse(
                f"column `{field.name}` of {self.place} is {column.type_name}, and the rows have {declared}, which does not go "
                "into it unchanged",
                hint=f"cast it in `select`, or make the column {declared_type(field.type) or 'one of another type'}",
            )
        return cast

    def _text(self, field: pa.Field) -> Cast:
        cast = cast_of(field.type, PgType("text"))
        if cast is None:
            raise self._refuse(field.name, f"type {field.type}, where text is needed", "cast it in `select`")
        return cast

    def _check_missing(self, have: Iterable[Column]) -> None:
        for column in have:
            if column.name not in self.columns and not column.is_optional:
                raise self.place.refuse(
                    f"{self.place} has a column `{column.name}` ({column.type_name}) that is NOT NULL and has no default, and the "
                    f"rows lack it; {nearest(column.name, self.columns)}",
                    hint="add it with `select`, or give the column a default",
                )

    def _check_bytes(self, columns: dict[str, pa.Array]) -> None:
        """Rows that are too long for the server, and keys that are too long for an index, cannot be told by one column."""
        for what, names, most in (("a row", list(columns), _ROW_BYTES_MAX), ("a key", self.key, _KEY_BYTES_MAX)):
            arrays = [columns[name] for name in names if not _is_fixed(columns[name].type)]
            if sum(array.nbytes for array in arrays) <= most:
                continue
            longest = int(np.sum([_lengths(array) for array in arrays], axis=0).max(initial=0))
            if longest > most:
                raise self.place.refuse(
                    f"the rows for {self.place} have {what} of {longest} bytes, and PostgreSQL takes {most} for sure",
                    hint="keep such rows out by a rule",
                )
        taken = self._room.longest(columns)
        if taken > PAGE_BYTES:
            raise self.place.refuse(
                f"the rows for {self.place} have one that may take {taken} bytes of a page, which has room for {PAGE_BYTES}",
                hint="write fewer columns, or put many of them into one `jsonb` with `to_json` or `struct`",
            )

    def _refuse(self, name: str, what: str, hint: str) -> SchemaError:
        return self.place.refuse(f"column `{name}` for {self.place} has {what}", hint=hint)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_boolean(kind))


def _lengths(array: pa.Array) -> Ints:
    lengths = np.zeros(len(array), np.int64)
    lengths[is_valid_of(array)] = numbers_of(pc.binary_length(array).drop_null())
    return lengths


def _words(names: Sequence[str], types: Sequence[pa.DataType]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in zip(names, types, strict=True))
