"""The one module that prints. Data on stdout, talk on stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from pakka.errors import PakkaError


class Screen:
    """Where a command speaks. `hide` covers values that a pipeline took from the environment."""

    def __init__(self, is_json: bool = False, is_verbose: bool = False) -> None:
        self.is_json = is_json
        self.is_verbose = is_verbose
        self.is_quiet = False
        self.hide: Callable[[str], str] = lambda text: text
        self._stderr: TextIO | None = None
        self._above: Callable[[str], None] | None = None

    def say(self, text: str) -> None:
        """Data, for people: stdout."""
        click.echo(self.hide(text))

    def say_json(self, data: Any, is_line: bool = False) -> None:
        """Data, for programs: one document, or one line of many."""
        click.echo(self.hide(json.dumps(data, indent=None if is_line else 2)))

    def talk(self, text: str) -> None:
        """What accompanies the data: stderr. Programs that read JSON are not talked to."""
        if self.is_json or self.is_quiet:
            return
        if self._above is not None:
            self._above(self.hide(text))
        else:
            click.echo(self.hide(text), file=self._stderr or sys.stderr)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table on stdout: as wide as it has to be in a pipe, wrapped to fit on a terminal."""
        from pakka.cli.table import draw

        room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        lines = draw(columns, [[self.hide(cell) for cell in row] for row in rows], room)
        click.echo("\n".join(lines), color=False if os.environ.get("NO_COLOR") else None)

    def error(self, error: PakkaError) -> None:
        """An error a person can act on: what happened, then what to do."""
        notes = [self.hide(note) for note in getattr(error, "__notes__", ())]
        message, hint = self.hide(error.message), self.hide(error.hint)
        if self.is_json:
            told = {"error": type(error).__name__, "message": message, "hint": hint, "exit_code": error.exit_code}
            click.echo(json.dumps({**told, "notes": notes} if notes else told), err=True)
        else:
            click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
            for note in notes:
                click.echo(f"\nnote: {note}", err=True)
            if hint:
                click.echo(click.style("\nhint: ", fg="cyan", bold=True) + hint, err=True)
        if self.is_verbose:
            self._traceback(error)

    def unexpected(self, error: Exception) -> None:
        """An error nobody thought of."""
        what = str(error).strip().splitlines()
        self.error(
            PakkaError(
                f"pakka did not expect this: {type(error).__name__}{': ' + what[0] if what else ''}",
                hint="run it again with `--verbose` to see where it comes from; a run that was cut off is recovered by the next",
            )
        )
        if self.is_verbose:
            self._traceback(error)

    def _traceback(self, error: BaseException) -> None:
        if error.__traceback__ is not None:
            lines = "".join(traceback.format_exception(error))
            click.echo("\n" + self.hide(lines).rstrip(), err=True)

    def abandon_stdout(self) -> None:
        """Nobody reads stdout any more: keep Python from stumbling over it once more at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep talking to the terminal while Spark's start turns the process's stderr over to a log file."""
        try:
            copy = os.dup(sys.stderr.fileno())
        except (OSError, ValueError):
            # Not a real file, as in tests: nobody can turn it over either.
            yield
            return
        with os.fdopen(copy, "w", encoding="utf-8", errors="replace", buffering=1) as self._stderr:
            try:
                yield
            finally:
                self._stderr = None

    @contextmanager
    def live(self) -> Iterator[Callable[[str], None]]:
        """A line on the terminal that is drawn over again and again. Only for a terminal; see `has_live`."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(file=self._stderr or sys.stderr, highlight=False)
        with Live(console=console, auto_refresh=False, transient=True, redirect_stderr=False) as live:

            def draw(line: str) -> None:
                live.update(Text(self.hide(line), no_wrap=True, overflow="ellipsis"), refresh=True)

            # What is said meanwhile goes above the line that is drawn over.
            self._above = lambda text: console.print(Text(text))
            try:
                yield draw
            finally:
                self._above = None

    @property
    def has_live(self) -> bool:
        return sys.stderr.isatty() and not (self.is_json or self.is_quiet or self.is_verbose)


def some(count: int, thing: str) -> str:
    """A count of things, as people tell it."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def per_minute(rate: float) -> str:
    """How often something happens in a minute, in few digits."""
    if rate >= 10:
        return f"{rate:,.0f}"
    return f"{rate:.2g}" if rate >= 0.01 or not rate else "less than 0.01"


def duration(seconds: float | None) -> str:
    """A time span, as people tell it."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
