"""What does an epoch cost above `foreachBatch(pass)`, when it has next to no rows?"""

from __future__ import annotations

import cProfile
import io
import pstats
import shutil
import statistics
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import engine, scratch, variants
from bench.answer import Answer, Figure, Goal, Spread
from bench.engine import OnBatch
from bench.measure import in_turns, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from pakka.contract.sink import Sink

FIRST = {"tiny": 1, "small": 15, "full": 15}
LAST = {"tiny": 3, "small": 45, "full": 80}
ROUNDS = {"tiny": 1, "small": 2, "full": 5}
WARM_UPS = {"tiny": 0, "small": 1, "full": 1}

Epochs = tuple[dict[str, Any], ...]
Open = Callable[[Path], AbstractContextManager[OnBatch]]


def answer(size: str) -> Answer:
    frame = engine.read_numbers(engine.open_spark())
    with scratch.directory("overhead") as place:
        sides = {name: _side(frame, place, open_, size) for name, open_ in SIDES.items()}
        runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    figures = _figures({name: [_durations(e) for e in epochs] for name, epochs in runs.items()})
    notes = (
        f"100 rows an epoch, rate source, two partitions, epochs {FIRST[size]} to {LAST[size]} of each run, SQLite state; a "
        "round's figure is the median of its epochs, by Spark's `triggerExecution`.",
        "Bare is one Spark job with mapInArrow and collect: what any delivery out of Python tasks costs. pakka above bare "
        "is what is ours.",
        *(_parts(name, epochs) for name, epochs in runs.items()),
    )
    return Answer("overhead", size, tuple(figures), notes, ROUNDS[size])


def _figures(runs: dict[str, list[list[float]]]) -> list[Figure]:
    medians = {name: [statistics.median(r) for r in rounds] for name, rounds in runs.items()}
    memory = "pakka, memory sink"
    figures = [
        Figure(f"{memory}, above pass", Spread.difference(medians[memory], medians["pass"]), "ms", Goal(120.0)),
        Figure(f"{memory}, above bare", Spread.difference(medians[memory], medians["bare"]), "ms"),
    ]
    for name, rounds in runs.items():
        figures.append(Figure(f"{name}, median", Spread.of(medians[name]), "ms"))
        figures.append(Figure(f"{name}, p95", Spread.of([percentile(r, 0.95) for r in rounds]), "ms"))
    return figures


def _durations(epochs: Epochs) -> list[float]:
    return [float(e["durationMs"]["triggerExecution"]) for e in epochs]


def _parts(name: str, runs: list[Epochs]) -> str:
    """Spark's own division of the time, so that its share is not taken for ours."""
    every = [e["durationMs"] for epochs in runs for e in epochs]
    parts = ("addBatch", "walCommit", "commitOffsets", "queryPlanning", "latestOffset")
    return f"{name}: " + ", ".join(f"{p} {statistics.median(d.get(p, 0) for d in every):.0f} ms" for p in parts)


def _side(frame: DataFrame, place: Path, open_: Open, size: str) -> Callable[[], Epochs]:
    def run() -> Epochs:
        here = place / "run"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        with open_(here) as on_batch:
            epochs = engine.run_epochs(frame, here / "checkpoint", on_batch, LAST[size])
        return tuple(e for e in epochs if FIRST[size] <= e["batchId"] <= LAST[size])

    return run


@contextmanager
def _pass(_: Path) -> Iterator[OnBatch]:
    yield lambda _batch, _number: None


@contextmanager
def _bare(_: Path) -> Iterator[OnBatch]:
    def on_batch(batch: DataFrame, _number: int) -> None:
        batch.mapInArrow(variants.count, "answer string").collect()

    yield on_batch


def _pakka(make: Callable[[Path], Sink]) -> Open:
    @contextmanager
    def open_(place: Path) -> Iterator[OnBatch]:
        import pakka

        state, spool = f"sqlite:///{place}/state.db", str(place / "spool")
        deliver = pakka.deliver([make(place)], "bench", state=state, spool=spool)
        try:
            yield deliver
        finally:
            deliver.close()

    return open_


def _memory(_: Path) -> Sink:
    from pakka.sinks.memory import MemorySink

    return MemorySink(uuid.uuid4().hex)


def _parquet(place: Path) -> Sink:
    from pakka.sinks.files import ParquetSink

    return ParquetSink(str(place / "out"))


def _sqlite(place: Path) -> Sink:
    from pakka.sinks.sqlite import SqliteSink

    return SqliteSink(str(place / "out.db"), "numbers")


SIDES: dict[str, Open] = {
    "pass": _pass,
    "bare": _bare,
    "pakka, memory sink": _pakka(_memory),
    "pakka, parquet sink": _pakka(_parquet),
    "pakka, sqlite sink": _pakka(_sqlite),
}


def profile(size: str) -> Answer:
    """Where the driver's Python spends an epoch with the memory sink."""
    frame = engine.read_numbers(engine.open_spark())
    profiler = cProfile.Profile()

    @contextmanager
    def profiled(place: Path) -> Iterator[OnBatch]:
        with SIDES["pakka, memory sink"](place) as deliver:

            def on_batch(batch: DataFrame, number: int) -> None:
                if number < FIRST[size]:
                    deliver(batch, number)
                else:
                    profiler.runcall(deliver, batch, number)

            yield on_batch

    with scratch.directory("overhead") as place:
        _side(frame, place, SIDES["pakka, memory sink"], size)()
        epochs = _side(frame, place, profiled, size)()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("cumtime").print_stats(50)
    figures = (Figure("pakka, memory sink, profiled, an epoch", Spread.of(_durations(epochs)), "ms"),)
    return Answer("overhead", size, figures, (f"{len(epochs)} epochs:\n\n```\n{text.getvalue()}\n```",))
