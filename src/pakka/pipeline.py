"""The Python interface: run a pipeline, or deliver a stream or a DataFrame that the user already has."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pakka.contract.pipeline import Output, Pipeline
from pakka.contract.sink import Sink
from pakka.contract.state import StateStore
from pakka.coordinator.epoch import EpochReport
from pakka.coordinator.recovery import Recovered
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.rule import Rule
from pakka.quality.judge import Judge
from pakka.sources.frame import FrameSource
from pakka.spark.plan import make_plan
from pakka.spark.run import run
from pakka.spark.stream import Delivery, checkpoint_of
from pakka.state import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Deliver", "deliver", "deliver_batch", "run"]

_STATE = "sqlite:///.pakka/state.db"
_SPOOL = ".pakka/spool"
_BATCH = "batch"
"""Stands for the query in the origin of an epoch that no query made."""

Sinks = Mapping[str, Output | Sink] | Sequence[Output | Sink]


class Deliver:
    """A function for `foreachBatch`. It takes the pipeline's fence at the first epoch, and holds it until `close`."""

    def __init__(self, make: Callable[[DataFrame], Pipeline]) -> None:
        self._make = make
        self._delivery: Delivery | None = None
        self._store: StateStore | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._delivery is None:
            pipeline = self._make(batch).chosen()
            self._store = open_store(pipeline.state)
            plan = make_plan(pipeline, batch, Judge(pipeline.quality))
            delivery = Delivery(pipeline, plan, self._store)
            delivery.start(checkpoint_of(batch), batch.sparkSession)
            self._delivery = delivery
        self._delivery.on_batch(batch, number)

    def close(self) -> None:
        """Enter the last epoch as committed. Call it after the query has stopped; a crash needs no close."""
        delivery, store, self._delivery, self._store = self._delivery, self._store, None, None
        try:
            if delivery is not None:
                delivery.close()
        finally:
            if store is not None:
                store.close()


def deliver(
    to: Sinks,
    pipeline: str,
    *,
    state: str = _STATE,
    quality: Sequence[Rule] = (),
    dead_letters: Output | Sink | None = None,
    spool: str = _SPOOL,
    slots: int | None = None,
) -> Deliver:
    """Deliver an existing stream exactly once: `stream.writeStream.foreachBatch(pakka.deliver(to=[sink], ...))`."""

    def make(batch: DataFrame) -> Pipeline:
        source = FrameSource(batch, is_replayable=True)
        return _pipeline(pipeline, source, to, state, quality, dead_letters, spool, slots)

    return Deliver(make)


def deliver_batch(
    frame: DataFrame,
    to: Sinks,
    pipeline: str,
    key: str,
    *,
    state: str = _STATE,
    quality: Sequence[Rule] = (),
    dead_letters: Output | Sink | None = None,
    spool: str = _SPOOL,
    slots: int | None = None,
) -> EpochReport:
    """Deliver a batch DataFrame as one epoch. The same `key` again, such as a date, delivers nothing again."""
    source = FrameSource(frame, is_replayable=True)
    made = _pipeline(pipeline, source, to, state, quality, dead_letters, spool, slots).chosen()
    plan = make_plan(made, frame, Judge(made.quality))
    with closing(open_store(state)) as store:
        delivery = Delivery(made, plan, store)
        try:
            run = delivery.start(None, frame.sparkSession)
            digest = hashlib.sha256(key.encode()).hexdigest()
            for row in store.window(pipeline, limit=1000):
                if row.epoch.origin.digest == digest and row.epoch.number <= _last(run):
                    return EpochReport(row.epoch, False, Count(), {})
            origin = Origin(_BATCH, _next_batch(run, digest), digest)
            return delivery.deliver(frame, origin, int(time.time() * 1e6))
        finally:
            delivery.close()


def _last(run: Recovered) -> int:
    return run.committed.number if run.committed else -1


def _next_batch(run: Recovered, digest: str) -> int:
    """The batch after the newest; or the very same one, if it was decided and a sink has lost its records."""
    epoch: Epoch | None = run.reopened.epoch if run.reopened else None
    if epoch is not None and epoch.origin.digest == digest:
        return epoch.origin.batch
    return _last(run) + 1 - run.base


def _pipeline(
    name: str,
    source: FrameSource,
    to: Sinks,
    state: str,
    quality: Sequence[Rule],
    dead_letters: Output | Sink | None,
    spool: str,
    slots: int | None,
) -> Pipeline:
    sinks = to if isinstance(to, Mapping) else {f"sink{i}" if len(to) > 1 else "sink": s for i, s in enumerate(to)}
    return Pipeline(
        name,
        source,
        sinks,
        quality=tuple(quality),
        dead_letters=dead_letters,
        state=state,
        spool=spool,
        slots=slots,
    )
