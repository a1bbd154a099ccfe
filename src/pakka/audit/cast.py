"""The other processes of an audit, from this side: told what to do, killed, or woken up too late."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from pakka.audit.actor import STOPPED
from pakka.audit.host import Lines, Start
from pakka.contract.sink import Sink
from pakka.errors import UnavailableError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding
from pakka.model.prepared import Prepared

CAST = ("prepared", "undecided", "committing", "zombie", "overtaken")
"""The parts: each is a process of its own."""

_ANSWER_S = 60.0
_END_S = 2.0


class Actor:
    """A driver in another process, from this side."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._pid: int | None = None

    @property
    def has_begun(self) -> bool:
        return self._pid is not None

    def begin(self, sink: Sink, binding: Binding, fence: int) -> None:
        """Open a driver there, under a fence that it raises."""
        try:
            # What is not installed, such as a sink beside the pipeline file, is found as it is found here.
            self.connection.send(sys.path)
            self._pid = self._answer()
        except (EOFError, BrokenPipeError):
            raise UnavailableError(
                "the processes of the audit could not be started; the scratch area is removed",
                hint="see what `python -m pakka.audit.host` says",
            ) from None
        self._ask("open", sink, binding, fence)

    def prepare(self, epoch: Epoch, ids: Sequence[Sequence[str]]) -> list[Prepared]:
        """Write and prepare there, one slot for each list of ids."""
        return [Prepared.from_json(record) for record in self._ask("prepare", epoch, ids)]

    def commit(self, epoch: Epoch, records: Sequence[Prepared]) -> str:
        """Commit there. The words of the outcome."""
        answer: str = self._ask("commit", epoch, [r.to_json() for r in records])
        return answer

    def commit_and_stop(self, epoch: Epoch, records: Sequence[Prepared]) -> bool:
        """Commit there, and stand still right before the rows become visible. False: the sink named no such moment."""
        answer: str = self._ask("commit_and_stop", epoch, [r.to_json() for r in records])
        return answer == STOPPED

    def go_on(self) -> str:
        """Let a commit that stands still go on. The words of its outcome."""
        answer: str = self._ask("go on")
        return answer

    def commit_and_die(self, epoch: Epoch, records: Sequence[Prepared]) -> None:
        """Commit there, and be killed when the rows have become visible, before anybody is told."""
        self.connection.send(("commit_and_die", epoch, [r.to_json() for r in records]))
        try:
            answer = self._answer()
        except EOFError:
            return
        raise UnavailableError(f"a process that should have died has answered {answer!r}; it was not an audit")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGKILL)
        try:
            self._answer()
        except EOFError:
            return

    def _ask(self, name: str, *args: Any) -> Any:
        self.connection.send((name, *args))
        try:
            return self._answer()
        except EOFError:
            raise RuntimeError("its process has ended by itself") from None

    def _answer(self) -> Any:
        if not self.connection.poll(_ANSWER_S):
            raise UnavailableError(
                f"a process of the audit has not answered for {_ANSWER_S:g} s; the scratch area is removed",
                hint="see that the system answers, then audit it again",
            )
        try:
            answer = self.connection.recv()
        except ConnectionResetError:
            raise EOFError from None
        if isinstance(answer, Exception):
            raise answer
        return answer


class Cast:
    """All actors of one audit."""

    def __init__(self, start: Start, sink: Sink) -> None:
        ends = [socket.socketpair() for _ in CAST]
        self._life, held = os.pipe()
        mine, theirs = [self._life, *(here.fileno() for here, _ in ends)], [there.fileno() for _, there in ends]
        self._host = start(type(sink).__module__, Lines(mine, theirs, held))
        os.close(held)
        for _, there in ends:
            there.close()
        self._actors = {name: Actor(Connection(here.detach())) for name, (here, _) in zip(CAST, ends, strict=True)}

    def __getitem__(self, name: str) -> Actor:
        return self._actors[name]

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Actors end when their connection is closed, and the host when all of them have. Twice is harmless."""
        if self._life < 0:
            return
        has_begun = any(actor.has_begun for actor in self._actors.values())
        for actor in self._actors.values():
            actor.connection.close()
        are_gone, _, _ = select.select([self._life], [], [], _END_S if has_begun else 0)
        if not are_gone:
            # None of them has been used, or one waits for a system that does not answer.
            os.killpg(self._host.pid, signal.SIGKILL)
        self._host.wait()
        os.close(self._life)
        self._life = -1
