"""Real processes for the tests to kill, freeze and wake.

They are forked by a server that has already imported what they need, so that a driver is at work within milliseconds.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pakka.testing.crash import Drill, arm
from tests.faults import driver
from tests.faults.driver import Spec

PATIENCE_S = 120.0
KILLED = -signal.SIGKILL

_CONTEXT = multiprocessing.get_context("forkserver")


class Child:
    """A process in a group of its own, with its words in two files."""

    def __init__(self, target: Callable[..., int], args: tuple[Any, ...], words: Path, drill: Drill | None) -> None:
        self.out, self.err = words.with_suffix(".out"), words.with_suffix(".err")
        armed = asdict(drill) if drill else None
        self.process = _CONTEXT.Process(target=_play, args=(target, args, str(self.out), str(self.err), armed))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self.err.read_text() if self.err.exists() else ""

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return [json.loads(line) for line in lines]

    def is_over(self) -> bool:
        return self.process.exitcode is not None

    def wait(self) -> int:
        """Its exit code; minus the signal that killed it."""
        self.process.join(PATIENCE_S)
        code = self.process.exitcode
        assert code is not None, f"process {self.pid} does not end; it said:\n{self.said}"
        return code

    def wait_until_frozen(self, pids: Callable[[], list[int]] | None = None) -> None:
        """Until a drill has stopped it, or one of `pids`."""
        wait_until(lambda: self.is_over() or any(map(is_frozen, pids() if pids else [self.pid])), "nothing froze")
        assert not self.is_over(), f"it ended ({self.process.exitcode}) before the drill struck; it said:\n{self.said}"

    def wake(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """The process alone, as a kernel that is out of memory would."""
        os.kill(self.pid, signal.SIGKILL)

    def clear_away(self) -> None:
        """Whatever is left of it and of its own children."""
        self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.join(PATIENCE_S)


def _play(target: Callable[..., int], args: tuple[Any, ...], out: str, err: str, drill: dict[str, Any] | None) -> None:
    os.setsid()
    for path, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), stream)
    if drill:
        arm(Drill(**drill))
    sys.exit(target(*args))


def start_driver(spec: Spec, words: Path, drill: Drill | None = None) -> Child:
    return Child(driver.main, (spec.to_json(),), words, drill)


def wait_until(is_true: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    """Look again and again; the time it takes means nothing."""
    give_up = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < give_up, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(0.005)


def is_frozen(pid: int) -> bool:
    try:
        return _stat(pid)[0] == "T"
    except FileNotFoundError:
        return False


def group(leader: int) -> list[int]:
    """Every process in the group of `leader` except itself."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != leader]
    return [pid for pid in pids if _group_of(pid) == leader]


def _group_of(pid: int) -> int:
    try:
        return int(_stat(pid)[2])
    except FileNotFoundError:
        return -1


def _stat(pid: int) -> list[str]:
    """State, parent, group and more; the name before them may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except ProcessLookupError:
        raise FileNotFoundError(pid) from None
