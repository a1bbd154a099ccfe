"""The refunds story: 200,000 settlements, a driver killed in the middle of a commit, and a count of what came out.

    make demo            make demo ARGS="--rows 20000 --verbose"

Every figure of the table at the end is counted by tally.py from the input files and from the outputs, not taken from pakka.
"""

import argparse
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import settlements
import stage
import tally
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from stage import say, talk

from pakka.testing.crash import Drill

HERE = Path(__file__).resolve().parent
PIPELINE = HERE / "refunds.yaml"
KILL_IN_EPOCH = 2


def main() -> int:
    parser = argparse.ArgumentParser(description="Deliver refunds, be killed in the middle of a commit, and count.")
    given = stage.arguments(parser, 200_000, settlements.FILES, HERE.parents[1] / ".demo")
    began = time.monotonic()
    stage.make_room(given.dir)
    with talk.status(f"making {given.rows:,} settlements"):
        settlements.make(given.dir / "data" / "settlements", given.rows)
    talk.print(f"made {given.rows:,} settlements in {settlements.FILES} JSON files, about 1 in 200 of them broken\n")

    # When this strikes, both file sinks have renamed the epoch into sight. SQLite would be as fast, so it is kept busy.
    drill = Drill("commit.published", epoch=KILL_IN_EPOCH, nth=2)
    talk.print(
        f"[bold]first run[/]    pakka run {PIPELINE.name}, to be killed in epoch {KILL_IN_EPOCH} while SQLite is busy"
    )
    with _busy(given.dir / "out" / "audit.db") as hold:
        code = stage.run(given, PIPELINE, drill.environment(), hold)
    if code != -signal.SIGKILL:
        return stage.fail(given.dir, f"the first run was to be killed by SIGKILL, and ended with exit code {code}")
    say("killed", f"[red]by SIGKILL[/], in the middle of the commit of epoch {KILL_IN_EPOCH}")
    say("on disk", _at_the_kill(given.dir))

    talk.print(f"\n[bold]second run[/]   pakka run {PIPELINE.name}")
    code = stage.run(given, PIPELINE, {})
    if code != 0:
        return stage.fail(given.dir, f"the second run was to finish, and ended with exit code {code}")

    talk.print()
    with talk.status("counting inputs and outputs"):
        counted = tally.tally(given.dir)
    Console(highlight=False).print(_table(counted, kills=1))
    talk.print(f"[dim]counted from the input files, Parquet and SQLite; {time.monotonic() - began:.0f} s in all[/]")
    return stage.finish(given, counted.wrong())


@contextmanager
def _busy(database: Path) -> Iterator[Callable[[int], None]]:
    """A program that holds SQLite's lock from the epoch before the kill until the driver is dead."""
    with ExitStack() as held:

        def hold(delivered: int) -> None:
            if delivered == KILL_IN_EPOCH - 1:
                db = held.enter_context(closing(sqlite3.connect(database, timeout=30, isolation_level=None)))
                db.execute("BEGIN IMMEDIATE")

        yield hold


def _at_the_kill(root: Path) -> str:
    """What a reader finds at this very moment, looking into the outputs and nowhere else."""
    refunds = tally.parquet_rows(root / "out" / "refunds").total()
    audit = tally.sqlite_rows(root / "out" / "audit.db").total()
    where = f"epoch {KILL_IN_EPOCH} is in one, not in the other" if refunds != audit else "the same epochs in both"
    return f"{refunds:,} refunds in Parquet, {audit:,} in SQLite: {where}"


def _table(counted: tally.Tally, kills: int) -> Table:
    table = stage.outputs_table(counted.rows_in, counted.outputs)
    for rule, (expected, there) in counted.broken.items():
        style = "dim" if expected == there else "red"
        table.add_row(f"  {escape(rule)}", f"{expected:,}", f"{there:,}", "", "", style=style)
    table.add_row("epochs", "", f"{counted.epochs}", "", "")
    table.add_row("kills survived", "", f"{kills}", "", "")
    return table


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing of the demo is running any more")
