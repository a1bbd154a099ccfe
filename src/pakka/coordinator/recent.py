"""How long a run's own steps took lately: what a setting with a time in it is held against."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from pakka.contract.audit import Took
from pakka.model.event import Committed, Event, Listen

KEPT = 100
"""So many epochs are lately."""


class Recent:
    """Remembers the last epochs. Commits of several sinks come from several threads, each sink's from one at a time."""

    def __init__(self) -> None:
        self.start_s: float | None = None
        self._epochs: deque[float] = deque(maxlen=KEPT)
        self._commits: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def before(self, listen: Listen) -> Listen:
        """A listener that hears what is told, and passes it on."""

        def hear(event: Event) -> None:
            # One that was tried again has waited, for a broker that was down or for an answer that was lost.
            if isinstance(event, Committed) and event.tries == 1 and not event.was_unknown:
                self._commits[event.sink].append(event.commit_s)
            listen(event)

        return hear

    def delivered(self, epoch_s: float) -> None:
        """An epoch is in every sink."""
        self._epochs.append(epoch_s)

    def of(self, sink: str) -> Took:
        """What is known of a sink."""
        return Took(_longest(self._epochs), _longest(self._commits.get(sink, ())), self.start_s)


def _longest(times: Iterable[float]) -> float | None:
    return max(times, default=None)
