"""The other processes of an audit: drivers that are killed, and one that wakes up too late.

An actor is told what to do over its connection, does it, and ends when the other end is closed. Where it comes from is in
`pakka.audit.host`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from pakka import points
from pakka.audit.driver import Driver
from pakka.errors import PakkaError
from pakka.model.epoch import Epoch
from pakka.model.prepared import Prepared

STOPPED = "stopped"
"""What an actor answers from the middle of a commit."""

# Reached right after the rows of an epoch have become visible, and before anybody is told.
_VISIBLE = frozenset({"commit.applied", "commit.published"})
# Reached right before: whatever a sink checks outside of its transaction, it has checked by now.
_BEFORE = frozenset({"commit.apply", "commit.publish"})


def play(connection: Connection) -> None:
    """One actor: do as told, one call after another."""
    sys.path[:] = connection.recv()
    connection.send(os.getpid())
    driver: Driver | None = None
    while True:
        try:
            name, *args = connection.recv()
            if name == "open":
                driver = Driver.begin(*args)
                answer: Any = None
            elif name == "commit_and_stop":
                assert driver is not None
                answer = _commit_and_stop(connection, driver, *args)
            else:
                assert driver is not None
                answer = _ACTS[name](driver, *args)
        except EOFError:
            return
        except PakkaError as error:
            answer = error
        except Exception as error:  # a sink's own error may not survive the way; its words do
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        connection.send(answer)


def _prepare(driver: Driver, epoch: Epoch, ids: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    return [record.to_json() for record in driver.prepare(epoch, ids)]


def _commit(driver: Driver, epoch: Epoch, records: list[dict[str, Any]]) -> str:
    return driver.commit(epoch, [Prepared.from_json(r) for r in records]).kind.value


def _commit_and_stop(connection: Connection, driver: Driver, epoch: Epoch, records: list[dict[str, Any]]) -> str:
    def strike(point: str, _epoch: int) -> None:
        if point in _BEFORE:
            points.arm(None)
            connection.send(STOPPED)
            connection.recv()

    points.arm(strike)
    try:
        return _commit(driver, epoch, records)
    finally:
        points.arm(None)


def _commit_and_die(driver: Driver, epoch: Epoch, records: list[dict[str, Any]]) -> None:
    def strike(point: str, _epoch: int) -> None:
        if point in _VISIBLE:
            os.kill(os.getpid(), signal.SIGKILL)

    points.arm(strike)
    _commit(driver, epoch, records)
    os.kill(os.getpid(), signal.SIGKILL)


_ACTS: dict[str, Callable[..., Any]] = {
    "prepare": _prepare,
    "commit": _commit,
    "commit_and_die": _commit_and_die,
}
