"""One harness for each sink that pakka ships, and for the one that its guide shows."""

import re
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pakka.sinks.console import ConsoleApplier, ConsoleSink
from pakka.sinks.files import CsvSink, FileSink, JsonSink, ParquetSink
from pakka.sinks.memory import MemoryCommitter, MemorySink, Space
from pakka.sinks.sqlite import SqliteSink
from pakka.testing.contract import Cut, Golden, Harness, LineCut
from tests.conformance import guide
from tests.conformance.decode import csv_rows, loads, value_of

GOLDEN = Path(__file__).parent / "golden"


class Shipped(Harness):
    """What the harnesses of shipped sinks share: golden records, by name."""

    name: str

    def golden(self):
        path = GOLDEN / f"{self.name}.json"
        return Golden.read(path) if path.exists() else None


class Spooling(Shipped):
    """Staged is what lies in the spool."""

    def litter(self):
        return [p.name for p in (self.place / "spool").glob("*/fence-*/pakka.*")]


class FilesHarness(Shipped):
    """Files as any program finds them: by their ending, below the directory, whatever else is there."""

    kind: type[FileSink]

    @property
    def ending(self) -> str:
        return self.name

    def sink(self):
        return self.kind(str(self.place / "out" / "rows"))

    def litter(self):
        staging = self.place / "out" / ".rows.pakka"
        return [str(p.relative_to(staging)) for p in staging.glob("fence-*/*")]

    def rows(self, schema):
        files = sorted((self.place / "out" / "rows").rglob(f"*.{self.ending}"))
        return [row for path in files for row in self.read(path, schema)]

    @abstractmethod
    def read(self, path: Path, schema: pa.Schema) -> list[dict]:
        """The rows of one file, as any program reads it."""


class ParquetHarness(FilesHarness):
    name = "parquet"
    kind = ParquetSink

    def read(self, path, schema):
        table = pq.ParquetFile(path).read()
        assert table.schema.names == schema.names
        return table.to_pylist()


class PartitionedHarness(ParquetHarness):
    """Parquet with a column in the names of its directories, as Hive and Spark lay it out."""

    name = "partitioned"
    ending = "parquet"

    def sink(self):
        return ParquetSink(str(self.place / "out" / "rows"), partition_by=("merchant",))

    def read(self, path, schema):
        column, _, value = path.parent.name.partition("=")
        return [{**row, column: unquote(value)} for row in pq.ParquetFile(path).read().to_pylist()]


class JsonHarness(FilesHarness):
    name = "json"
    kind = JsonSink

    def read(self, path, schema):
        # Not `splitlines`: a text may hold a character that is a line's end to Python and not to JSON.
        lines = path.read_bytes().decode().split("\n")[:-1]
        return [{f.name: value_of(row[f.name], f.type) for f in schema} for row in map(loads, lines)]


class CsvHarness(FilesHarness):
    name = "csv"
    kind = CsvSink

    def read(self, path, schema):
        header, *rows = csv_rows(path.read_bytes().decode())
        assert header == schema.names
        return [{f.name: value_of(cell, f.type) for f, cell in zip(schema, row, strict=True)} for row in rows]


class SqliteHarness(Spooling):
    """A connection of its own, as another program would have."""

    name = "sqlite"

    def sink(self):
        return SqliteSink(str(self.place / "out.db"), "refund")

    def rows(self, schema):
        return _select(self.place / "out.db", schema)


class GuideHarness(Spooling):
    """The guide's own table, made as the guide says."""

    name = "guide"

    def __init__(self, place):
        super().__init__(place)
        self.path = place / "book.db"
        if not self.path.exists():
            with closing(sqlite3.connect(self.path)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(guide.SQL)

    def sink(self):
        return guide.RefundTable(str(self.path))

    def rows(self, schema):
        return _select(self.path, schema)


@dataclass(frozen=True)
class Printer(ConsoleSink):
    """The console sink with a file for a terminal, so that what it has shown can be looked at."""

    paper: str = ""

    def open_applier(self, binding):
        return ConsoleApplier(self.rows, open(self.paper, "a"))


class ConsoleHarness(Spooling):
    """Reads what was shown: a title, names, a line, and a row a line with two spaces between its cells."""

    name = "console"

    def sink(self):
        return Printer(rows=1000, paper=str(self.place / "paper"))

    def rows(self, schema):
        paper = self.place / "paper"
        lines = paper.read_text().splitlines() if paper.exists() else []
        for line in lines:
            cells = re.split(r"\s{2,}", line.strip())
            if len(cells) == len(schema) and cells != schema.names and not line.startswith("─"):
                yield {f.name: value_of(cell, f.type) for f, cell in zip(schema, cells, strict=True)}


class MemoryHarness(Shipped):
    """Rows of a named space of this process. Nothing is staged: rows ride inside the prepared record."""

    name = "memory"

    def sink(self):
        return MemorySink(str(self.place))

    def rows(self, schema):
        return [row for table in list(Space.named(str(self.place)).rows) for row in table.to_pylist()]

    def litter(self):
        return []

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        """There is no line, and no crash point: the call itself is what breaks."""
        commit, cut = MemoryCommitter.commit_epoch, Cut()

        def broken(self, epoch, prepared):
            cut.is_struck = True
            if is_done:
                commit(self, epoch, prepared)
            raise LineCut("the call broke off")

        MemoryCommitter.commit_epoch = broken
        try:
            yield cut
        finally:
            MemoryCommitter.commit_epoch = commit


def _select(path: Path, schema: pa.Schema) -> list[dict]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'refund'").fetchone():
            return []
        rows = db.execute("SELECT * FROM refund").fetchall()
    return [{f.name: value_of(cell, f.type) for f, cell in zip(schema, row, strict=True)} for row in rows]


HARNESSES: dict[str, type[Shipped]] = {
    harness.name: harness
    for harness in (
        MemoryHarness,
        ParquetHarness,
        PartitionedHarness,
        JsonHarness,
        CsvHarness,
        SqliteHarness,
        ConsoleHarness,
        GuideHarness,
    )
}
