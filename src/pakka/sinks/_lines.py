"""Connections that are used again: threads lend them, and one that has seen an error is not kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Lendable(Protocol):
    """A connection."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


L = TypeVar("L", bound=Lendable)


class Lines(Generic[L]):
    """Connections to one database. `is_alive` looks at one that stood idle before it is lent again."""

    def __init__(self, connect: Callable[[], L], is_alive: Callable[[L], bool]) -> None:
        self.connect = connect
        self.is_alive = is_alive
        self._idle: list[L] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[L]:
        line = self.take()
        try:
            yield line
        except BaseException:
            line.close()
            raise
        self.give_back(line)

    def take(self) -> L:
        """A line that the caller gives back or closes."""
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is not None:
            if self.is_alive(line):
                return line
            line.close()
        return self.connect()

    def give_back(self, line: L) -> None:
        with self._lock:
            if not self._is_closed and line.is_open:
                self._idle.append(line)
                return
        line.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for line in idle:
            line.close()
