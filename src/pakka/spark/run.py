"""Run a pipeline: source -> process -> judge -> write -> prepare -> decide -> commit -> acknowledge."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pakka.contract.pipeline import Pipeline
from pakka.contract.source import NeedsJars, Watched
from pakka.errors import ConfigError, PakkaError, RefusedError, UnavailableError
from pakka.model.event import Listen, Stopped
from pakka.model.rule import OnFail
from pakka.quality.judge import Judge
from pakka.sources.files import FilesSource
from pakka.spark.job import cause_of
from pakka.spark.lookout import Post
from pakka.spark.plan import RAW, make_plan
from pakka.spark.process import Processing
from pakka.spark.session import open_session
from pakka.spark.stream import Delivery, StopAsked
from pakka.state import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 1


def run(
    pipeline: Pipeline,
    *,
    listen: Listen = lambda _: None,
    stop: threading.Event | None = None,
    verbose: bool = False,
    metrics: str = "",
) -> Stopped:
    """Run until the source is exhausted, or for ever with an interval, or until `stop` is set; between two epochs.

    `metrics` is where the caller serves the metrics of this run, for `pakka status` to find them.
    """
    stop = stop or threading.Event()
    # From here on the same places, whatever the process makes its current directory while it runs.
    pipeline = replace(pipeline.chosen(), checkpoint=pipeline.checkpoint_path, spool=pipeline.spool_path)
    log = None if verbose else Path(pipeline.checkpoint_path).parent.parent / "spark.log"
    source = pipeline.source
    jars = source.jars_for(pyspark.__version__) if isinstance(source, NeedsJars) else None
    sinks = [output.sink for output in pipeline.outputs.values()]
    spark = open_session(f"pakka {pipeline.name}", pipeline.spark, log, jars, sinks)
    frame, process, judge = read_source(spark, pipeline)
    if not frame.isStreaming:
        raise ConfigError(
            f"pipeline `{pipeline.name}`: its source is a batch DataFrame, which has no epochs of its own",
            hint="deliver it as one epoch with `pakka.deliver_batch(frame, ...)`",
        )
    plan = make_plan(pipeline, process(frame), judge)
    watched = source.open_lookout(spark, pipeline.name, _notes(pipeline)) if isinstance(source, Watched) else None
    post = Post(pipeline.name, watched, listen)
    with closing(open_store(pipeline.state)) as store, closing(post):
        delivery = Delivery(pipeline, plan, store, process, listen, _reader_of_files(pipeline), metrics, post)
        try:
            delivery.start(pipeline.checkpoint_path, spark)
            with post.patrol():
                reason = _run_query(_start(pipeline, frame, delivery), delivery, stop)
            if reason == "done":
                post.look(is_last=True)
        finally:
            delivery.close()
    stopped = Stopped(pipeline.name, delivery.epochs, delivery.rows_in, reason)
    listen(stopped)
    return stopped


def read_source(spark: SparkSession, pipeline: Pipeline) -> tuple[DataFrame, Processing, Judge]:
    """The stream, what becomes of its rows before they are judged, and the judge."""
    source, is_strict = pipeline.source, _is_strict(pipeline)
    frame = source.read(spark, _notes(pipeline), is_strict)
    raw = None if is_strict else source.corrupt_column
    judge = Judge(pipeline.quality, RAW if raw else None, source.on_corrupt)
    return frame, Processing(pipeline, raw), judge


def _is_strict(pipeline: Pipeline) -> bool:
    """Malformed records that nobody takes end the run where they are parsed, and the source is parsed only once."""
    on_corrupt = pipeline.source.on_corrupt
    return on_corrupt is OnFail.FAIL or (on_corrupt is OnFail.DEAD_LETTER and pipeline.dead_letters is None)


def _notes(pipeline: Pipeline) -> str:
    return f"{pipeline.checkpoint_path}.source"


def _reader_of_files(pipeline: Pipeline) -> Callable[[SparkSession, list[str]], DataFrame] | None:
    source = pipeline.source
    if not isinstance(source, FilesSource):
        return None

    def read(spark: SparkSession, paths: list[str]) -> DataFrame:
        frame = source.read_files(spark, _notes(pipeline), _is_strict(pipeline), paths)
        # Planned here, as Spark plans a micro-batch: else `process` would prune columns before the records are parsed,
        # and a record could be malformed on one way and not on the other.
        jvm: Any = spark._jsparkSession
        rows: Any = frame._jdf
        return DataFrame(jvm.internalCreateDataFrame(rows.queryExecution().toRdd(), rows.schema(), False), spark)

    return read


def _start(pipeline: Pipeline, frame: DataFrame, delivery: Delivery) -> StreamingQuery:
    writer = frame.writeStream.queryName(pipeline.name).option("checkpointLocation", pipeline.checkpoint_path)
    if pipeline.trigger.interval_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(pipeline.trigger.interval_s * 1000)} milliseconds")
    try:
        return writer.foreachBatch(delivery.on_batch).start()
    except PySparkException as error:
        raise RefusedError(
            f"pipeline `{pipeline.name}`: Spark refuses the query: {str(error).strip().splitlines()[0]}; nothing was written"
        ) from error


def _run_query(query: StreamingQuery, delivery: Delivery, stop: threading.Event) -> str:
    """Wait for the query's end. Returns why it ended; raises what ended it, as it was raised."""
    trouble: Exception | None = None
    try:
        while not query.awaitTermination(_POLL_S):
            if stop.is_set():
                delivery.ask_to_stop(query.stop)
    except (PySparkException, Py4JError, OSError) as error:
        trouble = error
    if isinstance(delivery.error, StopAsked):
        return "asked"
    if isinstance(delivery.error, PakkaError):
        raise delivery.error
    ended: BaseException | None = delivery.error or trouble
    if ended is not None:
        # Of two drivers Spark stops the one that finds the other in its checkpoint, and cannot say which is the newer one.
        with suppress(UnavailableError):
            delivery.coordinator.check_fence()
        known = delivery.post.explained(ended)
        raise known if isinstance(known, PakkaError) else _query_failed(delivery, ended) from ended
    return "asked" if stop.is_set() else "done"


def _query_failed(delivery: Delivery, error: Any) -> PakkaError:
    name = delivery.pipeline.name
    return UnavailableError(
        f"pipeline `{name}`: Spark's query ended: {cause_of(error)}; every epoch is either in all sinks or in none, or will "
        "be finished by the next run",
        hint="run the pipeline again; Spark's own messages are in its log, or on the terminal with `--verbose`",
    )
