"""Does the driver's memory stay flat over many epochs?"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench import scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.driver import Simulation, driver, origin
from bench.measure import resident_bytes
from pakka.state import open_store

EPOCHS = {"tiny": (5, 20), "small": (1_000, 10_000), "full": (1_000, 10_000)}


def answer(size: str) -> Answer:
    early, late = EPOCHS[size]
    with scratch.directory("memory") as place:
        resident = _run(place / "resident", early, late, resident_bytes)
        tracemalloc.start()
        traced = _run(place / "traced", early, late, lambda: tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        state_bytes = sum(p.stat().st_size for p in (place / "resident").glob("state.db*"))
    between = f"between epoch {early:,} and {late:,}"
    figures = (
        Figure(
            f"resident memory, growth {between}",
            _one((resident[1] - resident[0]) / 1e6),
            "MB",
            Goal(2.0, words="flat: at most 2 MB"),
        ),
        Figure(
            f"Python objects, growth {between}",
            _one((traced[1] - traced[0]) / 1e3),
            "kB",
            Goal(100.0, words="flat: at most 100 kB"),
        ),
        Figure(f"resident memory after {early:,} epochs", _one(resident[0] / 1e6), "MB"),
        Figure(f"resident memory after {late:,} epochs", _one(resident[1] / 1e6), "MB"),
        Figure(f"state store on disk after {late:,} epochs", _one(state_bytes / 1e6), "MB"),
    )
    note = (
        "Coordinator, two simulated sinks, four slots, SQLite state, no Spark; two runs, one for each kind of memory."
    )
    return Answer("memory", size, figures, (note,))


def _run(place: Path, early: int, late: int, look: Callable[[], int]) -> list[int]:
    """What `look` says after `early` and after `late` epochs."""
    place.mkdir()
    simulation = Simulation(sinks=2, slots=4)
    seen = []
    with (
        closing(open_store(f"sqlite:///{place}/state.db")) as store,
        driver(simulation.sinks, store, str(place / "spool")) as coordinator,
    ):
        for number in range(late):
            coordinator.deliver(origin(number), simulation.prepare)
            simulation.forget()
            if number + 1 in (early, late):
                gc.collect()
                seen.append(look())
    return seen


def _one(value: float) -> Spread:
    return Spread.of([value])
