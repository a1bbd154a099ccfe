"""`pakka init`: an example that runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from pakka.cli.option import tells
from pakka.cli.render import Screen
from pakka.errors import UsageError

_DATA = "data/settlements"
_FILES = 12
_ROWS = 200
_README = """\
# Refunds

An example for pakka: settlements come in as JSON files, and a refund for each goes to Parquet files and, in short, to a
SQLite table. Rows that break a rule go to the dead letters. Every epoch lands in all three at once, or in none.

    pakka check refunds.yaml     which guarantee this is, and why
    pakka run refunds.yaml       deliver what is in data/settlements
    pakka status refunds         what was delivered
    pakka run refunds.yaml       again: nothing is delivered twice

Kill a run wherever you like (kill -9), and start it again.

The results are out/refunds/*.parquet, out/dead/*.parquet and the table refund_audit of out/audit.db. Put another JSON file into
data/settlements and run again. To begin from nothing, delete out and .pakka.
"""


@click.command("init")
@click.argument("directory", default=".", metavar="[DIR]")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@tells
@click.pass_obj
def command(screen: Screen, directory: str, force: bool) -> None:
    """Write an example into DIR (default: here): a pipeline file, some rows, and what to type next."""
    root = Path(directory)
    contents = {"refunds.yaml": example(), "README.md": _README, **dict(_settlements())}
    there = sorted(name for name in contents if (root / name).exists())
    if there and not force:
        raise UsageError(
            f"{root / there[0]} is there already{f', and {len(there) - 1} more' if len(there) > 1 else ''}; nothing was written",
            hint="choose another directory, or overwrite with `--force`",
        )
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if screen.is_json:
        screen.say_json({"directory": str(root), "files": sorted(contents)})
        return
    screen.say(f"{root / 'refunds.yaml'}\n{root / 'README.md'}\n{root / _DATA} ({_FILES} files)")
    go = "" if directory == "." else f"cd {directory} && "
    screen.talk(f"{_FILES * _ROWS:,} settlements, some of them broken; next: {go}pakka run refunds.yaml")


def example() -> str:
    """The example pipeline, as examples/refunds has it too."""
    return files("pakka.cli").joinpath("refunds.yaml").read_text(encoding="utf-8")


def _settlements() -> Iterator[tuple[str, str]]:
    """Files of settlements, the same every time; about one row in fifty is broken in one of four ways."""
    chance = random.Random(19)
    for number in range(_FILES):
        lines = [_settlement(number * _ROWS + row, chance) for row in range(_ROWS)]
        yield f"{_DATA}/settlements-{number:02d}.json", "\n".join(lines) + "\n"


def _settlement(number: int, chance: random.Random) -> str:
    row: dict[str, Any] = {
        "settlement_id": f"S{number:06d}",
        "merchant": f"M{chance.randrange(40):03d}",
        "amount_paise": chance.randrange(100, 5_000_000),
        "ts": f"2025-01-{1 + number // 100:02d}T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00Z",
    }
    broken = chance.randrange(200)
    if broken == 0:
        row["merchant"] = None
    elif broken == 1:
        row["amount_paise"] = -row["amount_paise"]
    elif broken == 2:
        row["amount_paise"] = "a lot"
    text = json.dumps(row)
    return text[: len(text) // 2] if broken == 3 else text
