"""The console sink: shows the first rows of each epoch on the driver's standard output. To look at, not to rely on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from pakka.contract.audit import Scratch
from pakka.errors import ConfigError, SinkError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding
from pakka.sinks.spooled import Applier, SpooledSink, Token

_CELL_WIDTH_MAX = 40


@dataclass(frozen=True)
class ConsoleSink(SpooledSink):
    """Show the first rows of each epoch, when it is committed."""

    rows: int = 20
    """At most so many rows an epoch."""

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ConfigError(f"console: rows is {self.rows}", hint="0 shows only how many there are")

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(
            Level.AT_LEAST_ONCE,
            Way.SPOOLED,
            "a terminal cannot take back what it has shown, nor say what that was, so a crash may show an epoch twice",
            mend="for rows that count, use a sink that remembers, such as `sqlite` or `parquet`",
        )

    def target(self) -> str:
        return "standard output"

    def open_applier(self, binding: Binding) -> ConsoleApplier:
        return ConsoleApplier(self.rows, sys.stdout)

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._console_scratch import ConsoleScratch

        return ConsoleScratch.of(token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._console_scratch import ConsoleScratch

        return ConsoleScratch.tokens()


class ConsoleApplier(Applier):
    """Writes an epoch's first rows to a stream, as a small table."""

    def __init__(self, rows: int, stream: TextIO) -> None:
        self.rows = rows
        self.stream = stream

    def ledger(self) -> None:
        return None

    def raise_fence(self, fence: int) -> None:
        """A terminal obeys whoever writes to it; the spool, which is fenced, is what keeps an older driver away."""

    def apply(self, token: Token, batches: Iterator[pa.RecordBatch]) -> bool:
        names: list[str] = []
        shown: list[tuple[object, ...]] = []
        for batch in batches:
            names = names or batch.schema.names
            part = batch.slice(0, self.rows - len(shown))
            if part.num_rows:
                shown += zip(*(_values(column) for column in part.columns), strict=True)
        title = f"{token.sink} · epoch {token.epoch} · {_number(token.rows, len(shown))}"
        lines = [title, *_table([names, *shown])] if shown else [title]
        try:
            self.stream.write(_encodable("\n".join(lines) + "\n", self.stream))
            self.stream.flush()
        except (OSError, ValueError) as error:  # a pipe that nobody reads any more; a stream that was closed
            raise SinkError(
                f"sink `{token.sink}`: epoch {token.epoch} could not be shown: {error}",
                hint="keep standard output open, or take the console sink out of the pipeline",
            ) from error
        return True


def _values(column: pa.Array) -> list[object]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # a date that Python does not know must not hold up the epoch
        return ["(cannot be shown)"] * len(column)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _number(rows: int, shown: int) -> str:
    words = f"{rows:,} row{'' if rows == 1 else 's'}"
    return words if shown == rows else f"{words}, {shown:,} shown"


def _table(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Columns side by side, a line under the names; numbers stand to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*cells, strict=True)]
    for number, (row, texts) in enumerate(zip(rows, cells, strict=True)):
        yield "  ".join(_padded(v, t, w) for v, t, w in zip(row, texts, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("─" * width for width in widths)


def _padded(value: object, text: str, width: int) -> str:
    space = " " * (width - cell_len(text))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return space + text if is_number else text + space


def _cell(value: object) -> str:
    """One line of printable text: rows from outside must not move the cursor or colour the screen."""
    text = "null" if value is None else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if cell_len(text) <= _CELL_WIDTH_MAX else set_cell_size(text, _CELL_WIDTH_MAX - 1).rstrip() + "…"
