"""A driver without Spark: the coordinator over any sinks and store, and epochs made of thin air."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pakka.contract.sink import Sink
from pakka.contract.state import Owner, StateStore
from pakka.coordinator.epoch import Coordinator, Harvest
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.id import Slot
from pakka.model.prepared import Prepared, SlotReport, checksum_of
from pakka.testing.simulated import SimulatedSink, World

PIPELINE = "bench"
OWNER = Owner(socket.gethostname(), os.getpid(), 0.0)


def origin(number: int) -> Origin:
    """As long as a real one: a query id and a SHA-256."""
    return Origin("c0ffee00-0000-4000-8000-000000000000", number, f"{number:064x}")


@contextmanager
def driver(sinks: Mapping[str, Sink], store: StateStore, spool: str) -> Iterator[Coordinator]:
    """A coordinator with real time and threads, started, and stopped at the end."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        coordinator = Coordinator(
            PIPELINE,
            sinks,
            store,
            spool=spool,
            owner=OWNER,
            clock=time.perf_counter,
            sleep=time.sleep,
            pool=pool,
        )
        coordinator.start(None)
        try:
            yield coordinator
        finally:
            coordinator.stop()


class Simulation:
    """Simulated sinks, and writers that prepare in them without any rows."""

    def __init__(self, sinks: int, slots: int) -> None:
        self.worlds = {f"sink{i}": World() for i in range(sinks)}
        self.sinks = {name: SimulatedSink(world, name) for name, world in self.worlds.items()}
        self.slots = slots

    def prepare(self, epoch: Epoch, fence: int) -> Harvest:
        return Harvest(self.slots, [self._report(epoch, fence, n) for n in range(self.slots)])

    def forget(self) -> None:
        """What is committed lies with the server, and not in the driver's memory."""
        for world in self.worlds.values():
            world.visible.clear()

    def _report(self, epoch: Epoch, fence: int, number: int) -> SlotReport:
        records = []
        for name, world in self.worlds.items():
            slot = Slot(PIPELINE, name, epoch.number, fence, number, epoch.number)
            checksum = checksum_of(epoch.number * 7919 + number)
            record = Prepared(slot, 100, checksum, {"gid": f"{slot}", "bytes": 4096})
            world.prepared[slot] = record
            records.append(record)
        return SlotReport(number, tuple(records), Count(100, 100))
