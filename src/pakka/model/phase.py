"""The phases of an epoch, and the one door between them."""

from __future__ import annotations

from enum import Enum

from pakka.errors import BugError


class Phase(Enum):
    """Where an epoch stands."""

    BEGUN = "begun"
    """Spark has handed it over; writers may be at work. Nothing is visible."""
    PREPARED = "prepared"
    """Every slot of every sink is durable and invisible."""
    DECIDED = "decided"
    """The decision is in the state store. Abort is no longer an answer."""
    COMMITTED = "committed"
    """Visible in every sink."""
    ABORTED = "aborted"
    """Nothing of it is visible, and nothing will be under this attempt."""


# What may follow what. DECIDED follows itself when a record that a sink lost is prepared again (see coordinator/redo.py).
MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.BEGUN: frozenset({Phase.PREPARED, Phase.ABORTED}),
    Phase.PREPARED: frozenset({Phase.DECIDED, Phase.ABORTED}),
    Phase.DECIDED: frozenset({Phase.COMMITTED, Phase.DECIDED}),
    Phase.COMMITTED: frozenset(),
    Phase.ABORTED: frozenset({Phase.BEGUN}),
}


def move(pipeline: str, epoch: int, before: Phase, after: Phase) -> Phase:
    """Go from one phase to the next; the only way to do so. A wrong move is refused, naming both phases."""
    if after not in MOVES[before]:
        raise BugError(
            f"pipeline `{pipeline}`: epoch {epoch} cannot go from {before.value} to {after.value}; it stays {before.value}",
            hint="this is a bug in pakka; stop the pipeline and keep its state store and checkpoint",
        )
    return after
