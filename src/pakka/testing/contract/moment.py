"""Moments inside a call: somewhere between two steps of a sink's own code, whatever that code is.

A sink that pakka has never seen has no crash points, so moments are counted by the interpreter: every call and return, of
Python and of C alike, is one. Which of them matter is not known, so they are tried evenly, and the crash points beside.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pakka import points


@dataclass
class Course:
    """What happens during a call: how many moments it has, and which crash points it passes."""

    moments: int = 0
    points: list[str] = field(default_factory=list)

    def strikes(self, moments: int) -> list[Strike]:
        """So many moments, spread evenly, and every crash point once."""
        spread = {1 + self.moments * n // moments for n in range(moments)}
        return [*(Strike(moment=n) for n in sorted(spread)), *(Strike(point=p) for p in dict.fromkeys(self.points))]


@dataclass(frozen=True, slots=True)
class Strike:
    """When to act: at the nth moment, or the first time that a crash point is reached."""

    moment: int = 0
    point: str = ""

    def __str__(self) -> str:
        return self.point or f"moment {self.moment}"


@contextmanager
def watching() -> Iterator[Course]:
    """Count what happens inside, in this thread."""
    course = Course()

    def count(*_: Any) -> None:
        course.moments += 1

    with _listening(count, lambda point, _: course.points.append(point)):
        yield course


@contextmanager
def striking(strike: Strike, act: Callable[[], None]) -> Iterator[None]:
    """Do `act` once, when it strikes, in the very thread that is on its way."""
    left = strike.moment
    thread = threading.get_ident()

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    def reached(point: str, _: int) -> None:
        if point == strike.point and threading.get_ident() == thread:
            points.arm(None)
            act()

    with _listening(None if strike.point else count, reached if strike.point else None):
        yield


@contextmanager
def visiting(every: int, act: Callable[[], None]) -> Iterator[None]:
    """Do `act` at every so many moments and at every crash point. It must not raise: it stands between two lines of others."""
    left = every
    is_acting = False

    def visit() -> None:
        nonlocal is_acting, left
        # What is done at a crash point has moments of its own, which are not the sink's.
        if not is_acting:
            is_acting, left = True, every
            act()
            is_acting = False

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            visit()

    with _listening(count, lambda _point, _epoch: visit()):
        yield


@contextmanager
def _listening(count: Callable[..., None] | None, reached: Callable[[str, int], None] | None) -> Iterator[None]:
    """Call these at every moment of this thread, and at every crash point of any."""
    points.arm(reached)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        points.arm(None)
