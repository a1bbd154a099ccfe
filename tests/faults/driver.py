"""A driver without Spark: the real coordinator, state store and sinks, and a stand-in for the engine.

::

    python -m tests.faults.driver SPEC.json

It does what `pakka.spark.run` does around the query, and ends with the same exit codes.
"""

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pakka.contract.sink import Sink
from pakka.contract.state import Owner
from pakka.coordinator.epoch import Coordinator
from pakka.coordinator.retry import Retry
from pakka.errors import PakkaError, UnavailableError
from pakka.model.epoch import Origin
from pakka.points import reach
from pakka.spark import checkpoint
from pakka.state import open_store
from pakka.testing.crash import DrillError
from tests.faults.engine import CheckpointDirectory, Engine, Job, QueryFailed, Trouble, Workers, run_here
from tests.faults.workload import Workload

PIPELINE = "refunds"
UNEXPECTED = 99
"""The exit code for what is neither an error of pakka nor the end of Spark's query."""


@dataclass(frozen=True)
class Spec:
    """All that a driver is told."""

    site: str
    state: str
    workload: Workload = field(default_factory=Workload)
    pipeline: str = PIPELINE
    sinks: str = "tests.faults.outputs:standard"
    """Who makes the sinks of a site."""
    setup: str = ""
    """What to call before anything else: how a test breaks pakka on purpose, or shortens its patience."""
    has_workers: bool = False
    is_parallel: bool = False
    """Commit with threads, as the real driver does; one after another makes a crash point mean the same in every run."""
    attempts: int = 1
    trouble: Trouble | None = None
    is_speculative: bool = False
    tries: int = 4
    position: str = ""
    """Who says where the source stands after a batch of a site; nobody, if it is empty."""
    gate: str = ""
    """A file to wait for before the start, so that two drivers can be let go at once."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        data = json.loads(text)
        data["workload"] = Workload(**data["workload"])
        data["trouble"] = Trouble(**data["trouble"]) if data["trouble"] else None
        return cls(**data)


class Inline(Executor):
    """A pool that does each thing at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run(spec: Spec) -> None:
    """As `pakka.spark.run.run`: recover, then every epoch, then stop."""
    if spec.setup:
        _load(spec.setup)()
    site = Path(spec.site)
    sinks: Mapping[str, Sink] = _load(spec.sinks)(site)
    runner = Workers() if spec.has_workers else run_here
    job = Job(
        spec.pipeline, str(site / "spool"), -1, -1, -1, -1, -1, 0, sinks, spec.workload, spec.trouble, str(site / "log")
    )
    engine = Engine(job, runner, spec.attempts, spec.is_speculative)
    _wait_for(spec.gate)
    pool = ThreadPoolExecutor(max_workers=16) if spec.is_parallel else Inline()
    with closing(open_store(spec.state)) as store, pool:
        coordinator = Coordinator(
            spec.pipeline,
            sinks,
            store,
            spool=job.spool,
            owner=Owner(socket.gethostname(), os.getpid(), time.time()),
            clock=time.time,
            sleep=time.sleep,
            pool=pool,
            retry=Retry(attempts=spec.tries, first_s=0.02),
        )
        try:
            path = site / "checkpoint"
            recovered = coordinator.start(lambda: checkpoint.read(str(path)))
            _tell("started", fence=recovered.state.fence, finished=recovered.finished, aborted=recovered.aborted)
            position = partial(_load(spec.position), site) if spec.position else lambda _: ""
            _run_query(CheckpointDirectory(path, spec.workload.batches), coordinator, engine, position)
        finally:
            coordinator.stop()


def _run_query(
    query: CheckpointDirectory, coordinator: Coordinator, engine: Engine, position: Callable[[int], str]
) -> None:
    try:
        for number, offsets in query.planned():
            origin = Origin(query.query, number, checkpoint.digest(offsets), position(number))
            report = coordinator.deliver(origin, engine.prepare)
            _tell("delivered", epoch=report.epoch.number, is_new=report.is_new, sinks=dict(report.sinks))
            reach("acknowledge.before", report.epoch.number)
            query.acknowledge(number)
    except (QueryFailed, DrillError) as error:
        with suppress(UnavailableError):
            coordinator.check_fence()
        raise UnavailableError(f"pipeline `{PIPELINE}`: Spark's query ended: {error}", hint="run it again") from error


def main(text: str) -> int:
    """Run, and say how it went: events on stdout, the error on stderr, and the exit code."""
    try:
        run(Spec.from_json(text))
    except PakkaError as error:
        print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return UNEXPECTED
    return 0


def _tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def _load(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(module), attribute)
    return loaded


def _wait_for(gate: str) -> None:
    if gate:
        Path(f"{gate}.{os.getpid()}").touch()
        while not Path(gate).exists():
            time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text()))
