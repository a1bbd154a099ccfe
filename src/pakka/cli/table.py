"""Rows as lines of text: columns side by side, wrapped where they have to fit.

Drawn by hand: to import rich's tables took a quarter of the time of `pakka status`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import click
from rich.cells import cell_len

_COLOURS = {
    "yes": "green",
    "NO": "red",
    "committed": "green",
    "decided": "yellow",
    "PASS": "green",
    "FAIL": "red",
    "breaks": "red",
    "warns": "yellow",
}
_GAP = "  "
_NARROWEST = 10
"""No column is made narrower than this; a terminal that is too small for that breaks the lines itself."""


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int | None) -> Iterator[str]:
    """The lines of a table, at most `room` wide; None: as wide as it has to be. Columns of numbers stand to the right."""
    by_column = list(zip(columns, *rows, strict=True))
    widths = [max(cell_len(line) for cell in column for line in _lines(cell)) for column in by_column]
    if room is not None:
        _narrow(widths, room - len(_GAP) * (len(widths) - 1))
    is_right = [len(column) > 1 and all(map(_is_number, column[1:])) for column in by_column]
    for n, row in enumerate([columns, *rows]):
        wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            drawn = []
            for part, cell, width, right in zip(parts, row, widths, is_right, strict=True):
                blank = " " * (width - cell_len(part))
                styled = click.style(part, bold=True) if n == 0 else _coloured(part, cell)
                drawn.append(blank + styled if right else styled + blank)
            yield _GAP.join(drawn).rstrip()


def _coloured(part: str, cell: str) -> str:
    return click.style(part, fg=_COLOURS[cell]) if cell in _COLOURS else part


def _lines(cell: str) -> list[str]:
    return cell.splitlines() or [""]


def _wrapped(cell: str, width: int) -> list[str]:
    return [
        part for line in _lines(cell) for part in (textwrap.wrap(line, width) if cell_len(line) > width else [line])
    ]


def _narrow(widths: list[int], room: int) -> None:
    """Take from the widest column, and again, until they fit."""
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").removeprefix("-").isdigit() or cell in {"-", ""}
