"""A stage for coordinator tests: a driver without Spark, whose clock stands still and whose waits cost nothing."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager

import pyarrow as pa

from pakka import points
from pakka.contract.sink import Sink
from pakka.contract.state import Owner
from pakka.coordinator.epoch import Coordinator, Harvest
from pakka.coordinator.reset import Reset
from pakka.coordinator.retry import Retry
from pakka.model.epoch import Checkpoint, Count, Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.prepared import SlotReport, checksum_of
from pakka.testing.store import MemoryStore

SCHEMA = pa.schema([("id", pa.int64())])


class Crash(BaseException):
    """Stands for SIGKILL: nothing may catch it and go on."""


@contextmanager
def crash_at(point: str, nth: int = 1) -> Iterator[None]:
    seen = 0

    def strike(name: str, epoch: int) -> None:
        nonlocal seen
        if name == point:
            seen += 1
            if seen == nth:
                raise Crash(point)

    points.arm(strike)
    try:
        yield
    finally:
        points.arm(None)


class Inline(Executor):
    """An executor with no threads, so that a crash is where the test put it."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Stage:
    """A pipeline whose epoch N has `slots` slots of `rows` rows each."""

    def __init__(self, sinks: Mapping[str, Sink], store: MemoryStore | None = None, slots: int = 2, rows: int = 3):
        self.sinks = sinks
        self.store = store or MemoryStore()
        self.slots = slots
        self.rows = rows
        self.acknowledged = -1
        self.planned = -1
        self.query = "q-1"
        self.attempt = 0
        self.waits: list[float] = []

    def driver(self, **settings) -> Coordinator:
        return Coordinator(
            "refunds",
            self.sinks,
            self.store,
            spool="spool",
            owner=Owner("host", 1, 0.0),
            clock=lambda: 0.0,
            sleep=self.waits.append,
            pool=Inline(),
            retry=Retry(attempts=4),
            **settings,
        )

    def reset(self) -> Reset:
        """What a person who accepts things as they are has at hand."""
        owner = Owner("desk", 2, 0.0)
        return Reset("refunds", self.sinks, self.store, "spool", owner, self.waits.append, Inline(), Retry(attempts=3))

    def checkpoint(self) -> Checkpoint:
        digests = {n: self.origin(n).digest for n in range(self.planned + 1)}
        return Checkpoint("ck", self.query if self.planned >= 0 else None, self.planned, self.acknowledged, digests)

    def origin(self, batch: int) -> Origin:
        return Origin(self.query, batch, f"{self.query}-offsets-{batch}")

    def prepare(self, epoch: Epoch, fence: int) -> Harvest:
        return Harvest(self.slots, [self.write(epoch, fence, n) for n in range(self.slots)])

    def write(self, epoch: Epoch, fence: int, number: int) -> SlotReport:
        self.attempt += 1
        ids = [(epoch.origin.batch * self.slots + number) * self.rows + i for i in range(self.rows)]
        prepared = []
        for name, sink in self.sinks.items():
            slot = Slot("refunds", name, epoch.number, fence, number, self.attempt)
            writer = sink.open_writer(Binding("refunds", name, "spool"), slot, SCHEMA)
            writer.write(pa.record_batch([pa.array(ids)], schema=SCHEMA))
            prepared.append(writer.prepare(checksum_of(sum(i * 7919 + 1 for i in ids))))
            points.reach("task.prepared", epoch.number)
        return SlotReport(number, tuple(prepared), Count(self.rows, self.rows))

    def run(self, upto: int, driver: Coordinator | None = None, prepare=None) -> Coordinator:
        """Play Spark from where the checkpoint stands until batch `upto` is acknowledged."""
        driver = driver or self.driver()
        driver.start(self.checkpoint())
        for batch in range(self.acknowledged + 1, upto + 1):
            self.planned = max(self.planned, batch)
            driver.deliver(self.origin(batch), prepare or self.prepare)
            points.reach("acknowledge.before", batch)
            self.acknowledged = batch
        driver.stop()
        return driver

    def ids(self, upto: int) -> list[int]:
        return list(range((upto + 1) * self.slots * self.rows))
