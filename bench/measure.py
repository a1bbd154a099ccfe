"""How to measure two things on one machine: in turns, after a warm-up, several times."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
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
    """Processor seconds of this process and all below it, the finished ones included: the JVM and Spark's workers.

    On a machine that others use too it says more than the clock does.
    """
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name stands in parentheses and may hold anything.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone since it was listed
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
