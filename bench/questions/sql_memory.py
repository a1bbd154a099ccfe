"""Does the memory of the driver and of Spark's workers stay flat over many epochs into PostgreSQL?"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from bench import engine, scratch, sql
from bench.answer import Answer, Figure, Goal, Spread
from bench.measure import tree_resident_bytes
from pakka.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EPOCHS = {"tiny": (2, 5), "small": (50, 250), "full": (100, 2_000)}
WHO = {"the driver": "resident memory of the driver", "workers": "resident memory of Spark's workers"}
_FLAT = Goal(5.0, words="flat: at most 5 MB")


def answer(size: str) -> Answer:
    early, late = EPOCHS[size]
    with sql.postgres_server() as server, scratch.directory("sql-memory") as place:
        if server is None:
            return Answer("sql-memory", size, (), (sql.NO_POSTGRES,), 0)
        url = server.create_database()
        seen = _run(PostgresSink(url, "numbers", way="prepared"), str(place), early, late)
    figures = []
    for kind, words in WHO.items():
        first, last = (seen[number].get(kind, 0) / 1e6 for number in (early, late))
        grown = Figure(f"{words}, growth between epoch {early:,} and {late:,}", _one(last - first), "MB", _FLAT)
        figures += [grown, Figure(f"{words}, after {early:,} epochs", _one(first), "MB")]
        figures.append(Figure(f"{words}, after {late:,} epochs", _one(last), "MB"))
    note = "100 rows an epoch in two slots, prepared, SQLite state; the workers are three processes: the one that forks, and two."
    return Answer("sql-memory", size, tuple(figures), (note,))


def _run(sink: PostgresSink, place: str, early: int, late: int) -> dict[int, dict[str, int]]:
    """What is held after `early` and after `late` epochs."""
    import pakka

    deliver = pakka.deliver([sink], "bench", state=f"sqlite:///{place}/state.db", spool=f"{place}/spool")
    seen: dict[int, dict[str, int]] = {}

    def on_batch(batch: DataFrame, number: int) -> None:
        deliver(batch, number)
        if number + 1 in (early, late):
            gc.collect()
            seen[number + 1] = tree_resident_bytes()

    frame = engine.read_numbers(engine.open_spark())
    engine.run_epochs(frame, Path(place) / "checkpoint", on_batch, late - 1)
    deliver.close()
    return seen


def _one(value: float) -> Spread:
    return Spread.of([value])
