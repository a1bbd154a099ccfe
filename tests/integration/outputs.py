"""What is in the outputs, by readers that know nothing of pakka: DuckDB for files, sqlite3 for tables."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb

_READERS = {
    "parquet": "read_parquet(?)",
    "json": "read_json(?, format = 'newline_delimited')",
    "csv": "read_csv(?, header = true, all_varchar = true, allow_quoted_nulls = false)",
}


def read_files(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a directory of files, ordered by `id` if they have one; the epoch's own column is left out."""
    paths = sorted(str(p) for p in Path(path).rglob("part-*"))
    if not paths:
        return []
    with closing(duckdb.connect()) as db:
        found = db.execute(f"SELECT * FROM {_READERS[paths[0].rpartition('.')[2]]}", [paths])
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, values, strict=True)) for values in found.fetchall()]
    for row in rows:
        row.pop("pakka_epoch", None)
    return sorted(rows, key=lambda row: row["id"]) if "id" in names else rows


def read_sqlite(path: str | Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(f'SELECT * FROM "{table.replace(chr(34), chr(34) * 2)}"')]
