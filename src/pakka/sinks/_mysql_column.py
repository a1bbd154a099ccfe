"""Tables of MySQL and MariaDB: what one looks like, what pakka makes for rows of a schema, and which of them it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as pt

from pakka.errors import ConfigError
from pakka.sinks._columns import Place
from pakka.sinks._mysql_index import UniqueIndex, fold, read_indexes
from pakka.sinks._mysql_line import Line
from pakka.sinks._sqlite_column import is_in_json

NAME_MAX = 64
"""The server's own limit for a name, in characters."""
_COLUMNS_MAX = 1017
"""InnoDB's own limit for a table."""
_KEY_LENGTH = 255
_SCALE_MAX = {True: 38, False: 30}
"""Digits after the point, on MariaDB and on MySQL."""

_INTEGERS = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "tinyint unsigned",
    pa.uint16(): "smallint unsigned",
    pa.uint32(): "int unsigned",
    pa.uint64(): "bigint unsigned",
}


def quoted(name: str) -> str:
    """An identifier as SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def name_trouble(name: str) -> str:
    """Why this cannot be the name of a table or a column; empty if it can."""
    if not 0 < len(name) <= NAME_MAX:
        return f"it has {len(name)} characters, and a name has from 1 to {NAME_MAX}"
    if name != name.rstrip(" "):
        return "it ends with a space"
    if "\0" in name or max(name) > "\uffff":
        return "it has a character that no name may have"
    return ""


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and the database it is in where that is not the one of the URL."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str, database: str) -> Target:
        """`refunds`, or `sales.refunds`."""
        schema, _, table = text.rpartition(".")
        for name in (schema or database, table):
            if trouble := name_trouble(name):
                raise ConfigError(
                    f"mysql: `{text}` is not the name of a table: {trouble}", hint="`refunds`, or `sales.refunds`"
                )
        return cls(schema or database, table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def beside(self, table: str) -> Target:
        return Target(self.schema, table)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that exists."""

    name: str
    kind: str
    """`varchar`"""
    declared: str
    """`varchar(20)`"""
    is_nullable: bool = True
    has_default: bool = False
    """Other than NULL."""
    extra: str = ""
    length: int | None = None
    """Characters, of text."""
    octets: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int | None = None
    """Digits of a second."""
    charset: str | None = None
    collation: str | None = None

    @property
    def is_unsigned(self) -> bool:
        return "unsigned" in self.declared

    @property
    def is_generated(self) -> bool:
        return any(word in self.extra.upper() for word in ("VIRTUAL", "STORED", "PERSISTENT"))

    @property
    def is_numbered(self) -> bool:
        return "auto_increment" in self.extra.lower()

    @property
    def stays_null(self) -> bool:
        """It is NULL in a row that has nothing for it."""
        return self.is_nullable and not self.has_default and not self.is_generated

    @property
    def sql(self) -> str:
        """The same type once more, for a temporary table: with nulls, since a row that deletes may have them."""
        text = f" CHARACTER SET {self.charset} COLLATE {self.collation}" if self.charset and self.collation else ""
        return f"{quoted(self.name)} {self.declared}{text} NULL"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that exists."""

    engine: str
    """Empty for a view."""
    is_transactional: bool
    columns: tuple[Column, ...]
    uniques: tuple[UniqueIndex, ...] = ()

    def find(self, name: str) -> Column | None:
        return next((c for c in self.columns if fold(c.name) == fold(name)), None)

    def apart(self, stored: Iterable[str]) -> list[str]:
        """Columns in which a new row, of which just these are stored, is like no other: the server numbers them, or they stay NULL."""
        have = {fold(name) for name in stored}
        return [c.name for c in self.columns if fold(c.name) not in have and (c.is_numbered or c.stays_null)]

    @property
    def grows_at_its_end(self) -> bool:
        """Whether InnoDB keeps the rows in the order in which they come: nothing orders them, or a number that the server gives."""
        orders = [index for index in self.uniques if index.is_whole and not index.nullable]
        first = self.find(orders[0].columns[0]) if len(orders) == 1 else None
        return not orders or (first is not None and first.is_numbered)


# MariaDB writes a default as SQL, also one that is NULL.
_COLUMNS = """
    SELECT column_name, data_type, column_type, is_nullable = 'YES',
        column_default IS NOT NULL AND NOT (column_default = 'NULL' AND version() LIKE '%%MariaDB%%'), extra,
        character_maximum_length, character_octet_length, numeric_precision, numeric_scale, datetime_precision,
        character_set_name, collation_name
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
# XA as well as transactions: beside the ledger of InnoDB, an engine without it would be committed on its own.
_ENGINES = """
    SELECT t.engine, e.transactions = 'YES' AND e.xa = 'YES', t.table_name FROM information_schema.tables t
    LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name IN %s
"""


