"""Looks at what no event tells: what is in doubt in the sinks, and how far behind source and sinks are.

It runs in a thread of its own, now and then, with connections of its own, and only reads. A sink that hangs holds up the
sampler and nothing else; a look that fails is counted, and its gauges are gone until one succeeds.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from pakka.contract.lag import Lag, Lagging, LaggingSink
from pakka.contract.pipeline import Pipeline
from pakka.contract.state import Owner, PipelineState
from pakka.coordinator.doubt import Desk, Survey
from pakka.errors import PakkaError, UsageError
from pakka.model.id import Binding
from pakka.observe.figures import SOURCE, STATE, Figures, Part, sink_part
from pakka.state import open_store

EVERY_S = 15.0


class Sampler(threading.Thread):
    """Looks at once, and then every so often until it is told to stop."""

    def __init__(self, pipeline: Pipeline, figures: Figures, every_s: float = EVERY_S) -> None:
        super().__init__(name="pakka-sampler", daemon=True)
        self.pipeline = pipeline
        self.figures = figures
        self.every_s = every_s
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            self.look()
            self._is_over.wait(self.every_s)

    def stop(self) -> None:
        """Not waited for: it may be held up by a sink that does not answer, and has nothing to finish."""
        self._is_over.set()

    def look(self) -> None:
        """Look once."""
        state = self._look_at_doubts()
        self._look_at_lags(_position(state))

    def _look_at_doubts(self) -> PipelineState | None:
        sinks = {name: output.sink for name, output in self.pipeline.outputs.items()}
        desk = Desk(
            self.pipeline.name, sinks, self.pipeline.slots, self.pipeline.spool_path, time.time, _is_this_process
        )
        failed: list[Part] = []
        try:
            with closing(open_store(self.pipeline.state, must_exist=True)) as store:
                survey = desk.survey(store)
        except PakkaError as error:
            # The first run of a pipeline makes it, when Spark is up. Until then there is none to be asked.
            is_to_come = isinstance(error, UsageError) and not self.figures.has_started
            failed += [] if is_to_come else [STATE]
            # The sinks still have much to tell.
            survey = desk.survey(None)
        failed += [sink_part(name) for name in sinks if name not in survey.ledgers]
        self.figures.see_doubts(_doubts(survey), failed)
        return survey.state

    def _look_at_lags(self, position: str) -> None:
        source, name, spool = self.pipeline.source, self.pipeline.name, self.pipeline.spool_path
        asks: dict[Part, Callable[[], Sequence[Lag]]] = {
            sink_part(sink): partial(output.sink.lags, Binding(name, sink, spool))
            for sink, output in self.pipeline.outputs.items()
            if isinstance(output.sink, LaggingSink)
        }
        if isinstance(source, Lagging):
            asks[SOURCE] = partial(source.lags, position)
        lags: dict[Part, Sequence[Lag]] = {}
        failed: list[Part] = []
        for part, ask in asks.items():
            try:
                lags[part] = ask()
            except Exception:  # whatever a driver library raises: a figure less, and it is counted
                failed.append(part)
        self.figures.see_lags(lags, failed)


def _doubts(survey: Survey) -> dict[str, tuple[int, float]]:
    """Of every sink that was asked: how many records, and the age of the oldest."""
    parts = {name: survey.of_sink(name) for name in survey.ledgers}
    return {name: (len(part.cases), part.oldest_s or 0.0) for name, part in parts.items()}


def _position(state: PipelineState | None) -> str:
    """Where the newest decided epoch ended, in the source's own words."""
    if state is None:
        return ""
    origin = state.open[-1].epoch.origin if state.open else state.origin
    return origin.position if origin else ""


def _is_this_process(owner: Owner) -> bool | None:
    return True if (owner.host, owner.pid) == (socket.gethostname(), os.getpid()) else None
