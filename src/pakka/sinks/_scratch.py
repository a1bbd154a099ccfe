"""Scratch areas for audits of files, the console and memory, each with a reader that knows nothing of pakka."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pakka.contract.audit import AUDIT_ID
from pakka.model.id import Binding
from pakka.mount import existing
from pakka.sinks._staging import refusal
from pakka.sinks.console import ConsoleApplier, ConsoleSink
from pakka.sinks.files import CsvSink, FileSink
from pakka.sinks.memory import MemorySink, Space

MARK = ".pakka-audit-"
_CONSOLE_ROWS = 100_000
SCRATCH = Binding("audit", "scratch", "")
"""Whom errors of a scratch area speak of."""


def tokens_in(directory: Path, prefix: str) -> list[str]:
    """The tokens of what stands in a directory under names that begin with `prefix`."""
    try:
        return sorted(name.removeprefix(prefix) for name in os.listdir(directory) if name.startswith(prefix))
    except OSError:
        return []


@dataclass(frozen=True)
class _Directory:
    """A scratch area that is a directory."""

    root: Path

    def make(self) -> None:
        try:
            self.root.mkdir()
        except OSError as error:
            raise refusal(SCRATCH, "nothing was made", self.root, error) from error

    def stored(self) -> frozenset[str]:
        return frozenset(os.path.join(place, name) for place, _, names in os.walk(self.root) for name in names)

    def remove(self) -> None:
        try:
            shutil.rmtree(self.root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(SCRATCH, "it is left behind", self.root, error) from error


@dataclass(frozen=True)
class FileScratch(_Directory):
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


@dataclass(frozen=True)
class _ConsoleFile(ConsoleSink):
    """The console sink on a file that stands for the terminal, so that what was shown can be read again."""

    out: str = field(default="", kw_only=True)

    def open_applier(self, binding: Binding) -> ConsoleApplier:
        return ConsoleApplier(self.rows, open(self.out, "a", encoding="utf-8"))


@dataclass(frozen=True)
class ConsoleScratch(_Directory):
    """A file that stands for the terminal."""

    sink: _ConsoleFile

    @classmethod
    def of(cls, token: str) -> ConsoleScratch:
        root = Path(tempfile.gettempdir()) / f"pakka-console{MARK}{token}"
        return cls(root, _ConsoleFile(_CONSOLE_ROWS, out=str(root / "terminal")))

    @staticmethod
    def tokens() -> Sequence[str]:
        return tokens_in(Path(tempfile.gettempdir()), f"pakka-console{MARK}")

    def read(self) -> list[str]:
        """What somebody in front of the terminal has seen. An id of an audit has no spaces, and a dash in it."""
        terminal = Path(self.sink.out)
        if not terminal.exists():
            return []
        return re.findall(r"^(e\d+-\S+) ", terminal.read_text(encoding="utf-8"), re.MULTILINE)


@dataclass(frozen=True)
class MemoryScratch:
    """A space of its own in this process. Another process has another one under the same name, and that is the point."""

    sink: MemorySink

    def make(self) -> None:
        Space.named(self.sink.space)

    def read(self) -> list[str]:
        return [value for table in Space.named(self.sink.space).rows for value in table.column(AUDIT_ID).to_pylist()]

    def stored(self) -> frozenset[str]:
        return frozenset(str(slot) for slot in Space.named(self.sink.space).committed)

    def remove(self) -> None:
        space = Space.named(self.sink.space)
        for kept in (space.rows, space.fences, space.ledger, space.committed):
            kept.clear()
