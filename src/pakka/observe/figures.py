"""The figures of one run: events in, numbers out. It knows neither Prometheus nor a network, and owns no clock.

All figures of one event change under one lock, and are read under it: in every answer the rows that went in are those that
came out.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from pakka.contract.lag import Lag
from pakka.model.event import Aborted, Committed, Delivered, Event, Noticed, Retried, Started, Stopped
from pakka.model.latency import Latency, quantiles
from pakka.observe import catalogue as c
from pakka.observe.catalogue import Kind, Metric, State

_COMMITS_KEPT = 1000
_LATENCIES_KEPT = 20
QUANTILES = (0.5, 0.99)

Labels = tuple[str, ...]
Part = tuple[str, str]
"""The labels `part` and `sink` of what was looked at."""
_COUNTED = {"aborted": c.REPLAYS_ABORTED, "expired": c.EXPIRED}
"""What is counted of what sinks notice."""
SOURCE: Part = ("source", "")
STATE: Part = ("state", "")


def sink_part(name: str) -> Part:
    """The labels of a sink."""
    return ("sink", name)


@dataclass(slots=True)
class Spread:
    """A histogram: how many values fell into each bucket, and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric with all its values at one moment."""

    metric: Metric
    values: Mapping[Labels, float]
    spreads: Mapping[Labels, Spread]


@dataclass(frozen=True, slots=True)
class Glance:
    """What somebody who looks at a run should see, unless it is 0."""

    held: int = 0
    """Records that open transactions keep from readers, of the source's topics and of the sinks'."""
    worst: str = ""
    """The partition that has most of them, as Kafka writes it."""
    worst_held: int = 0
    open_s: float = 0.0
    """Since when the oldest of those is open."""
    in_doubt: int = 0
    in_doubt_s: float = 0.0
    aborted: int = 0
    """Prepared records that were aborted, and transactions of a commit that were given up."""
    expired: int = 0


class Figures:
    """Counts what a run tells. `take` is its listener; `see_...` takes what the sampler has seen."""

    def __init__(self, pipeline: str, sinks: Iterable[str], clock: Callable[[], float]) -> None:
        self.pipeline = pipeline
        self.sinks = tuple(sinks)
        self.clock = clock
        self._lock = threading.Lock()
        self._values: dict[Metric, dict[Labels, float]] = {metric: {} for metric in c.METRICS}
        self._spreads: dict[Metric, dict[Labels, Spread]] = {metric: {} for metric in c.METRICS}
        self._commits: deque[float] = deque(maxlen=_COMMITS_KEPT)
        self._latencies: deque[Latency] = deque(maxlen=_LATENCIES_KEPT)
        self._begin()

    def _begin(self) -> None:
        """Counters are there from the start, at 0: a rate needs a first value, and an alert something to look at."""
        for metric in c.METRICS:
            if metric.kind is Kind.COUNTER:
                self._values[metric] = dict.fromkeys(self._all_labels(metric), 0.0)
        self._state(State.RECOVERING)

    def _all_labels(self, metric: Metric) -> list[Labels]:
        if metric is c.LOOKS_FAILED:
            return [SOURCE, STATE, *map(sink_part, self.sinks)]
        return [(sink,) for sink in self.sinks] if "sink" in metric.labels else [()]

    @property
    def has_started(self) -> bool:
        """The run has recovered, and so has a fence."""
        with self._lock:
            return bool(self._values[c.FENCE])

    def take(self, event: Event) -> None:
        """Note an event."""
        with self._lock:
            if isinstance(event, Started):
                self._started(event)
            elif isinstance(event, Delivered):
                self._delivered(event)
            elif isinstance(event, Committed):
                self._committed(event)
            elif isinstance(event, Retried):
                self._retried(event)
            elif isinstance(event, Aborted):
                self._add(c.ABORTED)
                self._add_each(c.UNDONE, event.undone)
            elif isinstance(event, Noticed) and event.about in _COUNTED:
                self._add(_COUNTED[event.about], labels=(event.sink,))
            elif isinstance(event, Stopped):
                self._state(State.STOPPED)

    def end(self) -> None:
        """The run is over, however it ended."""
        with self._lock:
            self._state(State.STOPPED)

    def see_doubts(self, doubts: Mapping[str, tuple[int, float]], failed: Iterable[Part]) -> None:
        """Count and oldest age by sink, of every sink that could be asked. Of the others nothing is known, and told."""
        with self._lock:
            self._values[c.IN_DOUBT] = {(sink,): float(count) for sink, (count, _) in doubts.items()}
            self._values[c.IN_DOUBT_S] = {(sink,): age_s for sink, (_, age_s) in doubts.items()}
            self._fail(failed)

    def see_lags(self, lags: Mapping[Part, Sequence[Lag]], failed: Iterable[Part]) -> None:
        """How far behind the source and the sinks are, by part, of those that could be asked."""
        told = {(*part, lag.topic, str(lag.partition)): lag for part, each in lags.items() for lag in each}
        with self._lock:
            self._values[c.BEHIND] = {at: float(lag.behind) for at, lag in told.items() if lag.behind is not None}
            self._values[c.HELD] = {at: float(lag.held) for at, lag in told.items() if lag.held is not None}
            self._values[c.OPEN_S] = {at: lag.open_s for at, lag in told.items() if lag.open_s is not None}
            self._fail(failed)

    def glance(self) -> Glance:
        """The few figures of the live line, at this moment."""
        with self._lock:
            values = {metric: list(by_labels.values()) for metric, by_labels in self._values.items()}
            held = dict(self._values[c.HELD])
        (*_, topic, partition), worst_held = max(held.items(), key=itemgetter(1), default=(("", ""), 0.0))
        return Glance(
            held=int(sum(held.values())),
            worst=f"{topic}-{partition}" if worst_held else "",
            worst_held=int(worst_held),
            open_s=max(values[c.OPEN_S], default=0.0),
            in_doubt=int(sum(values[c.IN_DOUBT])),
            in_doubt_s=max(values[c.IN_DOUBT_S], default=0.0),
            aborted=int(sum(values[c.UNDONE]) + sum(values[c.REPLAYS_ABORTED])),
            expired=int(sum(values[c.EXPIRED])),
        )

    def read(self) -> list[Reading]:
        """All figures at this moment. Labels come without the pipeline, which is the same for all of them."""
        with self._lock:
            values = {metric: dict(by_labels) for metric, by_labels in self._values.items()}
            spreads = {
                metric: {at: Spread(list(s.counts), s.total) for at, s in by_labels.items()}
                for metric, by_labels in self._spreads.items()
            }
            commits, latencies = list(self._commits), list(self._latencies)
        # Sorting takes its time, and an epoch that has something to tell must not wait for it.
        values[c.COMMIT_QUANTILE] = _commit_quantiles(commits)
        values[c.LATENCY_QUANTILE] = _latency_quantiles(latencies)
        return [Reading(metric, values[metric], spreads[metric]) for metric in c.METRICS]

    def _started(self, event: Started) -> None:
        self._state(State.RUNNING)
        self._values[c.FENCE][()] = float(event.fence)
        self._values[c.COMMITTED][()] = float(event.committed)
        self._add_each(c.UNDONE, event.undone)

    def _delivered(self, event: Delivered) -> None:
        self._values[c.COMMITTED][()] = float(event.epoch)
        self._values[c.LAST_DELIVERY][()] = self.clock()
        if not event.is_new:
            return
        self._add(c.DELIVERED)
        self._add(c.ROWS_IN, event.rows_in)
        self._add_each(c.ROWS_OUT, event.rows_out)
        self._add(c.DEAD, event.dead)
        self._add(c.DROPPED, event.dropped)
        self._add_each(c.UNDONE, event.swept)
        self._observe(c.EPOCH_S, (), event.epoch_s)
        self._observe(c.PREPARE_S, (), event.prepare_s)
        self._observe(c.DECIDE_S, (), event.decide_s)
        self._commits.append(event.commit_s)
        if event.latency is not None:
            self._latencies.append(event.latency)
            for seconds, rows in event.latency:
                self._observe(c.LATENCY, (), seconds, rows)

    def _committed(self, event: Committed) -> None:
        self._add(c.COMMITS, labels=(event.sink,))
        self._observe(c.COMMIT_S, (event.sink,), event.commit_s)
        if event.was_unknown:
            self._add(c.SETTLED, labels=(event.sink,))

    def _retried(self, event: Retried) -> None:
        if event.sink is None:
            self._add(c.DECIDE_RETRIES)
            return
        self._add(c.RETRIES, labels=(event.sink,))
        if event.is_unknown:
            self._add(c.UNKNOWN, labels=(event.sink,))

    def _state(self, state: State) -> None:
        self._values[c.STATE] = {(one.value,): float(one is state) for one in State}

    def _fail(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._add(c.LOOKS_FAILED, labels=part)

    def _add(self, metric: Metric, much: float = 1, labels: Labels = ()) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0.0) + much

    def _add_each(self, metric: Metric, counts: Mapping[str, int]) -> None:
        for sink, count in counts.items():
            self._add(metric, count, (sink,))

    def _observe(self, metric: Metric, labels: Labels, seconds: float, times: int = 1) -> None:
        spread = self._spreads[metric].setdefault(labels, Spread([0] * (len(metric.buckets) + 1)))
        spread.counts[bisect_left(metric.buckets, seconds)] += times
        spread.total += seconds * times


def _commit_quantiles(commits: list[float]) -> dict[Labels, float]:
    ordered = sorted(commits)
    places = {q: max(0, math.ceil(len(ordered) * q) - 1) for q in QUANTILES}
    return {(str(q),): ordered[place] for q, place in places.items()} if ordered else {}


def _latency_quantiles(latencies: list[Latency]) -> dict[Labels, float]:
    if not latencies:
        return {}
    found = quantiles(latencies, QUANTILES)
    return {(str(q),): seconds for q, seconds in zip(QUANTILES, found, strict=True)}
