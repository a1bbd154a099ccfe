"""A simulated Spark: a checkpoint that outlives drivers, and tasks that fail, run twice and come late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pakka.coordinator.epoch import Harvest
from pakka.errors import AbortedError, FencedError, PakkaError, RefusedError, UsageError
from pakka.model.epoch import Checkpoint, Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared, SlotReport
from pakka.points import reach
from pakka.testing.simulation.judge import Judge
from pakka.testing.simulation.place import totals_of
from pakka.testing.simulation.plan import Fault
from pakka.testing.simulation.sinks import PlaceSink, PlaceWriter
from pakka.testing.simulation.source import Batch, rows_of
from pakka.testing.simulation.world import World

PIPELINE = "refunds"
_TASK_ATTEMPTS = 3


class QueryFailed(Exception):
    """Spark's query ended for a reason of its own."""


@dataclass
class CheckpointDirectory:
    """`metadata`, `offsets/N` before an epoch, `commits/N` after it; each written once, by whoever comes first."""

    query: str | None = None
    offsets: dict[int, Batch] = field(default_factory=dict)
    commits: dict[int, None] = field(default_factory=dict)

    def copy(self) -> CheckpointDirectory:
        return CheckpointDirectory(self.query, dict(self.offsets), dict(self.commits))

    def restore(self, copy: CheckpointDirectory) -> None:
        self.query, self.offsets, self.commits = copy.query, dict(copy.offsets), dict(copy.commits)

    @property
    def planned(self) -> int:
        return max(self.offsets, default=-1)

    @property
    def acknowledged(self) -> int:
        return max(self.commits, default=-1)

    def read(self) -> Checkpoint:
        digests = {number: digest_of(batch) for number, batch in self.offsets.items()}
        return Checkpoint("checkpoint", self.query, self.planned, self.acknowledged, digests)


def digest_of(batch: Batch) -> str:
    """The digest of source offsets."""
    return batch.digest


