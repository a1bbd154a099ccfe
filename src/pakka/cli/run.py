"""`pakka run`: run a pipeline, show how it stands, and stop between two epochs when asked to."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import click

from pakka.cli.board import Board
from pakka.cli.check import check_level, guarantee_of, settings_of
from pakka.cli.option import load, requires, tells
from pakka.cli.render import Screen
from pakka.contract.pipeline import Pipeline
from pakka.model.event import Delivered, Event, Listen, to_json
from pakka.notice import heard
from pakka.observe.figures import Figures
from pakka.registry import missing_library

_REDRAW_S = 0.25
_INTERRUPTED = 130


@click.command("run")
@click.argument("file")
@requires
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus at this port; 0 takes any that is free, and says which.",
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to serve them at; `0.0.0.0` for all of this machine.",
)
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@tells
@click.pass_obj
def command(
    screen: Screen, file: str, require: str | None, metrics_port: int | None, metrics_address: str, quiet: bool
) -> None:
    """Run the pipeline in FILE: deliver every epoch to all of its sinks, once.

    By default a run takes all there is and ends; with `trigger: {interval: 10s}` it goes on for ever. A run that was killed
    at any point is recovered by the next one. Settings of the source, the sinks and the state store are looked at again before the
    decision of every 20th epoch: one that has become too weak for the guarantee stops the run there.

    Ctrl-C or SIGTERM ends it after the epoch under way. With --json each event is one line on stdout. With --verbose Spark's own
    messages are let through. docs/reference/metrics.md has all metrics, and alerts on them.
    """
    screen.is_quiet = quiet
    pipeline = load(file, screen).chosen()
    settings = settings_of(pipeline)
    check_level(pipeline, guarantee_of(pipeline, settings), require)
    for setting in settings:
        if setting.is_breaking:
            screen.talk(f"warning: {setting.part.name}: {setting.part.because} ({setting.part.mend})")
    figures = Figures(pipeline.name, pipeline.outputs, time.time)
    with screen.steady(), ExitStack() as stack:
        url = ""
        if metrics_port is not None:
            url = stack.enter_context(_serving(screen, figures, metrics_address, metrics_port))
        if url or not (screen.is_quiet or screen.is_json):
            # Otherwise nobody would see it, and to look takes connections of its own.
            stack.enter_context(_looking(pipeline, figures))
        _run(screen, pipeline, figures, url)


@contextmanager
def _serving(screen: Screen, figures: Figures, address: str, port: int) -> Iterator[str]:
    """Serve the metrics of a run while the block runs. Gives where."""
    try:
        from pakka.observe.endpoint import serve
    except ModuleNotFoundError as error:
        raise missing_library("--metrics-port", error) from error
    with serve(figures, address, port) as url:
        if screen.is_json:
            screen.say_json({"event": "serving", "pipeline": figures.pipeline, "metrics": url}, is_line=True)
        screen.talk(f"{figures.pipeline}: metrics at {url}")
        try:
            yield url
        finally:
            figures.end()


@contextmanager
def _looking(pipeline: Pipeline, figures: Figures) -> Iterator[None]:
    """Look while the block runs at what no event tells."""
    from pakka.observe.sampler import Sampler

    sampler = Sampler(pipeline, figures)
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()


def _run(screen: Screen, pipeline: Pipeline, figures: Figures, metrics: str) -> None:
    board = Board(pipeline.name, time.monotonic, glance=figures.glance)
    asked = Asked()
    lock = threading.Lock()

    def listen(event: Event) -> None:
        figures.take(event)
        # Sinks commit side by side, and so do their events come.
        with lock:
            line = board.take(event)
            if screen.is_json:
                screen.say_json(to_json(event), is_line=True)
        if line is not None and not (screen.has_live and isinstance(event, Delivered)):
            screen.talk(line)

    job = Job(pipeline, listen, asked.stop, screen.is_verbose, metrics)
    with asked.signals(), heard(pipeline.name, listen), screen.live() if screen.has_live else nullcontext() as draw:
        if draw is None:
            screen.talk(board.line())
        job.start()
        while job.is_alive():
            _tell_signals(screen, asked)
            board.is_stopping = asked.stop.is_set()
            if draw is not None:
                with lock:
                    line = board.line()
                draw(line)
            job.join(_REDRAW_S)
    job.raise_error()


def _tell_signals(screen: Screen, asked: Asked) -> None:
    for number in asked.untold():
        if number == 1:
            screen.talk("stopping after the epoch under way")
        else:
            screen.talk(
                "still waiting for that epoch; a third signal ends the process at once, and the next run recovers"
            )


@dataclass
class Asked:
    """Signals that ask the run to stop. A handler only takes note: it may strike in the middle of any print."""

    stop: threading.Event = field(default_factory=threading.Event)
    count: int = 0
    _told: int = 0

    def take(self, _number: int, _frame: Any) -> None:
        self.count += 1
        self.stop.set()
        if self.count > 2:
            # Asked three times. Whatever is under way, the next run recovers it; Spark's JVM ends with this process.
            os._exit(_INTERRUPTED)

    def untold(self) -> Iterator[int]:
        """The signals that nobody has been told about yet, counted from 1."""
        while self._told < self.count:
            self._told += 1
            yield self._told

    @contextmanager
    def signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Job(threading.Thread):
    """The run itself, beside the main thread: pyspark would take SIGINT for itself if it started on the main thread."""

    def __init__(
        self, pipeline: Pipeline, listen: Listen, stop: threading.Event, is_verbose: bool, metrics: str
    ) -> None:
        super().__init__(name="pakka-run", daemon=True)
        self.pipeline = pipeline
        self.listen = listen
        self.stop = stop
        self.is_verbose = is_verbose
        self.metrics = metrics
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            from pakka.spark.run import run

            run(self.pipeline, listen=self.listen, stop=self.stop, verbose=self.is_verbose, metrics=self.metrics)
        except BaseException as error:
            self.error = error

    def raise_error(self) -> None:
        """Raise in the main thread what ended the run."""
        if self.error is not None:
            raise self.error
