"""What a seed makes of a run: the pipeline, the faults that may strike, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random


class Fault(Enum):
    """Everything that can go wrong here."""

    CRASH = "driver crashed"
    FREEZE = "driver frozen, to wake up late"
    RIVAL = "second driver started beside a running one"
    UNAVAILABLE = "no connection, nothing sent"
    LOST_REQUEST = "request lost"
    LOST_ANSWER = "request done, answer lost"
    DELAYED = "request done later, no answer"
    TASK_FAILED = "task failed, and was run again"
    TASK_FAILED_FOR_GOOD = "task failed for good"
    TASK_SILENT = "task handed nothing back"
    TASK_TWIN = "speculative twin prepared too"
    TASK_LATE = "speculative twin prepared late"
    CORES = "driver started with another number of cores"
    RECORD_LOST = "sink lost a prepared record"
    STORE_LOST = "state store lost"
    STORE_RESTORED = "state store restored from an older copy"
    CHECKPOINT_LOST = "checkpoint lost"
    CHECKPOINT_RESTORED = "checkpoint restored from an older copy"
    CHECKPOINT_REPLANNED = "batch planned again with other offsets"
    SINK_RESTORED = "sink restored from an older copy"


# How likely each is whenever it could strike: at every switch point of a driver, at every call, at every task, or
# whenever no driver runs. Rare ones strike at places that come seldom.
RATES: dict[Fault, float] = {
    Fault.CRASH: 0.012,
    Fault.FREEZE: 0.008,
    Fault.RIVAL: 0.006,
    Fault.UNAVAILABLE: 0.02,
    Fault.LOST_REQUEST: 0.02,
    Fault.LOST_ANSWER: 0.03,
    Fault.DELAYED: 0.03,
    Fault.TASK_FAILED: 0.08,
    Fault.TASK_FAILED_FOR_GOOD: 0.02,
    Fault.TASK_SILENT: 0.03,
    Fault.TASK_TWIN: 0.08,
    Fault.TASK_LATE: 0.06,
    Fault.CORES: 0.15,
    Fault.RECORD_LOST: 0.004,
    Fault.STORE_LOST: 0.003,
    Fault.STORE_RESTORED: 0.003,
    Fault.CHECKPOINT_LOST: 0.08,
    Fault.CHECKPOINT_RESTORED: 0.12,
    Fault.CHECKPOINT_REPLANNED: 0.3,
    Fault.SINK_RESTORED: 0.12,
}

# Some holes open only where a few faults meet at the right moment. Nearly half of the seeds have one such few, often, and no others.
STORE_FOCUS: dict[Fault, float] = {
    Fault.STORE_LOST: 0.01,
    Fault.STORE_RESTORED: 0.005,
    Fault.LOST_REQUEST: 0.04,
    Fault.LOST_ANSWER: 0.04,
    Fault.CRASH: 0.004,
    Fault.RECORD_LOST: 0.004,
}
RIVAL_FOCUS: dict[Fault, float] = {Fault.RIVAL: 0.03, Fault.FREEZE: 0.02, Fault.TASK_LATE: 0.1}
LOSS_FOCUS: dict[Fault, float] = {
    Fault.RECORD_LOST: 0.01,
    Fault.CORES: 0.5,
    Fault.UNAVAILABLE: 0.03,
    Fault.STORE_RESTORED: 0.001,
    Fault.CRASH: 0.004,
}
BACKUP_FOCUS: dict[Fault, float] = {Fault.SINK_RESTORED: 0.3, Fault.CRASH: 0.02}
SLOTWISE_FOCUS = (STORE_FOCUS, LOSS_FOCUS, BACKUP_FOCUS)
"""Sinks that commit slot by slot are the ones that have an epoch in part."""

KINDS = ("aggregated", "spooled", "slotwise")


@dataclass(frozen=True, slots=True)
class Plan:
    """One pipeline in one world."""

    sinks: tuple[tuple[str, str], ...]
    """Names and kinds; the last one takes the dead letters if there is more than one."""
    rows: int
    batch_most: int
    slots_most: int
    """Partitions that a batch of the source has at most, and cores that a driver has."""
    sweep_every: int
    attempts: int
    """How often the coordinator asks a sink or the store before it gives up."""
    stay: float
    rates: dict[Fault, float]
    faults_most: int
    drivers_most: int


def _some(chance: Random) -> dict[Fault, float]:
    """Each fault in about half of the seeds, so that it also strikes without the others."""
    scale = chance.choice((0.3, 1.0, 1.0, 2.5))
    return {fault: rate * scale for fault, rate in RATES.items() if chance.random() < 0.5}


def draw(chance: Random) -> Plan:
    """The plan of a seed."""
    names = ("lake", "audit", "dead_letters")[: chance.choice((1, 2, 2, 3))]
    focus = chance.choice((*(None,) * 6, STORE_FOCUS, RIVAL_FOCUS, LOSS_FOCUS, LOSS_FOCUS, BACKUP_FOCUS))
    kinds = ("slotwise",) if focus in SLOTWISE_FOCUS and chance.random() < 0.7 else KINDS
    # Only an epoch of several slots, with rows in them, can be there in part.
    least = 3 if focus in (LOSS_FOCUS, BACKUP_FOCUS) else 1
    return Plan(
        sinks=tuple((name, chance.choice(kinds)) for name in names),
        rows=chance.randint(6, 24),
        batch_most=chance.randint(least + 1, 6),
        slots_most=chance.randint(least, 4),
        sweep_every=chance.randint(2, 4),
        attempts=chance.randint(2, 4),
        stay=chance.choice((0.5, 0.8, 0.95, 0.99)),
        rates=dict(focus or _some(chance)),
        faults_most=chance.randint(least, 12),
        drivers_most=chance.choice((2, 2, 3)),
    )
