"""How often to ask again, and how long to wait in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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
