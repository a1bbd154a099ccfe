"""Drills: what may strike at the crash points, and the table of all points.

A drill is data. `Drill(...).environment()` arms every process that inherits it, the driver and its Python workers alike::

    PAKKA_DRILL='{"point": "decide.after", "do": "kill", "epoch": 2}' pakka run refunds.yaml
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pakka import points
from pakka.errors import UsageError
from pakka.model.id import nearest

POINTS: dict[str, str] = {
    "begin": "driver: Spark has handed an epoch over; nothing is staged",
    "task.begin": "task: before anything of a slot is staged",
    "task.file.begin": "task: a file sink's attempt has its directory, and no file",
    "task.file.batch": "task: a file sink has taken some rows, and still has them in memory",
    "task.batch": "task: some of a slot's rows are staged, and not all",
    "task.file.prepared": "task: a file sink's slot is synced, and nobody has been told",
    "task.sql.loaded": "task: a SQL sink's slot is in its open transaction, which is not prepared",
    "task.sql.prepared": "task: a SQL sink's slot is prepared, and nobody has been told",
    "task.kafka.begun": "task: a Kafka slot has its transactional id and has seen the fence, and nothing is sent",
    "task.kafka.sent": "task: a Kafka slot's transaction is whole and open, and its copy in the spool is not synced",
    "task.kafka.prepared": "task: a Kafka slot is prepared, and nobody has been told",
    "task.prepared": "task: the slot is prepared in one of its sinks, and perhaps not in the next",
    "prepared": "driver: every slot is prepared, and nobody has looked at the reports",
    "decide.before": "driver: all is checked; the decision is not written",
    "decide.after": "driver: the decision is durable; no sink has committed",
    "commit.sink": "driver: about to commit one sink of several; others may be done",
    "commit.slot": "driver: about to commit some slots of a sink; others may be done",
    "commit.move": "driver: some of a file sink's slots are moved to their epoch, and not all",
    "commit.publish": "driver: a file sink's epoch is complete, and not yet renamed into sight",
    "commit.published": "driver: a file sink's epoch is in sight, and its name is not yet synced",
    "commit.kafka.begun": "driver: Kafka's transaction is open, and empty",
    "commit.kafka.sending": "driver: some of an epoch's records are sent to Kafka, and not all, in an open transaction",
    "commit.kafka.sent": "driver: an epoch's records are in Kafka, in an open transaction, and the ledger's is not",
    "commit.kafka.replayed": "driver: a Kafka slot that had expired is sent again, in an open transaction",
    "commit.kafka.shard.begun": "task, after the decision: a Kafka shard has its transactional id and has seen the ledger, and nothing is sent",
    "commit.kafka.shard.sent": "task, after the decision: a Kafka shard is whole, in a transaction whose end was not asked for",
    "commit.kafka.shard.ended": "task, after the decision: a Kafka shard is committed, and nobody has been told",
    "commit.apply": "driver: a sink's transaction has the rows, and is not committed",
    "commit.kafka.offsets": "driver: Kafka's transaction has the records and the ledger's, and not the source's offsets",
    "commit.kafka.ending": "driver: Kafka's transaction has all, and its end was not asked for",
    "commit.applied": "driver: a sink's transaction is committed, and nobody has been told; what was spooled is still there",
    "commit.after": "driver: every sink has committed; the state store does not know",
    "acknowledge.before": "driver: all is done; Spark has not been told",
    "recover.fenced": "driver, at the start: the fence is taken, and no sink knows",
    "recover.examined": "driver, at the start: the witnesses agree; nothing is changed",
    "recover.raised": "driver, at the start: the fence is raised in the sinks; nothing is settled",
    "recover.committed": "driver, at the start: the decided epochs are committed; litter is still there",
    "recover.settled": "driver, at the start: all is settled, and the state store does not know",
    "recover.entered": "driver, at the start: the state store knows",
}

DEEDS = ("kill", "kill-driver", "kill-jvm", "stop", "fail")
_VARIABLE = "PAKKA_DRILL"


@dataclass(frozen=True, slots=True)
class Drill:
    """Strike when `point` is reached for the `nth` time in a process, in `epoch` if one is given.

    `do` is `kill` (SIGKILL to the process that reached it), `kill-driver` (to the driver's Python), `kill-jvm` (to Spark's
    JVM), `stop` (SIGSTOP to the process that reached it) or `fail` (raise an error).
    """

    point: str
    do: str = "kill"
    epoch: int | None = None
    nth: int = 1
    mark: str | None = None
    """A file made by the strike. While it is there the drill does not strike again, in whatever process."""

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise UsageError(f"there is no crash point `{self.point}`", hint=nearest(self.point, POINTS))
        if self.do not in DEEDS:
            raise UsageError(f"a drill cannot `{self.do}`", hint=nearest(self.do, DEEDS))

    def environment(self) -> dict[str, str]:
        """The variable that arms a process and all its children."""
        return {_VARIABLE: json.dumps(asdict(self))}


class DrillError(Exception):
    """The error that a drill with `do: fail` raises."""


def arm(drill: Drill) -> None:
    """Arm this process."""
    points.arm(_striker(drill))


def arm_from_environment() -> None:
    """Arm this process as the environment says."""
    arm(Drill(**json.loads(os.environ[_VARIABLE])))


def _striker(drill: Drill) -> Callable[[str, int], None]:
    lock = threading.Lock()
    seen = 0

    def strike(point: str, epoch: int) -> None:
        nonlocal seen
        if point != drill.point or (drill.epoch is not None and epoch != drill.epoch):
            return
        with lock:
            seen += 1
            if seen != drill.nth or not _mark(drill):
                return
        _do(drill)

    return strike


def _mark(drill: Drill) -> bool:
    if drill.mark is None:
        return True
    try:
        os.close(os.open(drill.mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _do(drill: Drill) -> None:
    if drill.do == "fail":
        raise DrillError(f"a drill struck at {drill.point}")
    if drill.do == "stop":
        # To this very thread: a stop of the process is taken by its main thread, and this one would go on until that wakes up.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return
    pid = {"kill-driver": _driver_pid, "kill-jvm": _jvm_pid}.get(drill.do, os.getpid)()
    os.kill(pid, signal.SIGKILL)
    if pid != os.getpid():
        # What was killed must not be overtaken by what this process would do next.
        threading.Event().wait(timeout=1.0)


def _jvm_pid() -> int:
    """Spark's JVM: an ancestor of a worker, a child of the driver."""
    pid = os.getpid()
    while pid > 1:
        if _command(pid) == "java":
            return pid
        pid = _parent(pid)
    children = [
        int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _parent(int(p.name)) == os.getpid()
    ]
    return next(p for p in children if _command(p) == "java")


def _driver_pid() -> int:
    """The driver's Python: the parent of the JVM that a worker hangs on, or this very process."""
    pid = os.getpid()
    while pid > 1:
        if _command(pid) == "java":
            return _parent(pid)
        pid = _parent(pid)
    return os.getpid()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except FileNotFoundError:
        return 0
