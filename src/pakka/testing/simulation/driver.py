"""One driver: the real coordinator, with all that it touches simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar

from pakka.contract.state import Owner, StateStore
from pakka.coordinator.epoch import Coordinator
from pakka.coordinator.retry import Retry
from pakka.errors import BugError, PakkaError, RegressError
from pakka.points import reach
from pakka.testing.simulation.judge import BUG
from pakka.testing.simulation.sinks import PlaceSink
from pakka.testing.simulation.spark import PIPELINE, QueryFailed, Spark
from pakka.testing.simulation.world import STORE, World

T = TypeVar("T")


class SeededPool(Executor):
    """A pool without threads. What it would do at once it does in an order of the seed's, or leaves to the caller."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        if self.chance.random() < 0.5:
            # Nobody has begun it yet, so the caller may still take it back and do it itself.
            future.set_result(fn(*args, **kwargs))
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        calls = list(zip(*iterables, strict=True))
        answers = {i: fn(*calls[i]) for i in self.chance.sample(range(len(calls)), len(calls))}
        return iter([answers[i] for i in range(len(calls))])


class Driver:
    """What `pakka.spark.run` does around the query. `end` says how it went: None while it runs."""

    def __init__(
        self,
        name: str,
        world: World,
        spark: Spark,
        store: StateStore,
        sinks: Mapping[str, PlaceSink],
        beside: Sequence[Driver],
        on_refusal: Callable[[Driver], None],
    ) -> None:
        self.name = name
        self.world = world
        self.spark = spark
        self.on_refusal = on_refusal
        """Called when the regress guard has ended this driver."""
        self.store_life = world.lives[STORE]
        """Which state store this driver began with."""
        self.is_beside_older: bool = any(d.has_old_knowledge or d.is_beside_older for d in beside)
        self.end: str = "crashed"
        self.coordinator = Coordinator(
            PIPELINE,
            sinks,
            store,
            spool="spool",
            owner=Owner(name, len(name), world.now_s),
            clock=world.clock,
            sleep=world.sleep,
            pool=SeededPool(world.chance),
            retry=Retry(attempts=world.plan.attempts),
            sweep_every=world.plan.sweep_every,
        )

    @property
    def has_old_knowledge(self) -> bool:
        """The state store was replaced under it, or under one that ran when it began. That one may acknowledge an epoch which
        no store knows of. The guard may refuse what it sees then; the next run, with nobody beside it, must not be refused.
        """
        return self.is_beside_older or self.store_life != self.world.lives[STORE]

    def run(self) -> None:
        """Run until the source ends, or something ends the driver."""
        try:
            self._run()
            self.end = "done"
        except BugError as error:
            # A store in the place of a lost one may have given this driver's fence to another, and takes it for that one.
            if not self.has_old_knowledge:
                raise self.world.fail(BUG, error.message) from error
            self.end = "BugError"
        except (PakkaError, QueryFailed) as error:
            self.end = type(error).__name__
            self.world.note(f"ENDS by {self.end}", str(error).split("\n", maxsplit=1)[0])
            if isinstance(error, RegressError):
                self.on_refusal(self)
        except Exception as error:
            raise self.world.fail(BUG, f"{type(error).__name__}: {error}") from error
        self.world.counts[f"driver: {self.end}"] += 1

    def _run(self) -> None:
        coordinator = self.coordinator
        try:
            recovered = coordinator.start(self.spark.look)
            self._started()
            self.world.note("started", f"fence {coordinator.fence}, committed {recovered.committed}")
            for origin, _ in self.spark.batches():
                report = coordinator.deliver(origin, self.spark.prepare)
                reach("acknowledge.before", report.epoch.number)
                self.spark.acknowledge(origin.batch, report.epoch.number, coordinator.fence)
        except QueryFailed:
            coordinator.check_fence()
            raise
        finally:
            coordinator.stop()

    def _started(self) -> None:
        run, world = self.coordinator.run, self.world
        world.counts["recoveries"] += 1
        world.counts["decisions finished by recovery"] += run.finished
        world.counts["records aborted by recovery"] += run.aborted
        world.counts["epochs reopened"] += run.reopened is not None
        world.counts["sinks that held an epoch"] += len(run.held)
        self.spark.judge.starts(run.state.fence, self.name)
        if self.store_life == world.lives[STORE]:
            self.spark.judge.recovers(run.state.fence)
