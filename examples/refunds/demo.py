"""The refunds story: 200,000 settlements, a driver killed in the middle of a commit, and a count of what came out.

    make demo            make demo ARGS="--rows 20000 --verbose"

Every figure of the table at the end is counted by tally.py from the input files and from the outputs, not taken from pakka.
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import settlements
import tally
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pakka.testing.crash import Drill

HERE = Path(__file__).resolve().parent
PIPELINE = HERE / "refunds.yaml"
MARK = ".made-by-the-demo"
KILL_IN_EPOCH = 2

# The JVM's first compiler alone: in a run of seconds the second one takes more time from two cores than it gives back.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

talk = Console(stderr=True, highlight=False, soft_wrap=True)


def main() -> int:
    given = _arguments()
    began = time.monotonic()
    _make_room(given.dir)
    with talk.status(f"making {given.rows:,} settlements"):
        settlements.make(given.dir / "data" / "settlements", given.rows)
    talk.print(f"made {given.rows:,} settlements in {settlements.FILES} JSON files, about 1 in 200 of them broken\n")

    # When this strikes, both file sinks have renamed the epoch into sight. SQLite would be as fast, so it is kept busy.
    drill = Drill("commit.published", epoch=KILL_IN_EPOCH, nth=2)
    talk.print(
        f"[bold]first run[/]    pakka run {PIPELINE.name}, to be killed in epoch {KILL_IN_EPOCH} while SQLite is busy"
    )
    with _busy(given.dir / "out" / "audit.db") as hold:
        code = _run(given, drill.environment(), hold)
    if code != -signal.SIGKILL:
        return _fail(given.dir, f"the first run was to be killed by SIGKILL, and ended with exit code {code}")
    _say("killed", f"[red]by SIGKILL[/], in the middle of the commit of epoch {KILL_IN_EPOCH}")
    _say("on disk", _at_the_kill(given.dir))

    talk.print(f"\n[bold]second run[/]   pakka run {PIPELINE.name}")
    code = _run(given, {})
    if code != 0:
        return _fail(given.dir, f"the second run was to finish, and ended with exit code {code}")

    talk.print()
    with talk.status("counting inputs and outputs"):
        counted = tally.tally(given.dir)
    Console(highlight=False).print(_table(counted, kills=1))
    talk.print(f"[dim]counted from the input files, Parquet and SQLite; {time.monotonic() - began:.0f} s in all[/]")
    if wrong := counted.wrong():
        return _fail(given.dir, "; ".join(wrong))
    if given.keep:
        talk.print(f"everything is kept in {given.dir}")
    else:
        shutil.rmtree(given.dir)
    return 0


def _say(what: str, words: str) -> None:
    talk.print(f"  {what:<10} {words}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Deliver refunds, be killed in the middle of a commit, and count.")
    parser.add_argument("--rows", type=int, default=200_000, help="settlements to make (default: 200,000)")
    parser.add_argument("--keep", action="store_true", help="keep inputs, outputs and state to look at")
    parser.add_argument("--verbose", action="store_true", help="let Spark talk")
    parser.add_argument("--dir", type=Path, default=HERE.parents[1] / ".demo", help="where to work (default: .demo)")
    given = parser.parse_args()
    if given.rows < settlements.FILES:
        parser.error(f"--rows must be at least {settlements.FILES}: there are that many files")
    given.dir = given.dir.absolute()
    return given


def _make_room(directory: Path) -> None:
    """Begin with an empty directory. Only one that an earlier demo made is emptied."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            sys.exit(f"{directory} is not empty and was not made by the demo; nothing was removed")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()


@contextmanager
def _busy(database: Path) -> Iterator[Callable[[int], None]]:
    """A program that holds SQLite's lock from the epoch before the kill until the driver is dead."""
    with ExitStack() as held:

        def hold(delivered: int) -> None:
            if delivered == KILL_IN_EPOCH - 1:
                db = held.enter_context(closing(sqlite3.connect(database, timeout=30, isolation_level=None)))
                db.execute("BEGIN IMMEDIATE")

        yield hold


