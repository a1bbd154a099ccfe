"""What a sink adds so that the desk for all that is in doubt can tell more than an id.

`Committer.pending` says what is staged, which is enough to settle it. A person who looks at it wants to know more: since
when, how many rows, and whom it keeps waiting. A committer that can tell has the power `Doubting`; of the others the desk
shows what `pending` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pakka.model.id import Slot


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that is prepared in a system, as the system itself tells it. None is what it cannot tell."""

    id: str
    """What the system calls it: a gid, an xid, the name of a directory."""
    slot: Slot | None
    """The attempt it belongs to. None: it is not of this pipeline and sink; it is shown, and never touched."""
    age_s: float | None = None
    """By the system's own clock, which need not agree with ours."""
    rows: int | None = None
    locks: tuple[str, ...] = ()
    """What it keeps others from doing until it is settled, in the system's own words."""


@runtime_checkable
class Doubting(Protocol):
    """The power to tell more of what is pending. For committers."""

    def in_doubt(self) -> Sequence[Doubt]:
        """All that `pending` lists, told in full, and what others have prepared there if it is seen without effort.

        It changes nothing and needs no fence, and is asked while a driver may be at work.
        """
