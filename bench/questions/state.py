"""Does the state store get slower with the epochs it has seen?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench import scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.driver import OWNER, PIPELINE, origin
from bench.measure import in_turns, timed
from pakka.contract.state import Decision, StateStore
from pakka.model.epoch import Count, Epoch
from pakka.model.id import Slot
from pakka.model.prepared import Prepared, checksum_of
from pakka.state import open_store
from tests.fixtures.postgres import find_binaries, running_server

YOUNG = {"tiny": 5, "small": 100, "full": 100}
OLD = {
    "sqlite": {"tiny": 50, "small": 100_000, "full": 100_000},
    "postgresql": {"tiny": 20, "small": 5_000, "full": 100_000},
}
ROUNDS = {"tiny": 2, "small": 15, "full": 40}
DECISIONS = 20
"""Decided and settled in one round, so that the young store stays young."""
_SAME = Goal(1.10, words="same time, within noise (1.10x)")
_FAST = {"sqlite": "PRAGMA synchronous = OFF", "postgresql": "SET synchronous_commit = off"}


@dataclass
class Place:
    """A store with a past of so many epochs, and what comes next."""

    url: str
    epochs: int
    store: StateStore = field(init=False)
    numbers: Iterator[int] = field(init=False)

    def fill(self) -> None:
        """Decide and settle the past, without waiting for the disk; then open it again as it is meant to be."""
        with closing(open_store(self.url)) as store:
            fast: Any = store
            fast._execute(_FAST[self.url.partition(":")[0]])
            fence = store.take_fence(PIPELINE, OWNER).fence
            for number in range(self.epochs):
                store.decide(decision(number, fence))
            store.settle(PIPELINE, fence, self.epochs - 1)
        self.numbers = itertools.count(self.epochs)
        self.store = open_store(self.url)
        self.fence = self.store.take_fence(PIPELINE, OWNER).fence

    def decide(self) -> float:
        """Seconds for one decision, as the coordinator makes them: each settles the one before."""
        made = [decision(next(self.numbers), self.fence) for _ in range(DECISIONS)]

        def work() -> None:
            for each in made:
                self.store.decide(each)

        return timed(work) / DECISIONS

    def settle(self) -> float:
        """Seconds to settle an epoch by itself, as at the end of a run."""
        spent = 0.0
        for _ in range(DECISIONS):
            made = decision(next(self.numbers), self.fence)
            self.store.decide(made)
            spent += timed(partial(self.store.settle, PIPELINE, self.fence, made.epoch.number))
        return spent / DECISIONS

    def recover(self) -> float:
        """Seconds until a new driver owns the pipeline and knows the epoch that is in doubt."""
        made = decision(next(self.numbers), self.fence)
        self.store.decide(made)
        self.store.close()

        def take_over() -> None:
            self.store = open_store(self.url)
            state = self.store.take_fence(PIPELINE, OWNER)
            assert [d.epoch.number for d in state.open] == [made.epoch.number]
            self.fence = state.fence
            self.store.find(PIPELINE, state.committed)

        return timed(take_over)


def decision(number: int, fence: int) -> Decision:
    """Two sinks, four slots."""
    records = tuple(
        Prepared(
            Slot(PIPELINE, sink, number, fence, slot, number), 100, checksum_of(number * 7919 + slot), {"bytes": 1}
        )
        for slot in range(4)
        for sink in ("lake", "audit")
    )
    return Decision(Epoch(PIPELINE, number, origin(number)), fence, records, Count(400, 400), 1_700_000_000.0 + number)


def answer(size: str) -> Answer:
    figures: list[Figure] = []
    notes = ["Two sinks and four slots an epoch; the past is written without waiting for the disk, all else with it."]
    with scratch.directory("state") as place:
        figures += _figures("sqlite", size, lambda name: f"sqlite:///{place}/{name}.db")
    binaries = find_binaries()
    if binaries is None:
        notes.append("No PostgreSQL server on this machine (`make setup-postgres`), so it was not asked.")
    else:
        with running_server(binaries) as server:
            figures += _figures("postgresql", size, lambda _: server.create_database())
    return Answer("state", size, tuple(figures), tuple(notes), ROUNDS[size])


def _figures(kind: str, size: str, url: Callable[[str], str]) -> list[Figure]:
    young, old = Place(url("young"), YOUNG[size]), Place(url("old"), OLD[kind][size])
    figures = []
    for place in (young, old):
        place.fill()
    for what in ("decide", "settle", "recover"):
        taken = in_turns({"young": getattr(young, what), "old": getattr(old, what)}, ROUNDS[size])
        ages = f"{old.epochs:,} epochs against after {young.epochs:,}"
        figures += [
            Figure(f"{kind}: {what} after {ages}", Spread.ratio(taken["old"], taken["young"]), "x", _SAME),
            Figure(f"{kind}: {what} after {young.epochs:,}", Spread.of(taken["young"]).scaled(1e3), "ms"),
            Figure(f"{kind}: {what} after {old.epochs:,}", Spread.of(taken["old"]).scaled(1e3), "ms"),
        ]
    for place in (young, old):
        place.store.close()
    return figures
