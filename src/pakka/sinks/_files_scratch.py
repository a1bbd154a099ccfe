"""The scratch area for audits of a directory of files, with a reader that knows nothing of pakka."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pakka.contract.audit import AUDIT_ID
from pakka.mount import existing
from pakka.sinks._scratch import MARK, DirectoryScratch, tokens_in
from pakka.sinks.files import CsvSink, FileSink


@dataclass(frozen=True)
class FileScratch(DirectoryScratch):
    """A hidden directory beside the output, on the same file system, where no reader of the output looks."""

    sink: FileSink

    @classmethod
    def of(cls, sink: FileSink, token: str) -> FileScratch:
        base, prefix = _beside(sink)
        root = base / f"{prefix}{token}"
        return cls(root, replace(sink, path=str(root / "rows"), partition_by=()))

    @staticmethod
    def tokens(sink: FileSink) -> Sequence[str]:
        return tokens_in(*_beside(sink))

    def read(self) -> list[str]:
        return [value for file in self._files() for value in self._values(file)]

    def _files(self) -> Iterator[Path]:
        """As Spark and pandas do: every file whose path has no part that begins with `_` or `.`."""
        for place, directories, names in os.walk(self.sink.path):
            directories[:] = [name for name in directories if name[0] not in "_."]
            yield from (Path(place, name) for name in names if name[0] not in "_.")

    def _values(self, file: Path) -> list[str]:
        if file.suffix == ".json":
            return [json.loads(line)[AUDIT_ID] for line in file.read_text().splitlines()]
        if isinstance(self.sink, CsvSink):
            with open(file, newline="") as lines:
                rows = [row[0] for row in csv.reader(lines, delimiter=self.sink.delimiter)]
            return rows[1:] if self.sink.header else rows
        import pyarrow.parquet as pq

        values: list[str] = pq.ParquetFile(file).read(columns=[AUDIT_ID]).column(0).to_pylist()
        return values


def _beside(sink: FileSink) -> tuple[Path, str]:
    path = Path(sink.target())
    return existing(path.parent), f".{path.name}{MARK}"
