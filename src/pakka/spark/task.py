"""The executor's side: one task takes one slot's rows, splits them, writes them to every sink and prepares them all.

Only what this module imports reaches the executors: no coordinator, no state store.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pakka.contract.sink import Sink, Writer
from pakka.errors import BugError, FencedError, PakkaError, QualityError, RefusedError, UsageError
from pakka.model.epoch import Count
from pakka.model.event import Noticed
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared, SlotReport, checksum_of
from pakka.model.rule import OnFail
from pakka.notice import heard
from pakka.points import reach
from pakka.quality import dead_letter
from pakka.quality.judge import Judge
from pakka.spark.age import Ages
from pakka.spark.decimals import restored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER = "pakka.order"
_SAMPLE_CHARS = 300
_KEPT_BYTES = 31 << 20
"""Just below the most that glibc learns by itself."""


@dataclass(frozen=True, slots=True)
class Route:
    """What of each row goes to one sink: columns of the wire by position, under the sink's own names."""

    name: str
    sink: Sink
    columns: tuple[int, ...]
    names: tuple[str, ...]
    hash_column: int
    where_column: int | None = None
    is_dead_letters: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Which epoch a job is for. It travels with the job as Spark's own number of the batch does, in a local property of the thread
    that runs it, so that the task itself is the same for every epoch and need not be sent to the JVM anew.
    """

    epoch: int
    fence: int
    at_us: int

    def give(self, batch: DataFrame) -> None:
        """To the jobs that this thread runs from here on."""
        batch.sparkSession.sparkContext.setLocalProperty(_ORDER, json.dumps(asdict(self)))

    @classmethod
    def taken(cls, pipeline: str) -> Order:
        """That of the job whose task this is."""
        from pyspark import TaskContext

        context = TaskContext.get()
        text = context.getLocalProperty(_ORDER) if context is not None else None
        if text is None:
            raise BugError(f"pipeline `{pipeline}`: a task was not told which epoch it is for; nothing was written")
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Errand:
    """A task for whichever epoch its job is for. This is what is pickled to the executors."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        order = Order.taken(self.task.pipeline)
        return replace(self.task, epoch=order.epoch, fence=order.fence, at_us=order.at_us)(batches)


@dataclass(frozen=True, slots=True)
class Task:
    """All that a task has to know. Called with the slot's Arrow batches."""

    pipeline: str
    spool: str
    epoch: int
    fence: int
    at_us: int
    """The epoch's time, which is the same if it runs again."""
    schema: pa.Schema
    """The wire: what Spark sends, but for its small decimals, which come as numbers."""
    routes: tuple[Route, ...]
    judge: Judge
    mask_column: int | None = None
    row_column: int | None = None
    time_column: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand back one JSON document: the slot's report and the bytes that have crossed, or the error that no second attempt would
        mend; and what sinks had to say.
        """
        said: list[Noticed] = []
        answer: dict[str, Any] = {}
        crossing = _Crossing(batches)
        try:
            with heard(self.pipeline, said.append):
                answer["report"] = self._run(iter(crossing)).to_json()
                answer["bytes"] = crossing.bytes
        except (RefusedError, FencedError, UsageError) as error:
            answer["error"] = {
                "class": type(error).__name__,
                "message": self._placed(error.message),
                "hint": error.hint,
            }
        if said:
            answer["said"] = [asdict(each) for each in said]
        yield pa.record_batch([pa.array([json.dumps(answer)])], names=["answer"])

    def _placed(self, message: str) -> str:
        """A sink that refuses a row knows the row, and not always where it stands."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or f"epoch {self.epoch}" in message:
            return message
        return f"{message} (epoch {self.epoch}, slot {context.partitionId()})"

    def _run(self, batches: Iterator[pa.RecordBatch]) -> SlotReport:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.taskAttemptId()
        reach("task.begin", self.epoch)
        _keep_memory()
        _keep_modules()
        lanes: list[_Lane] = []
        try:
            for route in self.routes:
                lanes.append(_Lane(self, route, number, attempt))
            ages = Ages(self.at_us)
            count = self._write(batches, lanes, ages)
            prepared: list[Prepared] = []
            for lane in lanes:
                prepared.append(lane.prepare())
                reach("task.prepared", self.epoch)
        except BaseException as error:
            _discard(lanes, error)
            raise
        is_retried = context.attemptNumber() > 0
        return SlotReport(number, tuple(prepared), count, is_retried, ages.counted())

    def _write(self, batches: Iterator[pa.RecordBatch], lanes: list[_Lane], ages: Ages) -> Count:
        rows_in = dead = dropped = 0
        broken: dict[str, int] = {}
        for crossed in batches:
            batch = restored(crossed, self.schema)
            rows_in += batch.num_rows
            if self.time_column is not None:
                ages.take(batch.column(self.time_column))
            good, letters, masks = self._split(batch)
            if masks is not None:
                dead += letters.num_rows if letters is not None else 0
                dropped += batch.num_rows - good.num_rows - (letters.num_rows if letters is not None else 0)
                for mask, n in zip(*_counts(masks), strict=True):
                    for words in self.judge.words(mask):
                        broken[words] = broken.get(words, 0) + n
            for lane in lanes:
                rows = letters if lane.route.is_dead_letters else good
                if rows is not None and rows.num_rows:
                    lane.write(rows)
            reach("task.batch", self.epoch)
        return Count(rows_in, rows_in - dead - dropped, dead, dropped, broken)

    def _split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None, pa.Array | None]:
        """Good rows, dead rows, and the masks of all broken ones. Nothing is copied if every row is good."""
        if self.mask_column is None:
            return batch, None, None
        mask = batch.column(self.mask_column)
        is_good = pc.equal(mask, 0)
        if pc.all(is_good).as_py() is not False:
            return batch, None, None
        masks = mask.filter(pc.invert(is_good))
        self._refuse_failed(batch, mask)
        dead_bits = pa.scalar(self.judge.bits(OnFail.DEAD_LETTER), pa.int64())
        # A row that breaks a `drop` rule and a `dead_letter` rule is kept: losing less is the stricter answer.
        letters = batch.filter(pc.not_equal(pc.bit_wise_and(mask, dead_bits), 0))
        return batch.filter(is_good), letters, masks

    def _refuse_failed(self, batch: pa.RecordBatch, mask: pa.Array) -> None:
        fail_bits = self.judge.bits(OnFail.FAIL)
        failed = batch.filter(pc.not_equal(pc.bit_wise_and(mask, pa.scalar(fail_bits, pa.int64())), 0))
        if not failed.num_rows:
            return
        words = self.judge.words(failed.column(self.mask_column)[0].as_py() & fail_bits)
        assert self.row_column is not None
        sample = str(dead_letter.readable(failed.column(self.row_column).slice(0, 1))[0].as_py())[:_SAMPLE_CHARS]
        raise QualityError(
            f"pipeline `{self.pipeline}`: epoch {self.epoch}: {failed.num_rows} rows break {', '.join(words)}, which is set "
            f"to fail; the first is {sample}; the epoch was aborted and nothing of it is visible",
            hint="mend the source and run again, or set the rule to `on_fail: dead_letter`",
        )


