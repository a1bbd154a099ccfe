"""The scratch area for audits of the console: a file that stands for the terminal."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pakka.model.id import Binding
from pakka.sinks._scratch import MARK, DirectoryScratch, tokens_in
from pakka.sinks.console import ConsoleApplier, ConsoleSink

_ROWS = 100_000


@dataclass(frozen=True)
class _ConsoleFile(ConsoleSink):
    """The console sink on a file that stands for the terminal, so that what was shown can be read again."""

    out: str = field(default="", kw_only=True)

    def open_applier(self, binding: Binding) -> ConsoleApplier:
        return ConsoleApplier(self.rows, open(self.out, "a", encoding="utf-8"))


@dataclass(frozen=True)
class ConsoleScratch(DirectoryScratch):
    """A file that stands for the terminal."""

    sink: _ConsoleFile

    @classmethod
    def of(cls, token: str) -> ConsoleScratch:
        root = Path(tempfile.gettempdir()) / f"pakka-console{MARK}{token}"
        return cls(root, _ConsoleFile(_ROWS, out=str(root / "terminal")))

    @staticmethod
    def tokens() -> Sequence[str]:
        return tokens_in(Path(tempfile.gettempdir()), f"pakka-console{MARK}")

    def read(self) -> list[str]:
        """What somebody in front of the terminal has seen. An id of an audit has no spaces, and a dash in it."""
        terminal = Path(self.sink.out)
        if not terminal.exists():
            return []
        return re.findall(r"^(e\d+-\S+) ", terminal.read_text(encoding="utf-8"), re.MULTILINE)
