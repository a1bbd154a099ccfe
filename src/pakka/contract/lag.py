"""What a source or a sink adds so that a pipeline can be watched from outside: how old its records are, and how far behind.

All of these powers are optional. Of a source or sink without them the metrics have nothing, and say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pakka.model.id import Binding


@runtime_checkable
class Timed(Protocol):
    """The power to say when a record was made. For sources."""

    @property
    def time_column(self) -> str | None:
        """The TIMESTAMP column of `read` that holds it. It is used if `process` lets the column through."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind one part of a source or of a sink is, such as a partition of a topic. None is what is not known."""

    topic: str
    partition: int
    behind: int | None = None
    """Records that a reader of committed records can read, and that no committed epoch of the pipeline holds."""
    held: int | None = None
    """Records above the last stable offset: they are there, and nobody may read them until a transaction has ended."""
    open_s: float | None = None
    """Since when the oldest transaction is open that holds them; 0 if there is none."""


@runtime_checkable
class Lagging(Protocol):
    """The power to say how far behind it is. For sources."""

    def lags(self, position: str) -> Sequence[Lag]:
        """Every part, now. `position` is where the newest decided epoch ended, as the source itself has told it; it may be
        empty.

        It only reads, and is asked now and then by a thread of its own while a run is at work.
        """


@runtime_checkable
class LaggingSink(Protocol):
    """The power to say what readers of its topics wait for. For sinks."""

    def lags(self, binding: Binding) -> Sequence[Lag]:
        """Every part that this sink has written to, now. It only reads, as that of a source does."""