class Spark:
    """One driver's Spark: its query, and its tasks. The checkpoint is everybody's."""

    def __init__(
        self,
        name: str,
        world: World,
        judge: Judge,
        checkpoint: CheckpointDirectory,
        sinks: Mapping[str, PlaceSink],
        cores: int,
    ) -> None:
        self.name = name
        self.world = world
        self.judge = judge
        self.checkpoint = checkpoint
        self.sinks = sinks
        self.cores = cores
        self._attempts = 0

    def look(self) -> Checkpoint:
        """Read the checkpoint, for the guard."""
        self.world.step("reads the checkpoint")
        return self.checkpoint.read()

    def batches(self) -> Iterator[tuple[Origin, Batch]]:
        """What the query runs: the last batch again if it was not acknowledged, then new ones until the source ends."""
        self.world.step("starts the query")
        checkpoint = self.checkpoint
        if checkpoint.query is None:
            self.world.counts["queries"] += 1
            checkpoint.query = f"query-{self.world.counts['queries']}"
        query, latest = checkpoint.query, checkpoint.planned
        if latest > checkpoint.acknowledged:
            yield self._origin(query, latest), checkpoint.offsets[latest]
        while True:
            latest += 1
            first = checkpoint.offsets[latest - 1].end if latest else 0
            if first >= self.world.plan.rows:
                return
            self.world.step("plans batch", latest)
            if latest in checkpoint.offsets:
                raise QueryFailed(f"offsets/{latest} exists: another query runs on this checkpoint")
            checkpoint.offsets[latest] = self._draw(first)
            yield self._origin(query, latest), checkpoint.offsets[latest]

    def acknowledge(self, number: int, epoch: int, fence: int) -> None:
        batch = self.checkpoint.offsets.get(number)
        self.world.step("acknowledges batch", number)
        if number in self.checkpoint.commits or batch is None:
            raise QueryFailed(f"commits/{number} exists: another query runs on this checkpoint")
        self.judge.acknowledges(batch, epoch, fence, self.world.plan.sweep_every)
        self.checkpoint.commits[number] = None
        self.world.counts["epochs acknowledged"] += 1

    def _origin(self, query: str, number: int) -> Origin:
        return Origin(query, number, digest_of(self.checkpoint.offsets[number]))

    def _draw(self, first: int) -> Batch:
        return draw_batch(self.world, first)

    def prepare(self, epoch: Epoch, fence: int) -> Harvest:
        """The one Spark job of an epoch."""
        batch = self.checkpoint.offsets[epoch.origin.batch].on(self.cores)
        self.judge.batches[epoch.origin] = batch
        self.judge.cores[fence] = self.cores
        reports = []
        for number in self.world.chance.sample(range(batch.slots), batch.slots):
            report = self._slot(epoch, fence, batch, number)
            if not self.world.strikes(Fault.TASK_SILENT):
                reports.append(report)
        return Harvest(batch.slots, reports)

    def _slot(self, epoch: Epoch, fence: int, batch: Batch, number: int) -> SlotReport:
        world = self.world
        for attempt_number in range(_TASK_ATTEMPTS):
            try:
                report = self._attempt(epoch, fence, batch, number, is_retried=attempt_number > 0)
            except (RefusedError, FencedError, UsageError):
                raise
            except PakkaError as error:
                world.note("task failed", error.message)
                if world.strikes(Fault.TASK_FAILED_FOR_GOOD):
                    break
                continue
            if world.strikes(Fault.TASK_TWIN):
                self._attempt_of_twin(epoch, fence, batch, number)
            if world.strikes(Fault.TASK_LATE):
                task = self._late(epoch, fence, batch, number)
                world.baton.later(world.chance.choice((0.005, 0.05, 0.5)), task)
            return report
        raise AbortedError(f"epoch {epoch.number}: slot {number} failed for good; the epoch was aborted")

    def _attempt_of_twin(self, epoch: Epoch, fence: int, batch: Batch, number: int) -> None:
        try:
            self._attempt(epoch, fence, batch, number, is_retried=False)
        except PakkaError as error:
            self.world.note("twin failed", error.message)

    def _attempt(self, epoch: Epoch, fence: int, batch: Batch, number: int, is_retried: bool) -> SlotReport:
        """What `pakka.spark.task` does."""
        reach("task.begin", epoch.number)
        writers: list[PlaceWriter] = []
        prepared: list[Prepared] = []
        try:
            for slot, rows in self._shares(epoch, fence, batch, number):
                writers.append(self.sinks[slot.sink].open_writer(Binding(PIPELINE, slot.sink, "spool"), slot, None))
                writers[-1].write(rows)
            reach("task.batch", epoch.number)
            if self.world.strikes(Fault.TASK_FAILED):
                raise AbortedError(f"slot {number} was told to fail")
            for writer in writers:
                prepared.append(writer.prepare(totals_of(writer.rows)[1]))
                reach("task.prepared", epoch.number)
        except PakkaError as error:
            self._discard(writers, error)
            raise
        return SlotReport(number, tuple(prepared), batch.count(number), is_retried)

    def _discard(self, writers: list[PlaceWriter], error: PakkaError) -> None:
        for writer in reversed(writers):
            try:
                writer.discard()
            except PakkaError as trouble:
                error.add_note(f"could not discard: {trouble.message}")

    def _shares(self, epoch: Epoch, fence: int, batch: Batch, number: int) -> list[tuple[Slot, tuple[int, ...]]]:
        self._attempts += 1
        return [
            (
                Slot(PIPELINE, name, epoch.number, fence, number, self._attempts),
                rows_of(batch, name, number),
            )
            for name in self.sinks
        ]

    def _late(self, epoch: Epoch, fence: int, batch: Batch, number: int) -> Late:
        return Late(self.world, self.sinks, self._shares(epoch, fence, batch, number))


@dataclass(frozen=True, slots=True)
class Late:
    """A task that lost the race and does not know: it prepares though the epoch may be decided, or its driver gone."""

    world: World
    sinks: Mapping[str, PlaceSink]
    shares: list[tuple[Slot, tuple[int, ...]]]

    def __call__(self) -> None:
        for slot, rows in self.shares:
            place = self.sinks[slot.sink].place
            try:
                place.stage(slot, rows)
                place.prepare(slot, rows)
                self.world.note("late task prepares", slot, who="executor")
            except PakkaError as error:
                self.world.note("late task is refused", error.message, who="executor")
                self.world.counts["late task refused"] += 1
                return


def draw_batch(world: World, first: int) -> Batch:
    """The next batch as the source has it now. Now and then it is empty."""
    size = 0 if world.chance.random() < 0.08 else world.chance.randint(1, world.plan.batch_most)
    most = world.plan.slots_most
    partitions = world.chance.choice((most, world.chance.randint(1, most)))
    return Batch(first, min(first + size, world.plan.rows), partitions)
