"""How the suite gets at one sink: what its author writes, once, in about forty lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pakka import points
from pakka.contract.sink import Sink
from pakka.testing.contract.golden import Golden


class LineCut(Exception):
    """The line to the sink is gone. Not an `OSError`: a sink must not need to know how its line breaks."""


@dataclass
class Cut:
    """Whether the line was really cut: a commit that never came by proves nothing."""

    is_struck: bool = False


class Harness(ABC):
    """One sink on fresh ground. `place` is an empty directory of its own; a server's harness makes a table or topic instead.

    Everything that looks at the sink must do so as a stranger would, never through the sink's own code: a sink that lies
    would lie to the suite too.
    """

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that were given to the sink and that nobody may see."""
    points_before: ClassVar[tuple[str, ...]] = ("commit.apply", "commit.publish")
    """Crash points of this sink at which the commit is about to take effect."""
    points_after: ClassVar[tuple[str, ...]] = ("commit.applied", "commit.published")
    """Crash points of this sink at which it has taken effect, and nobody was told."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place

    @abstractmethod
    def sink(self) -> Sink:
        """The sink, on this place; the same one however often it is made."""

    @abstractmethod
    def rows(self, schema: pa.Schema) -> Iterable[Mapping[str, Any]]:
        """Every row that a reader sees now, as Python values of the types that were written; nothing before the first."""

    @abstractmethod
    def litter(self) -> Collection[str]:
        """Everything that is staged now, finished or not: names of attempts, files, transactions. None for a clean sink."""

    def restart(self) -> None:
        """Forget all that a process would forget: caches, pools, anything beside the sink's durable state."""
        return

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        """Inside, the line to the sink breaks during the next commit: after the sink has done it, or before.

        As it stands it raises at the crash points above, which is right for a sink in the same process. A sink behind a
        real line puts something in between that forwards the request and drops the answer.
        """
        at = self.points_after if is_done else self.points_before
        cut = Cut()

        def strike(point: str, _: int) -> None:
            if point in at:
                points.arm(None)
                cut.is_struck = True
                raise LineCut(f"the line was cut at {point}")

        points.arm(strike)
        try:
            yield cut
        finally:
            points.arm(None)

    def golden(self) -> Golden | None:
        """What the last release had prepared; None if there was no release yet."""
        return None

    def put(self, golden: Golden) -> None:
        """Stage what the last release had staged. As it stands: its files, below `place`."""
        golden.put(self.place)

    def fresh(self, name: str) -> Harness:
        """Another sink of the same kind, on ground of its own."""
        return type(self)(self.place / name)

    def close(self) -> None:
        """Remove what the sink has left on a server. A directory is removed by whoever gave it."""
        return
