"""foreachBatch: Spark hands over an epoch, and gets it back delivered."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from pakka.contract.pipeline import Pipeline
from pakka.contract.state import Owner, StateStore
from pakka.coordinator.epoch import Coordinator, EpochReport, Harvest
from pakka.coordinator.recovery import Recovered
from pakka.coordinator.tell import by_sink
from pakka.coordinator.watch import source_of, spool_of
from pakka.errors import AbortedError, BugError, RefusedError, RegressError, UsageError
from pakka.model.epoch import Checkpoint, Epoch, Origin
from pakka.model.event import Delivered, Listen, Started
from pakka.model.latency import Latency
from pakka.points import reach
from pakka.spark.checkpoint import batch_time_us, digest, files_for, planned_files, read
from pakka.spark.job import run_writers
from pakka.spark.lookout import Post
from pakka.spark.pace import Pace
from pakka.spark.plan import Plan
from pakka.spark.spread import over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# What Spark takes for a glob.
_GLOB = re.compile(r"[{}\[\]*?\\]")


class StopAsked(Exception):
    """Raised into Spark at the beginning of an epoch to end the query before it."""


class Delivery:
    """The callback of one query. It owns the coordinator, and keeps the error that ended the query, as it was raised."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Plan,
        store: StateStore,
        process: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        listen: Listen = lambda _: None,
        read_files: Callable[[SparkSession, list[str]], DataFrame] | None = None,
        metrics: str = "",
        post: Post | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.plan = plan
        self.process = process
        self.listen = listen
        self.read_files = read_files
        self.post = post or Post(pipeline.name)
        self.error: BaseException | None = None
        self.epochs = 0
        self.rows_in = 0
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="pakka")
        self._gate = threading.Lock()
        self._is_stopping = False
        self._checkpoint: str | None = None
        self._pace = Pace()
        self.coordinator = Coordinator(
            pipeline.name,
            {name: output.sink for name, output in pipeline.outputs.items()},
            store,
            spool=pipeline.spool_path,
            owner=Owner(socket.gethostname(), os.getpid(), time.time(), metrics),
            clock=time.time,
            sleep=time.sleep,
            pool=self._pool,
            probing={**source_of(pipeline), **spool_of(pipeline)},
            listen=listen,
        )

    def start(self, checkpoint: str | None, spark: SparkSession) -> Recovered:
        """Recover the pipeline. The checkpoint is that of the query whose callback this is; None without a query."""
        # Read under the fence: another driver may be acknowledging epochs up to that moment.
        found: list[Checkpoint] = []

        def look() -> Checkpoint:
            found.append(read(str(checkpoint), spark))
            return found[-1]

        self.coordinator.executors = over(spark)
        run = self.coordinator.start(None if checkpoint is None else look)
        self._checkpoint = checkpoint
        if found:
            self._begin(run, found[-1], spark)
        committed = run.committed.number if run.committed else -1
        undone = by_sink(run.undone)
        self.listen(Started(self.pipeline.name, run.state.fence, committed, run.finished, run.aborted, undone))
        return run

    def deliver(self, batch: DataFrame, origin: Origin, at_us: int, offsets: bytes = b"") -> EpochReport:
        """Deliver one epoch, whose rows are `batch`."""
        began = time.time()

        def prepare(epoch: Epoch, fence: int) -> Harvest:
            rows = self.process(self._once(batch, epoch.number, offsets))
            try:
                harvest = run_writers(self.plan, rows, self._slots(batch), epoch.number, fence, at_us, self._pace)
            except AbortedError as error:
                raise self.post.explained(error) from error.__cause__
            self.post.check()
            return harvest

        report = self.coordinator.deliver(origin, prepare)
        self.post.passed()
        if report.is_new:
            self.epochs += 1
            self.rows_in += report.count.rows_in
        self.listen(_delivered(report, began, at_us))
        reach("acknowledge.before", report.epoch.number)
        return report

    def on_batch(self, batch: DataFrame, number: int) -> None:
        """What foreachBatch calls."""
        # Never wait here: Spark's thread cannot be interrupted while it waits for Python.
        if not self._gate.acquire(blocking=False):
            self.error = StopAsked()
            raise self.error
        try:
            if self._is_stopping:
                raise StopAsked
            offsets = self._offsets(batch, number)
            origin = Origin(query_id(batch), number, digest(offsets), self.post.position(offsets))
            self.deliver(batch, origin, batch_time_us(offsets) or int(time.time() * 1e6), offsets)
            # Not in `deliver`: without a query the session is the user's own.
            self._pace.keep(batch.sparkSession)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._gate.release()

    def ask_to_stop(self, stop_query: Callable[[], None]) -> None:
        """End the query between two epochs. Stopping it while the callback runs has crashed Spark's own thread."""
        self._is_stopping = True
        if self._gate.acquire(blocking=False):
            try:
                stop_query()
            finally:
                self._gate.release()

    def close(self) -> None:
        """Enter the last epoch as committed and let go of the sinks."""
        # When the JVM dies the query ends at once, and the callback may still be at a commit: it is let finish.
        with self._gate:
            try:
                self.coordinator.stop()
            finally:
                self._pool.shutdown()

    def _begin(self, run: Recovered, checkpoint: Checkpoint, spark: SparkSession) -> None:
        """Let the source's lookout compare what was read before with what is there now."""
        files, root = files_for(checkpoint.path, spark)
        batch = delivered_batch(run, checkpoint)
        offsets = files.read(f"{root}/offsets/{batch}") if batch >= 0 else None
        begun = files.read(f"{root}/sources/0/0")
        try:
            # Spark notes where it begins before it plans the first epoch, and goes by it from then on.
            self.post.begin(offsets, checkpoint.planned < 0 and begun is None, begun)
        except RegressError as error:
            first = accept_first(self.pipeline.name, run)
            if first is None:
                raise
            raise RegressError(error.message, hint=first) from error

    def _offsets(self, batch: DataFrame, number: int) -> bytes:
        """The source offsets of an epoch, as Spark has written them before it began."""
        if self._checkpoint is None:
            raise BugError(f"pipeline `{self.pipeline.name}`: an epoch came before the start; nothing was written")
        files, root = files_for(self._checkpoint, batch.sparkSession)
        offsets = files.read(f"{root}/offsets/{number}")
        if offsets is None:
            raise BugError(f"Spark runs batch {number} and has no offsets for it in {root}; nothing was written")
        return offsets

    def _once(self, batch: DataFrame, epoch: int, offsets: bytes) -> DataFrame:
        """The rows of an epoch, each once. Up to Spark 4.3 a batch of several files has some of them several times if the
        name of one could be a glob (SPARK-58518); then they are read here.
        """
        planned = planned_files(self._checkpoint, offsets, batch.sparkSession) if self._checkpoint else []
        odd = sorted(path for path in planned if _GLOB.search(path))
        if not odd or len(planned) == 1:
            return batch
        if self.read_files is not None:
            return self.read_files(batch.sparkSession, planned)
        raise RefusedError(
            f"pipeline `{self.pipeline.name}`: epoch {epoch}: Spark reads some of its {len(planned)} files several times, because "
            f"the name of {odd[0]} could be a glob; nothing was written",
            hint="let `pakka.FilesSource` read the files, which knows how to; or take one file a batch, or none with any of "
            "{}[]*?\\ in its path, from a new checkpoint on",
        )

    def _slots(self, batch: DataFrame) -> int:
        return self.pipeline.slots or batch.sparkSession.sparkContext.defaultParallelism


