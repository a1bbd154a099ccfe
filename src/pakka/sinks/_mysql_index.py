"""Unique indexes of MySQL and MariaDB: what each keeps unique, and whether a row can meet the row of another key by it.

ON DUPLICATE KEY UPDATE cannot be told which index: it changes the row that is met first by any of them. The writer refuses
such a table and the settings probe names it, by the same rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from pakka.sinks._mysql_line import Line

_INDEXES = """
    SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART IS NOT NULL, NULLABLE = 'YES' FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""


def fold(name: str) -> str:
    """A column's name as the server compares it."""
    return name.lower()


class UniqueIndex(NamedTuple):
    """What the server keeps unique."""

    table: str
    name: str
    columns: Sequence[str]
    """Without the ones that are an expression."""
    has_expressions: bool = False
    prefixes: Sequence[str] = ()
    """Columns of which only the beginning counts."""
    nullable: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """It is over whole columns and nothing else."""
        return not self.has_expressions and not self.prefixes

    def is_on(self, key: Iterable[str]) -> bool:
        """Its columns are just these, in any order."""
        return _names(self.columns) == _names(key)


def read_indexes(line: Line, database: str, tables: Sequence[str]) -> list[UniqueIndex]:
    """Every unique index of these tables."""
    found = []
    for (table, index), parts in groupby(line.ask(_INDEXES, (database, tuple(tables))), key=lambda row: row[:2]):
        columns = [part[2:] for part in parts]
        found.append(
            UniqueIndex(
                table,
                index,
                [name for name, *_ in columns if name is not None],
                any(name is None for name, *_ in columns),
                [name for name, is_prefix, _ in columns if is_prefix],
                [name for name, _, is_nullable in columns if is_nullable],
            )
        )
    return found


def other_keys(indexes: Iterable[UniqueIndex], key: Iterable[str], apart: Collection[str]) -> list[str]:
    """The indexes by which a row can meet the row of another key.

    One that holds the whole key meets no row but that of the key. `apart` has columns in which no new row is like any other: the
    server numbers them, or they stay NULL, which is never the same.
    """
    own, alone = _names(key), _names(apart)
    return [
        index.name
        for index in indexes
        if not own <= _names(index.columns) - _names(index.prefixes) and alone.isdisjoint(_names(index.columns))
    ]


def _names(columns: Iterable[str]) -> frozenset[str]:
    return frozenset(fold(column) for column in columns)
