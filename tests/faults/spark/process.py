"""A driver as a user starts it, `pakka run refunds.yaml --json`, in a session of its own, with all that hangs on it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pakka.testing.crash import Drill

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 240.0
"""Spark takes 8 s to start, and many times that on a busy machine. It is only there so that nothing hangs for ever."""
KILLED = -signal.SIGKILL


class Driver:
    """A running `pakka`, its Spark, and what they say."""

    def __init__(
        self, root: Path, words: list[str], name: str, drill: Drill | None = None, more: Mapping[str, str] | None = None
    ) -> None:
        """`more` is for its environment."""
        self.out, self.err = root / "words" / f"{name}.out", root / "words" / f"{name}.err"
        self.out.parent.mkdir(exist_ok=True)
        scratch = root / "scratch"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])),
            # A JVM that is killed leaves its scratch files; here they go with the test.
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(more or {}),
            **(drill.environment() if drill else {}),
        }
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.spark.cli", *words],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self.err.read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The complete lines so far."""
        return [json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    @property
    def error(self) -> dict[str, Any]:
        """The error that it ended with, as `--json` tells it."""
        lines = [line for line in self.said.splitlines() if line.startswith('{"error"')]
        assert lines, f"no error was told:\n{self.said}"
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def wait(self) -> int:
        """Its exit code; minus the signal that killed it."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {self.pid} does not end; it said:\n{self.said}") from None

    def wait_for(self, is_true: Callable[[], bool], what: str) -> None:
        """Until it is so. A driver that ends before is a failure of the test."""
        give_up = time.monotonic() + PATIENCE_S
        while not is_true():
            code = self.process.poll()
            assert code is None, f"it ended with exit code {code} before {what}; it said:\n{self.said}"
            assert time.monotonic() < give_up, f"waited in vain until {what}; it said:\n{self.said}"
            time.sleep(0.02)

    def wait_until_frozen(self) -> None:
        self.wait_for(lambda: _state(self.pid) == "T", "a drill froze it")

    def wait_until_delivered(self, epoch: int) -> None:
        self.wait_for(lambda: any(e.get("epoch", -1) >= epoch for e in self.events), f"epoch {epoch} was delivered")

    def wait_until_alone(self) -> None:
        """Until Spark's JVM and its Python workers have ended too. Nobody has to tell them: their driver is gone."""
        give_up = time.monotonic() + PATIENCE_S
        while left := family(self.pid):
            assert time.monotonic() < give_up, f"driver {self.pid} has ended and left processes behind: {left}"
            time.sleep(0.05)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """The driver's Python alone."""
        os.kill(self.pid, signal.SIGKILL)

    def kill_jvm(self) -> None:
        """Spark's JVM, which is dead when this returns."""
        (pid,) = (pid for pid in family(self.pid) if Path(f"/proc/{pid}/comm").read_text() == "java\n")
        os.kill(pid, signal.SIGKILL)
        give_up = time.monotonic() + PATIENCE_S
        while pid in family(self.pid):
            assert time.monotonic() < give_up, f"JVM {pid} does not die"
            time.sleep(0.005)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def interrupt_as_a_terminal_does(self) -> None:
        """Ctrl-C reaches every process in the foreground, Spark's JVM among them."""
        os.killpg(self.pid, signal.SIGINT)

    def clear_away(self) -> None:
        """Whatever is left of it. Spark's Python workers have left the process group, but not the session."""
        if self.process.poll() is None:
            _kill(self.pid)
            self.process.wait()
        while left := family(self.pid):
            for pid in left:
                _kill(pid)
            time.sleep(0.02)


def family(leader: int) -> list[int]:
    """Every process in the session that `leader` began, except itself. Those that only wait to be reaped are gone."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != leader]
    return [pid for pid in pids if (stat := _stat(pid)) and int(stat[3]) == leader and stat[0] not in "ZX"]


def _state(pid: int) -> str:
    stat = _stat(pid)
    return stat[0] if stat else ""


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and more; the name before them may hold anything. Nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