def delivered_batch(run: Recovered, checkpoint: Checkpoint) -> int:
    """The newest batch of this query that every sink holds; -1 if there is none. A driver that died before Spark acknowledged it
    leaves one more than the checkpoint knows. Spark plans it again, but nobody reads its rows again: they may be gone.
    """
    # A batch that is to be delivered once more, after a reset or because a sink has lost it, is not among them.
    known = [run.committed, _held_everywhere(run)]
    batches = [
        epoch.origin.batch
        for epoch in known
        if epoch is not None
        and epoch.number == run.base + epoch.origin.batch
        and epoch.origin.query == checkpoint.query
        and epoch.origin.digest == checkpoint.digests.get(epoch.origin.batch)
    ]
    return max([checkpoint.acknowledged, *batches])


def accept_first(pipeline: str, run: Recovered) -> str | None:
    """What comes before whatever a lookout would have typed, if the next epoch is in some sinks and not in others: to begin anew before it
    would deliver it to the first ones again. None if it is in none, or in all.
    """
    if run.reopened is not None:
        number, lacking = run.reopened.epoch.number, list(run.lost)
    elif run.held and _held_everywhere(run) is None:
        whole = {name for name, entry in run.held.items() if entry.slots is None}
        number = next(iter(run.held.values())).epoch.number
        lacking = [station.name for station in run.stations if station.name not in whole]
    else:
        return None
    resets = " and ".join(f"`pakka reset {pipeline} --sink {name}`" for name in lacking)
    return (
        f"epoch {number} is in some sinks only: restore the source, and the next run completes it; or accept that the others lack it, with "
        f"{resets}, and run again to be told how to go on"
    )


def _held_everywhere(run: Recovered) -> Epoch | None:
    """The next epoch, if its decision is lost and every sink vouches for all of it: the coordinator will adopt it."""
    whole = [entry.epoch for entry in run.held.values() if entry.slots is None]
    is_everywhere = len(whole) == len(run.stations) and all(epoch == whole[0] for epoch in whole)
    return whole[0] if whole and is_everywhere else None


def _delivered(report: EpochReport, began: float, at_us: int) -> Delivered:
    now = time.time()
    return Delivered(
        report.epoch.pipeline,
        report.epoch.number,
        report.is_new,
        report.count.rows_in,
        dict(report.sinks),
        report.count.dead,
        report.count.dropped,
        now - began,
        report.commit_s,
        report.prepare_s,
        report.decide_s,
        report.swept,
        Latency(report.ages, now - at_us / 1e6) if report.ages else None,
    )


def query_id(batch: DataFrame) -> str:
    """The streaming query this epoch belongs to."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise BugError("Spark did not say which query an epoch belongs to; nothing was written")
    return str(query)


def checkpoint_of(batch: DataFrame) -> str:
    """The checkpoint directory of the query that this epoch belongs to."""
    query_id_ = query_id(batch)
    # The batch has a session of its own, cloned from the one that manages the query.
    for spark in (SparkSession._instantiatedSession, batch.sparkSession):
        query: Any = spark._jsparkSession.streams().get(query_id_) if spark is not None else None
        if query is not None:
            return str(query.streamingQuery().resolvedCheckpointRoot())
    raise UsageError(
        "the query that `pakka.deliver` was given to is not managed by the session that was made first; nothing was written",
        hint="start the query from the session that `SparkSession.builder.getOrCreate()` returned",
    )