def read_table(line: Line, target: Target) -> Table | None:
    """The table as it is now; None if there is none."""
    where = (target.schema, target.table)
    found = line.ask(_ENGINES, (target.schema, (target.table,)))
    if not found:
        return None
    ((engine, is_transactional, _),) = found
    columns = [
        Column(
            name,
            kind.lower(),
            declared.lower() if kind.lower() not in ("enum", "set") else declared,
            bool(n),
            bool(d),
            *rest,
        )
        for name, kind, declared, n, d, *rest in line.ask(_COLUMNS, where)
    ]
    uniques = read_indexes(line, target.schema, [target.table])
    return Table(engine or "", bool(is_transactional), tuple(columns), tuple(uniques))


def hold_tables(line: Line, place: Place, targets: Sequence[Target]) -> None:
    """Keep these tables of one database as they are until the transaction ends, and refuse those that would have no part in it.

    A ledger without transactions would keep its rows after an abort, and vouch for rows that nobody can see.
    """
    # A transaction that has looked at a table keeps its form.
    line.ask(f"SELECT 1 FROM {', '.join(target.sql for target in targets)} LIMIT 0")
    tables = tuple(target.table for target in targets)
    for engine, is_transactional, name in line.ask(_ENGINES, (targets[0].schema, tables)):
        target = targets[0].beside(name)
        check_engine(replace(place, table=str(target)), Table(engine or "", bool(is_transactional), ()), target)


def check_engine(place: Place, table: Table, target: Target) -> None:
    """Refuse an engine that has no transactions. The server would not: it reports success, and the rows stay."""
    if table.is_transactional:
        return
    if not table.engine:
        raise place.refuse(f"{place} is a view", hint="name the table itself")
    raise place.refuse(
        f"{place} is of the engine {table.engine}, which has no transactions: rows would be visible as soon as they are written, and "
        "stay after an abort, while the server reports success for both",
        hint=f"`ALTER TABLE {target.sql} ENGINE=InnoDB`",
    )


def create_statement(place: Place, target: Target, schema: pa.Schema, key: Sequence[str], *, is_mariadb: bool) -> str:
    """A table for rows of this schema, with the key as its primary key."""
    keys = {fold(name) for name in key}
    if len(schema) > _COLUMNS_MAX:
        raise place.refuse(
            f"the rows have {len(schema)} columns, and a table has {_COLUMNS_MAX}", hint="choose with `select`"
        )
    parts = [f"{quoted(f.name)} {declared_type(place, f, is_mariadb, is_key=fold(f.name) in keys)}" for f in schema]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in key)})")
    return f"CREATE TABLE IF NOT EXISTS {target.sql} ({', '.join(parts)}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"


def add_columns_statement(place: Place, target: Target, table: Table, schema: pa.Schema, *, is_mariadb: bool) -> str:
    """What adds the columns that the rows have and the table lacks; empty if there is none."""
    missing = [f for f in schema if table.find(f.name) is None]
    parts = [f"ADD COLUMN {quoted(f.name)} {declared_type(place, f, is_mariadb)}" for f in missing]
    return f"ALTER TABLE {target.sql} {', '.join(parts)}" if parts else ""


def declared_type(place: Place, field: pa.Field, is_mariadb: bool, *, is_key: bool = False) -> str:
    """What a column is declared as in a table that pakka makes, with whether it takes nulls."""
    if trouble := name_trouble(field.name):
        raise place.refuse(f"column `{field.name}` cannot have that name: {trouble}", hint="rename it with `select`")
    kind = field.type.value_type if pt.is_dictionary(field.type) else field.type
    declared = _key_type(kind, is_mariadb) if is_key else _plain_type(kind, is_mariadb)
    if not declared:
        what = "type" if not is_key else "as a key the type"
        raise place.refuse(
            f"column `{field.name}` for {place} has {what} {field.type}, which has no exact form there",
            hint="cast it in `select`, or make the table yourself",
        )
    return f"{declared} {'NOT NULL' if is_key else 'NULL'}"


def _plain_type(kind: pa.DataType, is_mariadb: bool) -> str:
    if kind in _INTEGERS:
        return _INTEGERS[kind]
    if pt.is_boolean(kind):
        return "tinyint(1)"
    if pt.is_floating(kind):
        return "double"  # a `float` is shown with six digits, which is not what went in
    if pt.is_decimal(kind):
        fits = kind.precision <= 65 and 0 <= kind.scale <= _SCALE_MAX[is_mariadb]
        return f"decimal({kind.precision},{kind.scale})" if fits else ""
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_null(kind):
        return "longtext CHARACTER SET utf8mb4"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "longblob"
    if pt.is_date(kind):
        return "date"
    if pt.is_timestamp(kind):
        return "datetime(6)"
    if pt.is_time(kind):
        return "time(6)"
    return "json" if pt.is_nested(kind) and is_in_json(kind) else ""


def _key_type(kind: pa.DataType, is_mariadb: bool) -> str:
    """What an index can hold. Text is compared byte by byte: two keys that differ are two rows."""
    if pt.is_string(kind) or pt.is_large_string(kind):
        return f"varchar({_KEY_LENGTH}) CHARACTER SET utf8mb4 COLLATE {'utf8mb4_nopad_bin' if is_mariadb else 'utf8mb4_0900_bin'}"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return f"varbinary({_KEY_LENGTH})"
    return "" if pt.is_nested(kind) or pt.is_floating(kind) or pt.is_null(kind) else _plain_type(kind, is_mariadb)
