"""How long does the driver take to decide and commit an epoch of very many slots?"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from bench import scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.driver import Simulation, driver, origin
from pakka.state import open_store

SLOTS = {"tiny": 20, "small": 10_000, "full": 10_000}
ROUNDS = {"tiny": 1, "small": 3, "full": 7}


def answer(size: str) -> Answer:
    slots, rounds = SLOTS[size], ROUNDS[size]
    with scratch.directory("slots") as place:
        whole, decide, commit = _run(place, slots, rounds)
        state_bytes = sum(p.stat().st_size for p in place.glob("state.db*"))
    figures = (
        Figure(f"decide and commit {slots:,} slots", Spread.of(whole), "s", Goal(5.0)),
        Figure("of that, the decision (SQLite)", Spread.of(decide), "s"),
        Figure("of that, the commit (simulated sink)", Spread.of(commit), "s"),
        Figure("state store on disk", Spread.of([state_bytes / 1e6]), "MB"),
    )
    note = "The simulated sink commits each slot on its own, in eight threads, and holds no rows."
    return Answer("slots", size, figures, (note,), rounds)


def _run(place: Path, slots: int, rounds: int) -> tuple[list[float], list[float], list[float]]:
    simulation = Simulation(sinks=1, slots=slots)
    whole, decide, commit = [], [], []
    with (
        closing(open_store(f"sqlite:///{place}/state.db")) as store,
        driver(simulation.sinks, store, str(place / "spool")) as coordinator,
    ):
        for number in range(rounds + 1):
            report = coordinator.deliver(origin(number), simulation.prepare)
            simulation.forget()
            if number > 0:  # the first warms up
                decide.append(report.decide_s)
                commit.append(report.commit_s)
                whole.append(report.decide_s + report.commit_s)
    return whole, decide, commit
