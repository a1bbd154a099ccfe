"""How often to ask again, and how long to wait in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pakka.errors import UnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential back-off: `attempts` tries in all, the waits between them growing from `first_s` to at most `most_s`."""

    attempts: int = 8
    first_s: float = 0.1
    factor: float = 2.0
    most_s: float = 10.0

    def waits(self) -> Iterator[float]:
        """The wait after each try but the last."""
        wait = self.first_s
        for _ in range(self.attempts - 1):
            yield min(wait, self.most_s)
            wait *= self.factor

    def ask(self, call: Callable[[], T], sleep: Callable[[float], None]) -> T:
        """What a call answers that may be repeated freely. One that finds nobody for a moment is made again."""
        waits = self.waits()
        while True:
            try:
                return call()
            except UnavailableError:
                wait = next(waits, None)
                if wait is None:
                    raise
            sleep(wait)
