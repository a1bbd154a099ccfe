"""The stage of an interrogation: the scratch area, the drivers that come and go on it, and a reader in front of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pakka.audit.cast import Cast
from pakka.audit.driver import Decided, Driver
from pakka.audit.scratch import Ground
from pakka.model.epoch import Epoch, Origin

Ids = list[list[str]]
"""The ids of an epoch's rows, by slot."""

_LOOK_S = 0.0005


class Broken(Exception):
    """A case was lost; its words say what was seen."""


class NotApplicable(Exception):
    """A case cannot be asked of this sink; its words say why."""


@dataclass
class Stage:
    """A sink's scratch area, the drivers that come and go on it, and the numbers that only rise."""

    ground: Ground
    cast: Cast
    fence: int = 0
    epoch: int = -1
    _raises: list[float] = field(default_factory=list)
    _drivers: list[Driver] = field(default_factory=list)

    def next_fence(self) -> int:
        self.fence += 1
        return self.fence

    def next_epoch(self) -> Epoch:
        self.epoch += 1
        return self.same_epoch()

    def same_epoch(self) -> Epoch:
        number = self.epoch
        return Epoch(self.ground.binding.pipeline, number, Origin("audit", number, f"offsets-{number}"))

    def driver(self, decided: Decided | None = None) -> Driver:
        """A new driver, which has raised its fence; `decided` is what the last one has left to be finished."""
        began = time.monotonic()
        driver = Driver.begin(self.ground.scratch.sink, self.ground.binding, self.next_fence(), decided)
        self._raises.append(time.monotonic() - began)
        self._drivers.append(driver)
        return driver

    @property
    def raise_s(self) -> float:
        """How long it takes to raise a fence here, with nothing in its way."""
        return sorted(self._raises)[len(self._raises) // 2]

    def rows(self, slots: int = 1, rows: int = 3, mark: str = "a") -> Ids:
        """Rows that only the current epoch has; another mark makes other rows of it."""
        return [[f"e{self.epoch}-{mark}-s{slot}-r{row}" for row in range(rows)] for slot in range(slots)]

    def visible(self) -> Counter[str]:
        """What an independent reader sees of the current epoch."""
        mine = f"e{self.epoch}-"
        return Counter(i for i in self.ground.scratch.read() if i.startswith(mine))

    def expect(self, ids: Ids, when: str) -> None:
        """A reader sees these rows of the current epoch, each once, and no others."""
        seen = self.visible()
        wanted = Counter(i for slot in ids for i in slot)
        if seen == wanted:
            return
        doubled = sum(1 for i in wanted if seen[i] > wanted[i])
        strange = sum((seen - wanted).values())
        if doubled:
            raise Broken(f"{when}, a reader sees {doubled} of {len(wanted)} rows more than once")
        if strange:
            raise Broken(f"{when}, a reader sees {strange} rows that should not be there")
        raise Broken(f"{when}, a reader misses {sum((wanted - seen).values())} of {sum(wanted.values())} rows")

    def close(self) -> None:
        """Let go of all connections, the actors' too: an open one could be in the way when the scratch area is removed."""
        self.cast.close()
        for driver in self._drivers:
            driver.close()


class Heir:
    """A new driver that raises its fence beside this thread: a commit under way may have to be waited for."""

    def __init__(self, stage: Stage, decided: Decided) -> None:
        self._made: list[Driver | BaseException] = []
        self._thread = threading.Thread(target=self._begin, args=(stage, decided), name="pakka-audit-heir", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Does the fence stand within that time?"""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def driver(self) -> Driver:
        """The driver, however long it takes."""
        self._thread.join()
        (made,) = self._made
        if isinstance(made, BaseException):
            raise made
        return made

    def _begin(self, stage: Stage, decided: Decided) -> None:
        try:
            self._made.append(stage.driver(decided))
        except BaseException as error:  # raised in the thread that asks for the driver
            self._made.append(error)


@contextmanager
def watching(stage: Stage) -> Iterator[list[int]]:
    """Look all the time from another thread, with a reader of its own. How many rows each look has seen."""
    seen: list[int] = []
    is_over = threading.Event()
    trouble: list[Exception] = []

    def look() -> None:
        try:
            while not is_over.wait(_LOOK_S):
                seen.append(sum(stage.visible().values()))
        except Exception as error:
            trouble.append(error)

    thread = threading.Thread(target=look, name="pakka-audit-reader", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
    if trouble:
        raise trouble[0]
