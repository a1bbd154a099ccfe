"""What a run shows while it runs: numbers in, words out. It prints nothing and owns no clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pakka.cli.render import duration, per_minute, some
from pakka.contract.pipeline import DEAD_LETTERS
from pakka.model.event import Aborted, Committed, Delivered, Event, Noticed, Retried, Started, Stopped
from pakka.model.latency import Latency, quantiles
from pakka.observe.figures import Glance

_EPOCHS_FOR_SPEED = 20
_COMMITS_FOR_P99 = 1000
_EPOCHS_FOR_LATENCY = 20
_PLAIN_EVERY_S = 5.0
_RATES_OVER_S = 300.0
_MARK_EVERY_S = 10.0
_OLD_S = 10.0
"""What waits for less is mostly of the epoch under way, or of others who have just begun."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far a run was at some moment. Rates are counted from one that lies back."""

    at: float
    epochs: int
    aborted: int


@dataclass
class Board:
    """Collects a run's events, and says how it stands."""

    pipeline: str
    clock: Callable[[], float]
    epoch: int = -1
    epochs: int = 0
    rows_in: int = 0
    out: Counter[str] = field(default_factory=Counter)
    dead: int = 0
    dropped: int = 0
    is_started: bool = False
    is_stopping: bool = False
    glance: Callable[[], Glance] = Glance
    """What is to be seen at the moment that no event has told."""
    _speeds: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_EPOCHS_FOR_SPEED))
    _commits: deque[float] = field(default_factory=lambda: deque(maxlen=_COMMITS_FOR_P99))
    _latencies: deque[Latency] = field(default_factory=lambda: deque(maxlen=_EPOCHS_FOR_LATENCY))
    _asked_again: set[str] = field(default_factory=set)
    _marks: deque[_Mark] = field(default_factory=lambda: deque(maxlen=round(_RATES_OVER_S / _MARK_EVERY_S) + 2))
    _delivered_at: float | None = None
    _told_at: float = -math.inf

    def take(self, event: Event) -> str | None:
        """Note an event. Returns a line for those who have no live one: not for every epoch, but now and then."""
        line = self._take(event)
        now = self.clock()
        if not self._marks or now - self._marks[-1].at >= _MARK_EVERY_S:
            self._marks.append(_Mark(now, self.epochs, self.glance().aborted))
        return line

    def _take(self, event: Event) -> str | None:
        if isinstance(event, Started):
            self.is_started = True
            self.epoch = event.committed
            self._marks.clear()  # what recovery aborted is told, and is no rate of this run
            return self._started(event)
        if isinstance(event, Stopped):
            return self._stopped(event)
        if isinstance(event, Retried):
            return self._retried(event)
        if isinstance(event, Committed):
            self._asked_again.discard(event.sink)
            return None
        if isinstance(event, Aborted):
            return None  # it ends the run, and the error says why
        if isinstance(event, Noticed):
            if event.about == "aborted":
                return None  # what is asked again, or ends the run, says why
            return f"{self.pipeline}: {event.message}{f' ({event.hint})' if event.hint else ''}"
        self._deliver(event)
        now = self.clock()
        if now - self._told_at < _PLAIN_EVERY_S:
            return None
        self._told_at = now
        return self.line()

    def _deliver(self, event: Delivered) -> None:
        self.epoch = event.epoch
        self._delivered_at = self.clock()
        if not event.is_new:
            return
        self.epochs += 1
        self.rows_in += event.rows_in
        self.out.update({sink: rows for sink, rows in event.rows_out.items() if sink != DEAD_LETTERS})
        self.dead += event.dead
        self.dropped += event.dropped
        self._speeds.append((event.rows_in, event.epoch_s))
        self._commits.append(event.commit_s)
        self._asked_again.clear()
        if event.latency is not None:
            self._latencies.append(event.latency)

    def line(self) -> str:
        """The live line. A terminal may cut its end off, so what somebody should look at comes first, and sums of rows last."""
        if not self.is_started:
            return f"{self.pipeline}  starting Spark"
        commits, aborts = self._per_min()
        seen = self.glance()
        waits = _waits(seen)
        stands = "waiting for the first epoch" if self._delivered_at is None else f"epoch {self.epoch}"
        parts = [
            self.pipeline,
            stands,
            *(["stopping"] if self.is_stopping else []),
            *(f"asking {subject} again" for subject in sorted(self._asked_again)),
            *(wait for wait, age_s in waits.items() if age_s >= _OLD_S),
            *_unless_zero(seen, aborts),
        ]
        if self._delivered_at is not None:
            parts += [
                f"{self._rows_per_s():,.0f} rows/s",
                f"lag {self.clock() - self._delivered_at:,.0f} s",
                f"commits {per_minute(commits)}/min, p99 {self._commit_p99_s() * 1000:,.0f} ms",
                *self._latency(),
                f"dead {self.dead:,}",
                *([f"dropped {self.dropped:,}"] if self.dropped else []),
                f"in {self.rows_in:,}",
                f"out {self._out()}",
            ]
        return "  ".join([*parts, *(wait for wait, age_s in waits.items() if age_s < _OLD_S)])

    def _per_min(self) -> tuple[float, float]:
        """Commits and aborts a minute, over the newest five minutes or since the start."""
        now = self.clock()
        mark = next((m for m in reversed(self._marks) if now - m.at >= _RATES_OVER_S), self._marks[0])
        span_min = max(1.0, now - mark.at) / 60
        return (self.epochs - mark.epochs) / span_min, (self.glance().aborted - mark.aborted) / span_min

    def _latency(self) -> list[str]:
        if not self._latencies:
            return []
        p50, p99 = quantiles(list(self._latencies), (0.5, 0.99))
        return [f"record to commit p50 {p50:,.1f} s, p99 {p99:,.1f} s"]

    def _retried(self, event: Retried) -> str:
        self._asked_again.add(event.sink or "the state store")
        part = (
            f"sink `{event.sink}` has not committed it" if event.sink else "the state store has not taken the decision"
        )
        known = "no answer came" if event.is_unknown else "not yet"
        return f"{self.pipeline}: epoch {event.epoch}: {part}, {known}: {event.reason}; asked again in {event.wait_s:.1f} s"

    def _started(self, event: Started) -> str:
        since = (
            f"epoch {event.committed} is the newest committed"
            if event.committed >= 0
            else "nothing was delivered before"
        )
        repaired = ""
        if event.finished or event.aborted:
            repaired = (
                f"; recovered: {some(event.finished, 'decided epoch')} finished, "
                f"{some(event.aborted, 'undecided record')} aborted"
            )
        return f"{self.pipeline}: fence {event.fence}; {since}{repaired}"

    def _stopped(self, event: Stopped) -> str:
        how = "stopped as asked" if event.reason == "asked" else "done"
        if not self.epochs:
            return f"{self.pipeline}: {how}; there was nothing new to deliver"
        return (
            f"{self.pipeline}: {how} after {some(self.epochs, 'epoch')}: {self.rows_in:,} rows in; out {self._out()}; "
            f"{self.dead:,} dead, {self.dropped:,} dropped"
        )

    def _out(self) -> str:
        return ", ".join(f"{sink} {rows:,}" for sink, rows in self.out.items()) or "nothing"

    def _rows_per_s(self) -> float:
        seconds = sum(s for _, s in self._speeds)
        return sum(rows for rows, _ in self._speeds) / seconds if seconds else 0.0

    def _commit_p99_s(self) -> float:
        ordered = sorted(self._commits)
        return ordered[max(0, math.ceil(len(ordered) * 0.99) - 1)] if ordered else 0.0


def _waits(seen: Glance) -> dict[str, float]:
    """What waits for somebody, and for how long it has."""
    where = f", {seen.worst_held:,} in {seen.worst}" if seen.worst else ""
    return {
        **({f"held back {seen.held:,} for {duration(seen.open_s)}{where}": seen.open_s} if seen.held else {}),
        **({f"in doubt {seen.in_doubt:,} for {duration(seen.in_doubt_s)}": seen.in_doubt_s} if seen.in_doubt else {}),
    }


def _unless_zero(seen: Glance, aborts_per_min: float) -> list[str]:
    rate = f", {per_minute(aborts_per_min)}/min" if aborts_per_min else ""
    return [
        *([f"aborted {seen.aborted:,}{rate}"] if seen.aborted else []),
        *([f"expired {seen.expired:,}"] if seen.expired else []),
    ]
