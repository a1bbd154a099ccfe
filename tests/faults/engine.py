"""A stand-in for Spark: a checkpoint that behaves as Spark's, and tasks that do what `pakka.spark.task` does.

Slots run in the driver's own process, or each in a worker process of its own that a drill may kill or freeze alone.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pyarrow as pa

from pakka.contract.sink import Sink, Writer
from pakka.coordinator.epoch import Harvest
from pakka.errors import AbortedError, FencedError, RefusedError, UsageError
from pakka.model.epoch import Count, Epoch
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared, SlotReport, checksum_of
from pakka.points import reach
from tests.faults.workload import SCHEMAS, Row, Workload, row_hash


class QueryFailed(Exception):
    """Spark's query ended for a reason of its own."""


class CheckpointDirectory:
    """`metadata`, `offsets/N` before an epoch, `commits/N` after it; each written once, by whoever comes first."""

    def __init__(self, root: Path, batches: int) -> None:
        self.root = root
        self.batches = batches
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._add(root / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        self.query = str(json.loads((root / "metadata").read_text())["id"])

    def planned(self) -> Iterator[tuple[int, bytes]]:
        """What Spark runs from here: the last batch again, with the same offsets, if it was not acknowledged; then new ones."""
        latest = max(self._numbers("offsets"), default=-1)
        if latest >= 0 and latest not in self._numbers("commits"):
            yield latest, self._offsets_of(latest)
        # From here on Spark counts by itself, and finds out about another query when a name is taken.
        for number in range(latest + 1, self.batches):
            self._add_once(self._path("offsets", number), self._plan(number))
            yield number, self._offsets_of(number)

    def acknowledge(self, number: int) -> None:
        self._add_once(self._path("commits", number), 'v1\n{"nextBatchWatermarkMs":0}')

    def _path(self, log: str, number: int) -> Path:
        return self.root / log / str(number)

    def _offsets_of(self, number: int) -> bytes:
        return self._path("offsets", number).read_bytes()

    def _plan(self, number: int) -> str:
        batch = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000}
        return "\n".join(["v1", json.dumps(batch), json.dumps({"upto": number + 1})])

    def _numbers(self, name: str) -> list[int]:
        return [int(p.name) for p in (self.root / name).iterdir() if p.name.isdigit()]

    def _add_once(self, path: Path, text: str) -> None:
        if not self._add(path, text):
            raise QueryFailed(f"Multiple streaming jobs detected for {path.name}: {path} exists")

    def _add(self, path: Path, text: str) -> bool:
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        partial.write_text(text)
        try:
            # As Spark's rename that does not overwrite: there whole, or not at all, and only for the first.
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink()
        return True


@dataclass(frozen=True)
class Trouble:
    """Make one slot fail, in the middle of its writes, for the first `times` attempts of each run."""

    batch: int
    slot: int
    times: int

    def strikes(self, batch: int, slot: int, attempt_number: int) -> bool:
        return (batch, slot) == (self.batch, self.slot) and attempt_number < self.times


@dataclass(frozen=True)
class Job:
    """One attempt at one slot, for all sinks."""

    pipeline: str
    spool: str
    epoch: int
    batch: int
    fence: int
    number: int
    attempt: int
    """Unique in a run and repeated by the next one, as Spark's."""
    attempt_number: int
    sinks: Mapping[str, Sink]
    workload: Workload
    trouble: Trouble | None = None
    log: str = ""
    is_last: bool = False
    """No further attempt follows this one."""

    def run(self) -> SlotReport:
        """What `pakka.spark.task` does, with its crash points at the same places."""
        reach("task.begin", self.epoch)
        lanes: list[_Lane] = []
        try:
            for name, sink in self.sinks.items():
                lanes.append(_Lane(self, name, sink))
            count = self._write(lanes)
            prepared: list[Prepared] = []
            for lane in lanes:
                prepared.append(lane.prepare())
                reach("task.prepared", self.epoch)
        except BaseException as error:
            for lane in reversed(lanes):
                try:
                    lane.writer.discard()
                except Exception as trouble:
                    error.add_note(f"sink `{lane.name}` could not discard: {trouble}")
            raise
        return SlotReport(self.number, tuple(prepared), count, is_retried=self.attempt_number > 0)

    def _write(self, lanes: list["_Lane"]) -> Count:
        rows_in = dead = 0
        for rows in self.workload.chunks(self.batch, self.number):
            rows_in += len(rows)
            dead += sum(row.is_dead for row in rows)
            for lane in lanes:
                lane.write(rows)
            reach("task.batch", self.epoch)
            if self.trouble and self.trouble.strikes(self.batch, self.number, self.attempt_number):
                raise RuntimeError(f"slot {self.number} was told to fail")
        return Count(rows_in, rows_in - dead, dead)


