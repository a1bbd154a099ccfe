"""Rows of a stream into an empty table or topic: through pakka, through Spark's own writer, or with no Spark at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import engine
from bench.answer import Figure, Goal, Spread
from bench.engine import OnBatch, Run
from bench.measure import cpu_since, tree_cpu
from bench.sql import Jdbc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pakka.contract.sink import Sink

Side = Callable[[], Run]


@dataclass
class Append:
    """What every side of one question has in common. All must leave the same rows, each exactly once."""

    frame: DataFrame
    place: Path
    database: Callable[[], AbstractContextManager[str]]
    """A new database with an empty table, or a new topic, for one run; where it is."""
    total: Callable[[str], tuple[int, str]]
    """The number of rows in it, and a sum over them."""
    totals: set[tuple[int, str]] = field(default_factory=set)

    def pakka(self, sink: Callable[[str], Sink]) -> Side:
        import pakka

        def run(url: str) -> Run:
            state, spool = f"sqlite:///{self.place}/run/state.db", str(self.place / "run" / "spool")
            deliver = pakka.deliver([sink(url)], "bench", state=state, spool=spool)
            return engine.run_stream(self.frame, self.place / "run", deliver, deliver.close)

        return self._checked(run)

    def jdbc(self, jdbc: Jdbc) -> Side:
        return self.each(lambda url: lambda batch, _: jdbc.append(batch, url))

    def each(self, on_batch: Callable[[str], OnBatch]) -> Side:
        """As a user would do it by hand in foreachBatch."""
        return self._checked(lambda url: engine.run_stream(self.frame, self.place / "run", on_batch(url)))

    def stream(self, writer: Callable[[str], DataStreamWriter]) -> Side:
        """Through a streaming sink of Spark's own."""

        def start(url: str, place: Path) -> StreamingQuery:
            made = writer(url).option("checkpointLocation", str(place / "checkpoint"))
            return made.trigger(availableNow=True).start()

        return self._checked(lambda url: engine.run_all(self.place / "run", partial(start, url)))

    def alone(self, work: Callable[[str], None]) -> Side:
        def run(url: str) -> Run:
            os.sync()
            before, began = tree_cpu(), time.perf_counter()
            work(url)
            return Run(time.perf_counter() - began, cpu_since(before), 0.0, ())

        return self._checked(run)

    def _checked(self, run: Callable[[str], Run]) -> Side:
        def checked() -> Run:
            with self.database() as url:
                done = run(url)
                self.totals.add(self.total(url))
            if len(self.totals) != 1:
                raise AssertionError(f"two sides left other rows than each other: {self.totals}")
            return done

        return checked


def figures(
    runs: Mapping[str, list[Run]], count: int, ours: Iterable[str], goals: Mapping[str, Goal | None]
) -> list[Figure]:
    """The first of ours is judged against each peer; the others are shown beside it."""
    rates = {name: [count / r.wall_s for r in side] for name, side in runs.items()}
    cpu = {name: [r.cpu_s for r in side] for name, side in runs.items()}
    first, *others = ours
    made = []
    for peer in (p for p in goals if p in runs):
        made.append(
            Figure(f"rows/s, {first} against {peer}", Spread.ratio(rates[first], rates[peer]), "x", goals[peer])
        )
        made += [Figure(f"rows/s, {o} against {peer}", Spread.ratio(rates[o], rates[peer]), "x") for o in others]
        made.append(Figure(f"processor time, {first} against {peer}", Spread.ratio(cpu[first], cpu[peer]), "x"))
    for name, side in runs.items():
        made.append(Figure(name, Spread.of(rates[name]), "rows/s"))
        made.append(Figure(f"{name}, wall time", Spread.of([r.wall_s for r in side]), "s"))
        made.append(Figure(f"{name}, processor time", Spread.of(cpu[name]), "s"))
        for part in sorted({p for r in side for p in r.cpu}):
            spent = Spread.of([r.cpu.get(part, 0.0) for r in side])
            made.append(Figure(f"{name}, processor time of {part}", spent, "s"))
    return made