def _run(given: argparse.Namespace, drill: dict[str, str], on_delivered: Callable[[int], None] = lambda _: None) -> int:
    """Run the pipeline in a child process, as anybody would, and show how far it is. Returns its exit code."""
    command = [str(Path(sys.executable).with_name("pakka")), "run", str(PIPELINE), "--json"]
    command += ["--verbose"] if given.verbose else []
    with (
        (given.dir / "pakka.log").open("ab") as log,
        # A session of its own, so that whatever the driver starts can be found again by it.
        subprocess.Popen(
            command,
            cwd=given.dir,
            env=_environment() | drill,
            stdout=subprocess.PIPE,
            stderr=None if given.verbose else log,
            text=True,
            start_new_session=True,
        ) as driver,
        _nothing_left_of(driver),
    ):
        assert driver.stdout is not None
        _show(driver.stdout, given.rows, on_delivered)
        return driver.wait()


def _environment() -> dict[str, str]:
    """Ours, without a drill that somebody may have armed for another run."""
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA}".strip()
    return {name: value for name, value in os.environ.items() if name != "PAKKA_DRILL"} | {"JDK_JAVA_OPTIONS": java}


def _show(events: Iterator[str], rows: int, on_delivered: Callable[[int], None]) -> None:
    """The live line, and a line of its own for recovery and each epoch."""
    done = 0
    with talk.status("starting Spark, 10 to 20 s") as line:
        for text in events:
            if not text.startswith("{"):  # a word of the JVM's own, which has the same stdout
                continue
            event = json.loads(text)
            if event["event"] == "started":
                _say(f"fence {event['fence']}", _recovery(event))
                line.update(f"delivering {rows:,} rows")
            elif event["event"] == "delivered":
                on_delivered(event["epoch"])
                done += event["rows_in"]
                _say(f"epoch {event['epoch']}", _epoch(event))
                line.update(f"delivering {rows:,} rows, {done:,} of them in this run so far")


def _recovery(event: dict[str, int]) -> str:
    if event["fence"] == 1:
        return "nothing to recover"
    epochs = f"{event['finished']} decided epoch{'' if event['finished'] == 1 else 's'} finished"
    return f"[green]recovered[/]: {epochs}, {event['aborted']} undecided records aborted"


def _epoch(event: dict[str, Any]) -> str:
    if not event["is_new"]:
        return "is in every sink; Spark is told so, nothing is written"
    return f"{event['rows_in']:,} rows in, {event['dead']:,} dead, {event['epoch_s']:.1f} s"


@contextmanager
def _nothing_left_of(driver: "subprocess.Popen[str]") -> Iterator[None]:
    """Spark's JVM ends by itself when the driver's Python is gone. Wait for it, and for all else that it started."""
    try:
        yield
    finally:
        if driver.poll() is None:  # we were interrupted
            driver.kill()
            driver.wait()
        give_up = time.monotonic() + 20
        while (left := _session(driver.pid)) and time.monotonic() < give_up:
            time.sleep(0.1)
        for pid in left:
            talk.print(f"  process {pid} of the run did not end by itself; ending it")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    """The processes of a session, as Linux lists them; none elsewhere."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _at_the_kill(root: Path) -> str:
    """What a reader finds at this very moment, looking into the outputs and nowhere else."""
    refunds = tally.parquet_rows(root / "out" / "refunds").total()
    audit = tally.sqlite_rows(root / "out" / "audit.db").total()
    where = f"epoch {KILL_IN_EPOCH} is in one, not in the other" if refunds != audit else "the same epochs in both"
    return f"{refunds:,} refunds in Parquet, {audit:,} in SQLite: {where}"


def _table(counted: tally.Tally, kills: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "expected", "there", "lost", "twice"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("rows in", "", f"{counted.rows_in:,}", "", "")
    for output in counted.outputs:
        figures = (output.expected, output.there, output.lost, output.twice + output.strange)
        table.add_row(output.name, *(f"{n:,}" for n in figures), style="" if output.is_right else "red")
    for rule, (expected, there) in counted.broken.items():
        style = "dim" if expected == there else "red"
        table.add_row(f"  {escape(rule)}", f"{expected:,}", f"{there:,}", "", "", style=style)
    table.add_row("epochs", "", f"{counted.epochs}", "", "")
    table.add_row("kills survived", "", f"{kills}", "", "")
    return table


def _fail(directory: Path, why: str) -> int:
    log = directory / "pakka.log"
    talk.print(f"[red]the demo failed[/]: {escape(why)}")
    if log.exists():
        talk.print(escape("\n".join(log.read_text(errors="replace").splitlines()[-12:])))
    talk.print(f"what is there is kept in {directory}; Spark's own messages are in .pakka/spark.log")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing of the demo is running any more")