class _Lane:
    """One sink's share of a slot."""

    def __init__(self, job: Job, sink_name: str, sink: Sink) -> None:
        self.name = sink_name
        self.hashes = 0
        slot = Slot(job.pipeline, sink_name, job.epoch, job.fence, job.number, job.attempt)
        binding = Binding(job.pipeline, sink_name, job.spool)
        self.writer: Writer = sink.open_writer(binding, slot, SCHEMAS[sink_name])

    def write(self, rows: list[Row]) -> None:
        mine = [values for row in rows if (values := row.for_sink(self.name)) is not None]
        if mine:
            self.hashes += sum(row_hash(values) for values in mine)
            schema = SCHEMAS[self.name]
            columns = [pa.array(column, f.type) for column, f in zip(zip(*mine, strict=True), schema, strict=True)]
            self.writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))

    def prepare(self) -> Prepared:
        return self.writer.prepare(checksum_of(self.hashes))


Answer = SlotReport | Exception
Runner = Callable[[list[Job]], list[Answer]]


def run_here(jobs: list[Job]) -> list[Answer]:
    """Slots one after another in this process."""
    answers: list[Answer] = []
    for job in jobs:
        try:
            answers.append(job.run())
        except Exception as error:
            answers.append(error)
    return answers


class WorkerDied(Exception):
    """A worker ended without an answer."""


class Workers:
    """Slots side by side, each in a process of its own, forked by a daemon as Spark's Python workers are.

    The daemon is forked before the driver has threads, connections or locks. It ends with its driver; a worker does not:
    on a cluster the executors outlive the driver too, and may wake up when another one is at work.
    """

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        if os.fork() == 0:
            self._pipe.close()
            with suppress(EOFError, BrokenPipeError):
                while True:
                    theirs.send(_fork_all(theirs.recv()))
            os._exit(0)
        theirs.close()

    def __call__(self, jobs: list[Job]) -> list[Answer]:
        self._pipe.send(jobs)
        return list(self._pipe.recv())


def _fork_all(jobs: list[Job]) -> list[Answer]:
    """One worker a job, all at once. When a slot has failed for good its job is over, and the others are left to themselves."""
    workers = [_fork(job) for job in jobs]
    answers: dict[int, Answer] = {}
    while len(answers) < len(jobs):
        ready = wait([pipe for n, (_, pipe) in enumerate(workers) if n not in answers])
        for number, (pid, pipe) in enumerate(workers):
            if pipe in ready:
                answers[number] = _answer_of(pid, pipe)
                if jobs[number].is_last and isinstance(answers[number], Exception):
                    return [answers.get(n, answers[number]) for n in range(len(jobs))]
    return [answers[n] for n in range(len(jobs))]


def _fork(job: Job) -> tuple[int, Connection]:
    mine, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, mine
    mine.close()
    (answer,) = run_here([job])
    # Whoever asked may be long gone; what became of this attempt is told here as well.
    with open(job.log, "a") as log:
        log.write(f"epoch {job.epoch} fence {job.fence} slot {job.number}: {type(answer).__name__}\n")
    with suppress(BrokenPipeError):
        theirs.send(answer)
    os._exit(0)


def _answer_of(pid: int, pipe: Connection) -> Answer:
    try:
        answer: Answer = pipe.recv()
    except EOFError:
        answer = WorkerDied(f"worker {pid} exited unexpectedly")
    os.waitpid(pid, 0)
    return answer


@dataclass
class Engine:
    """Runs the writers of an epoch: every slot, again if it failed and may be tried again."""

    job: Job
    """What all jobs have in common."""
    runner: Runner
    attempts: int = 1
    """As `spark.task.maxFailures`."""
    is_speculative: bool = False
    """Run every slot twice at the same time, and take what the first one says."""
    _next: int = 0

    def prepare(self, epoch: Epoch, fence: int) -> Harvest:
        base = replace(self.job, epoch=epoch.number, batch=epoch.origin.batch, fence=fence)
        reports: dict[int, SlotReport] = {}
        trouble: list[Any] = []
        for attempt_number in range(self.attempts):
            left = [n for n in range(base.workload.slots) if n not in reports]
            numbers = left * 2 if self.is_speculative else left
            is_last = attempt_number == self.attempts - 1
            now = replace(base, attempt_number=attempt_number, is_last=is_last)
            jobs = [replace(now, number=n, attempt=self._id()) for n in numbers]
            trouble = []
            for job, answer in zip(jobs, self.runner(jobs), strict=True):
                if isinstance(answer, RefusedError | FencedError | UsageError):
                    raise answer
                if isinstance(answer, SlotReport):
                    reports.setdefault(job.number, answer)
                else:
                    trouble.append(answer)
            if not trouble:
                return Harvest(base.workload.slots, list(reports.values()))
        raise AbortedError(
            f"pipeline `{base.pipeline}`: epoch {epoch.number}: a task failed for good: {trouble[0]}; the epoch was aborted and "
            "nothing of it is visible",
            hint="mend the cause and run again: the epoch runs again with the same rows",
        ) from trouble[0]

    def _id(self) -> int:
        self._next += 1
        return self._next
