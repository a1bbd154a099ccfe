"""Other processes for the suite: to prepare in, to commit in, and to be killed.

They are forked by a server that has already imported what they need, so that one is at work within milliseconds. What
crosses over is what crosses over in a pipeline: the pickled sink, and JSON.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from pakka.contract.sink import Sink
from pakka.errors import FencedError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Outcome
from pakka.model.prepared import Prepared
from pakka.testing.contract.moment import Course, Strike, striking, watching
from pakka.testing.contract.trial import Trial, as_json, commit_epoch, prepare_slot, refunds
from pakka.testing.contract.verdict import Broken

_PATIENCE_S = 120.0
_CONTEXT = multiprocessing.get_context("forkserver")
# pyarrow looks for pandas at the first conversion, which would cost every process half a second of its own. There is one
# server a process: it is told here, once, so that tests which need more may tell it otherwise before it starts.
_CONTEXT.set_forkserver_preload(["pakka.testing.contract", "pyarrow.pandas_compat", "pandas"])

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """How another process ended."""

    is_killed: bool
    value: Any = None
    course: Course = field(default_factory=Course)


@dataclass(frozen=True, slots=True)
class Errand:
    """What another process gets to know: no more than a Spark task or a new driver would."""

    sink: Sink
    binding: Binding
    fence: int

    @classmethod
    def of(cls, trial: Trial, fence: int) -> Errand:
        return cls(trial.sink, trial.binding, fence)

    def prepare(self, epoch: int, shares: Sequence[int]) -> Sequence[Json]:
        """Prepare every slot of an epoch; its records as JSON."""
        records: list[Prepared] = []
        for number, rows in enumerate(shares):
            batch, slot = refunds(epoch, number, rows), self._slot(epoch, number)
            writer = self.sink.open_writer(self.binding, slot, batch.schema)
            records.append(prepare_slot(writer, slot, batch))
        return as_json(records)

    def die_writing(self, epoch: int, rows: int) -> None:
        """Write some rows, and be killed before the rest of them has come."""
        batch = refunds(epoch, 0, rows)
        self.sink.open_writer(self.binding, self._slot(epoch, 0), batch.schema).write(batch)
        _die()

    def raise_fence(self) -> bool:
        """Take the sink over, as the start of a run does."""
        committer = self.sink.open_committer(self.binding, self.fence)
        try:
            return committer.raise_fence()
        finally:
            committer.close()

    def commit(self, epoch: Json, records: Sequence[Json]) -> Outcome:
        """Commit what came as JSON. A fence that was raised meanwhile is an answer like any other here."""
        committer = self.sink.open_committer(self.binding, self.fence)
        try:
            prepared = [Prepared.from_json(record) for record in records]
            return commit_epoch(committer, Epoch.from_json(dict(epoch)), prepared)
        except FencedError as error:
            return Outcome.refused(error.message)
        finally:
            committer.close()

    def _slot(self, epoch: int, number: int) -> Slot:
        return Slot(self.binding.pipeline, self.binding.sink, epoch, self.fence, number, 0)


def elsewhere(
    work: Callable[..., Any], *arguments: Any, strike: Strike | None = None, is_watched: bool = False
) -> Answer:
    """Do `work` in another process, which is killed when it strikes; a watched one tells the course of it."""
    try:
        parcel = pickle.dumps((work, arguments))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Broken(f"the sink cannot be sent to another process: {error}") from error
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_play, args=(theirs, parcel, strike, is_watched))
    process.start()
    theirs.close()
    try:
        if not ours.poll(_PATIENCE_S):
            raise Broken("another process was asked to work on the sink, and does not end")
        complaint, value, course = ours.recv()
    except EOFError:
        process.join(_PATIENCE_S)
        if process.exitcode == -signal.SIGKILL:
            return Answer(is_killed=True)
        raise Broken(f"another process worked on the sink and ended with exit code {process.exitcode}") from None
    finally:
        ours.close()
        process.kill()
        process.join()
    if complaint:
        raise Broken(f"in another process: {complaint}")
    return Answer(False, value, course)


def _play(pipe: Connection, parcel: bytes, strike: Strike | None, is_watched: bool) -> None:
    value, error, course = None, "", Course()
    try:
        work, arguments = pickle.loads(parcel)
        if is_watched:
            with watching() as course:
                value = work(*arguments)
        else:
            with striking(strike, _die) if strike else nullcontext():
                value = work(*arguments)
    except Exception as raised:  # told to the parent, in whose name it is raised again
        error = f"{type(raised).__name__}: {raised}"
    pipe.send((error, value, course))
    pipe.close()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
