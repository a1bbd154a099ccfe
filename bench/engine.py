"""Spark for the benchmarks: one session for both sides, streams over files or numbers, and what Spark says of each epoch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import cpu_since, tree_cpu
from bench.scratch import ROOT, SCRATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OnBatch = Callable[["DataFrame", int], None]
FILES_PER_EPOCH = 4


class _EnoughError(Exception):
    """Raised into Spark at the beginning of an epoch: stopping a query while its callback runs has crashed its thread."""


@dataclass(frozen=True)
class Run:
    """One run of a query to its end."""

    wall_s: float
    cpu: Mapping[str, float]
    """Processor seconds by kind of process."""
    sync_s: float
    """What the disk still had to take afterwards."""
    epochs: tuple[dict[str, Any], ...]
    """Spark's own progress reports."""

    @property
    def cpu_s(self) -> float:
        """Of the driver, the JVM and the workers together, and of a server that the benchmark has started."""
        return sum(self.cpu.values())

    @property
    def rows(self) -> int:
        return sum(e["numInputRows"] for e in self.epochs)


def open_spark(*sinks: object) -> SparkSession:
    """The session that a pipeline into these sinks would have, with a longer memory for its progress."""
    # Workers run the Python of the benchmarks, and find this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    from pakka.spark.session import open_session

    return open_session("pakka bench", {}, SCRATCH / "spark.log", sinks=sinks)


def has_class(spark: SparkSession, name: str, jars: Sequence[Path]) -> bool:
    """Whether Spark can load a class: out of these jars, or because it was started with `--packages`."""
    from py4j.protocol import Py4JJavaError

    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def read_files(spark: SparkSession, path: Path) -> DataFrame:
    """A stream of the files, so many an epoch."""
    schema = spark.read.parquet(str(path)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_EPOCH).parquet(str(path))


def read_numbers(spark: SparkSession) -> DataFrame:
    """A hundred numbered rows an epoch in two partitions."""
    reader = spark.readStream.format("rate-micro-batch")
    return reader.option("rowsPerBatch", 100).option("numPartitions", 2).load()


def run_all(place: Path, start: Callable[[Path], StreamingQuery], close: Callable[[], None] = lambda: None) -> Run:
    """Run a query until its source is exhausted. `start` is given a new directory for its checkpoint and all it writes."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    # What an earlier run left to the disk must not be paid for by this one.
    os.sync()
    before, began = tree_cpu(), time.perf_counter()
    query = start(place)
    query.awaitTermination()
    close()
    ended = time.perf_counter()
    cpu = cpu_since(before)
    os.sync()
    return Run(ended - began, cpu, time.perf_counter() - ended, _progress(query))


def run_stream(frame: DataFrame, place: Path, on_batch: OnBatch, close: Callable[[], None] = lambda: None) -> Run:
    """Hand every epoch of a stream to `on_batch`, until its source is exhausted."""
    writer = frame.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
    return run_all(place, lambda _: writer.foreachBatch(on_batch).start(), close)


def run_epochs(frame: DataFrame, checkpoint: Path, on_batch: OnBatch, last: int) -> tuple[dict[str, Any], ...]:
    """Run epochs one after another without a pause, up to `last`. What Spark says of each."""
    from pyspark.errors import StreamingQueryException

    def until_last(batch: DataFrame, number: int) -> None:
        if number > last:
            raise _EnoughError
        on_batch(batch, number)

    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds")
    query = writer.foreachBatch(until_last).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if _EnoughError.__name__ not in str(error):
            raise
    return _progress(query)


def _progress(query: StreamingQuery) -> tuple[dict[str, Any], ...]:
    """By epoch. A query that waits for rows reports that too, under the number of the next, and has added no batch."""
    reports: dict[int, dict[str, Any]] = {}
    for report in query.recentProgress:
        if "addBatch" in report["durationMs"]:
            reports[report["batchId"]] = {n: report[n] for n in ("batchId", "numInputRows", "durationMs")}
    return tuple(reports[number] for number in sorted(reports))
