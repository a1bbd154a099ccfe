"""The process that forks the actors of an audit, and the two ways to it.

`fork`, for a command: from its own process, once that has imported what the sink needs, so that nothing is imported twice. Safe only
while nothing is open and no other thread runs: a lock that one holds, or what SQLite knows of a file that is open, would be copied
into every actor.

`spawn`, for all others: `python -m pakka.audit.host MODULE FD...`, a new interpreter, which imports what drivers need and the
sink's module.

Either way an actor has nothing of its own when it is forked: no connection, no sink. It costs milliseconds, where an interpreter costs a
third of a second.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from pakka.audit.actor import play


class Host(Protocol):
    """A process that leads a group of its own, in which its actors are."""

    pid: int

    def wait(self) -> int:
        """Until it has ended."""


@dataclass(frozen=True)
class Lines:
    """The descriptors between an audit and its actors."""

    mine: Sequence[int]
    """The audit's ends. An actor that held one of them would never see it closed."""
    theirs: Sequence[int]
    """One for each actor."""
    held: int
    """Nothing is written to it. All of them hold it, so that its other end sees when the last of them has ended."""


Start = Callable[[str, Lines], Host]
"""A way to a host for the actors of a sink, whose module is named."""


class _Forked:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


def fork(_module: str, lines: Lines) -> Host:
    """From this process, which has imported the module, has nothing open and runs no other thread."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            for descriptor in lines.mine:
                os.close(descriptor)
            host(lines.theirs)
        finally:
            os._exit(0)
    # By both, as shells do it: whoever is first, from here on the group is there.
    os.setpgid(pid, pid)
    return _Forked(pid)


def spawn(module: str, lines: Lines) -> Host:
    """From any process."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, module, *map(str, lines.theirs)],
        pass_fds=[*lines.theirs, lines.held],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # What goes wrong there comes back as an answer. A traceback could show what the pipeline file hides.
        stderr=subprocess.DEVNULL,
        # A group of their own: Ctrl-C is for the audit, which tidies up and ends them.
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def host(descriptors: Sequence[int]) -> None:
    """Fork an actor for each descriptor, and wait until all of them have ended."""
    for mine in descriptors:
        if os.fork() == 0:
            try:
                for other in descriptors:
                    if other != mine:
                        os.close(other)
                play(Connection(mine))
            finally:
                # Not the end of the program, which would wait for the other actors: the end of this one.
                os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            # Arrow takes its time to be taken down in good order, and there is nothing here that it is needed for.
            os._exit(0)


if __name__ == "__main__":
    # A module that is not found is left to the actors: they are told the path.
    with suppress(ImportError):
        importlib.import_module(sys.argv[1])
    host([int(word) for word in sys.argv[2:]])
