"""How to measure two things on one machine: in turns, after a warm-up, several times."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def in_turns(sides: Mapping[str, Callable[[], T]], rounds: int, warm_ups: int = 1) -> dict[str, list[T]]:
    """Run every side once a round: A B, B A, A B, ... A JVM gets faster all the time, and the turn should not decide.

    Warm-up rounds are run and thrown away.
    """
    results: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(-warm_ups, rounds):
        names = list(sides)[:: 1 if number % 2 == 0 else -1]
        for name in names:
            gc.collect()
            result = sides[name]()
            if number >= 0:
                results[name].append(result)
    return results


def timed(work: Callable[[], object]) -> float:
    """How long it takes, in seconds."""
    return clocked(work).wall_s


class Taken(NamedTuple):
    """What some work took: by the clock, and of the processors. The latter is the same on a busy machine."""

    wall_s: float
    cpu_s: float


def clocked(work: Callable[[], object]) -> Taken:
    """What work in this process takes."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    return Taken(time.perf_counter() - began, time.process_time() - cpu)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def tree_cpu_s() -> float:
    """Processor seconds of this process and all below it, the finished ones included: the JVM, Spark's workers, a server.

    On a machine that others use too it says more than the clock does.
    """
    return sum(tree_cpu().values())


def tree_cpu() -> dict[str, float]:
    """The same by kind of process."""
    spent: dict[str, float] = {}
    for process in _tree():
        own, finished = sum(process.ticks[:2]), sum(process.ticks[2:])
        # What a server or a worker has ended was of its own kind; what this process has ended was anything.
        is_root = process.pid == os.getpid()
        for kind, ticks in ((process.kind, own), ("others" if is_root else process.kind, finished)):
            spent[kind] = spent.get(kind, 0.0) + ticks / os.sysconf("SC_CLK_TCK")
    return spent


def cpu_since(before: Mapping[str, float]) -> dict[str, float]:
    """What each kind of process has used since `tree_cpu` said `before`; those that have used something."""
    spent = {kind: seconds - before.get(kind, 0.0) for kind, seconds in tree_cpu().items()}
    return {kind: seconds for kind, seconds in spent.items() if seconds > 0}


def tree_resident_bytes() -> dict[str, int]:
    """Memory in RAM by kind of process. Workers share pages with the daemon that forked them, which count for each."""
    held: dict[str, int] = {}
    for process in _tree():
        with suppress(OSError):  # gone since it was listed
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            held[process.kind] = held.get(process.kind, 0) + pages * os.sysconf("SC_PAGE_SIZE")
    return held


class _Process(NamedTuple):
    pid: int
    parent: int
    name: str
    ticks: tuple[int, ...]
    """Of the processor: its own in user and system mode, and those of the processes it has seen end."""

    @property
    def kind(self) -> str:
        if self.pid == os.getpid():
            return "the driver"
        if self.name in ("postgres", "mariadbd") or (self.name == "java" and _is_broker(self.pid)):
            return "the server"
        if self.name == "java":
            return "the JVM"
        return "workers" if self.name.startswith("python") else "others"


def _is_broker(pid: int) -> bool:
    """Spark and Kafka are both Java."""
    try:
        return b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # gone since it was listed


def _tree() -> list[_Process]:
    """This process and all below it.

    A process that ends while they are listed may be seen neither itself nor in the times of its parent, so it is done again
    until nothing has ended in between.
    """
    seen: set[int] = set()
    while True:
        found = _listed()
        ours = {os.getpid()}
        while more := {p.pid for p in found if p.parent in ours} - ours:
            ours |= more
        if seen <= ours and seen:
            return [p for p in found if p.pid in ours]
        seen = ours


def _listed() -> list[_Process]:
    """All processes there are."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name stands in parentheses and may hold anything.
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue  # gone since it was listed
        fields = tail.split()
        ticks = tuple(map(int, fields[11:15]))
        found.append(_Process(int(stat.parent.name), int(fields[1]), head.partition("(")[2], ticks))
    return found


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