class _Crossing:
    """The batches as they come, and how large they are."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.bytes = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.bytes += batch.nbytes
            yield batch


class _Lane:
    """One sink's share of this task: its writer, and the running sum of its rows' hashes."""

    def __init__(self, task: Task, route: Route, number: int, attempt: int) -> None:
        self.task = task
        self.route = route
        self.rows = 0
        self.hashes = 0
        self.schema = dead_letter.SCHEMA if route.is_dead_letters else self._schema(task.schema)
        binding = Binding(task.pipeline, route.name, task.spool)
        slot = Slot(task.pipeline, route.name, task.epoch, task.fence, number, attempt)
        self.writer: Writer = route.sink.open_writer(binding, slot, self.schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if self.route.where_column is not None:
            batch = batch.filter(batch.column(self.route.where_column))
        self.hashes += _sum(batch.column(self.route.hash_column))
        self.rows += batch.num_rows
        if self.route.is_dead_letters:
            assert self.task.mask_column is not None
            assert self.task.row_column is not None
            masks, rows = batch.column(self.task.mask_column), batch.column(self.task.row_column)
            self.writer.write(
                dead_letter.letters(self.task.judge, self.task.pipeline, self.task.epoch, self.task.at_us, masks, rows)
            )
        else:
            columns = [batch.column(i) for i in self.route.columns]
            # The session's time zone and Spark's nullability may make a type look different; the values are the same.
            fitted = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self.schema, strict=True)]
            self.writer.write(pa.RecordBatch.from_arrays(fitted, schema=self.schema))

    def prepare(self) -> Prepared:
        prepared = self.writer.prepare(checksum_of(self.hashes))
        if prepared.rows != self.rows:
            raise PakkaError(
                f"sink `{self.task.pipeline}.{self.route.name}`: was given {self.rows} rows of epoch {self.task.epoch} and "
                f"prepared {prepared.rows}; the epoch was aborted"
            )
        return prepared

    def _schema(self, wire: pa.Schema) -> pa.Schema:
        fields = [wire.field(i).with_name(n) for i, n in zip(self.route.columns, self.route.names, strict=True)]
        return pa.schema(fields)


def _keep_memory() -> None:
    """Have the C library keep what is freed for the next batch, up to 64 MB.

    It gives larger blocks back to the system, and the next one comes zeroed, a fault for every page: a third of the time of packing records
    for Kafka. The largest block that was ever given back is the size from which it does so (`M_MMAP_THRESHOLD` of glibc).
    """
    np.empty(_KEPT_BYTES, np.uint8)


@cache
def _keep_modules() -> None:
    """Spark has a worker look for garbage after each task, which goes through all that is imported: some 30 ms of the processor.
    What is there before the first task stays as long as the worker does, and need not be looked at.
    """
    gc.freeze()


def _discard(lanes: list[_Lane], error: BaseException) -> None:
    for lane in reversed(lanes):
        try:
            lane.writer.discard()
        except (
            Exception
        ) as trouble:  # what is left is litter, and recovery sweeps it; the first error is the one to show
            error.add_note(f"sink `{lane.route.name}` could not discard: {trouble}")


def _sum(hashes: pa.Array) -> int:
    """The sum of 64-bit hashes, wrapped at 2**64."""
    return int(hashes.to_numpy(zero_copy_only=False).sum(dtype="int64")) if len(hashes) else 0


def _counts(masks: pa.Array) -> tuple[list[int], list[int]]:
    counted: Any = pc.value_counts(masks)
    return counted.field("values").to_pylist(), counted.field("counts").to_pylist()
