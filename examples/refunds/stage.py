"""What the demos share: a driver in a child process, as anybody would start it, and what it tells, on the terminal."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tally
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MARK = ".made-by-the-demo"

# The JVM's first compiler alone: in a run of seconds the second one takes more time from two cores than it gives back.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

talk = Console(stderr=True, highlight=False, soft_wrap=True)


def say(what: str, words: str) -> None:
    talk.print(f"  {what:<10} {words}")


def make_room(directory: Path) -> None:
    """Begin with an empty directory. Only one that an earlier demo made is emptied."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            sys.exit(f"{directory} is not empty and was not made by the demo; nothing was removed")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()


def run(
    given: argparse.Namespace,
    pipeline: Path,
    variables: Mapping[str, str],
    on_delivered: Callable[[int], None] = lambda _: None,
) -> int:
    """Run the pipeline in a child process, as anybody would, and show how far it is. Returns its exit code."""
    command = [str(Path(sys.executable).with_name("pakka")), "run", str(pipeline), "--json"]
    command += ["--verbose"] if given.verbose else []
    with (
        (given.dir / "pakka.log").open("ab") as log,
        # A session of its own, so that whatever the driver starts can be found again by it.
        subprocess.Popen(
            command,
            cwd=given.dir,
            env={**_environment(), **variables},
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
                say(f"fence {event['fence']}", _recovery(event))
                line.update(f"delivering {rows:,} rows")
            elif event["event"] == "delivered":
                on_delivered(event["epoch"])
                done += event["rows_in"]
                say(f"epoch {event['epoch']}", _epoch(event))
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


def fail(directory: Path, why: str) -> int:
    log = directory / "pakka.log"
    talk.print(f"[red]the demo failed[/]: {escape(why)}")
    if log.exists():
        talk.print(escape("\n".join(log.read_text(errors="replace").splitlines()[-12:])))
    talk.print(f"what is there is kept in {directory}; Spark's own messages are in .pakka/spark.log")
    return 1


def finish(given: argparse.Namespace, wrong: list[str]) -> int:
    """The end of a demo: what is wrong, or that all is well."""
    if wrong:
        return fail(given.dir, "; ".join(wrong))
    if given.keep:
        talk.print(f"everything is kept in {given.dir}")
    else:
        shutil.rmtree(given.dir)
    return 0


def arguments(parser: argparse.ArgumentParser, rows: int, at_least: int, directory: Path) -> argparse.Namespace:
    """What every demo can be told."""
    parser.add_argument("--rows", type=int, default=rows, help=f"settlements to make (default: {rows:,})")
    parser.add_argument("--keep", action="store_true", help="keep inputs, outputs and state to look at")
    parser.add_argument("--verbose", action="store_true", help="let Spark talk")
    parser.add_argument("--dir", type=Path, default=directory, help=f"where to work (default: {directory.name})")
    given = parser.parse_args()
    if given.rows < at_least:
        parser.error(f"--rows must be at least {at_least}: there are that many files")
    given.dir = given.dir.absolute()
    return given


def outputs_table(rows_in: int, outputs: Iterable[tally.Output]) -> Table:
    """The first lines of what was counted: expected, there, lost and twice by output."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "expected", "there", "lost", "twice"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("rows in", "", f"{rows_in:,}", "", "")
    for output in outputs:
        figures = (output.expected, output.there, output.lost, output.twice + output.strange)
        table.add_row(output.name, *(f"{n:,}" for n in figures), style="" if output.is_right else "red")
    return table
