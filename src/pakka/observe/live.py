"""What a run that serves metrics tells of itself now, for `pakka status`: the figures that no state store keeps."""

from __future__ import annotations

import socket
import time
from typing import Any
from urllib.parse import urlsplit

from pakka.contract.state import PipelineState
from pakka.observe import catalogue as c
from pakka.observe.catalogue import Metric
from pakka.observe.endpoint import Samples, fetch

_HERE = ("127.0.0.1", "::1", "localhost")


def live(state: PipelineState) -> dict[str, Any] | None:
    """The figures of the driver that holds the fence. None: it serves none, or cannot be reached from here."""
    owner = state.owner
    if owner is None or not owner.metrics:
        return None
    place = urlsplit(owner.metrics)
    if place.scheme != "http" or (place.hostname in _HERE and owner.host != socket.gethostname()):
        return None
    samples = fetch(owner.metrics, state.pipeline)
    # Another process may have the port by now: then the fence is another one, too.
    if samples is None or samples.get(c.FENCE.name, {}).get(()) != state.fence:
        return None
    return _told(samples, max(1.0, time.time() - owner.since))


def _told(samples: Samples, age_s: float) -> dict[str, Any]:
    """`age_s` is that of the run, for rates: the counters began with it."""
    states = samples.get(c.STATE.name, {})
    retries, unknown = _by(samples, c.RETRIES, "sink"), _by(samples, c.UNKNOWN, "sink")
    count, oldest = _by(samples, c.IN_DOUBT, "sink"), _by(samples, c.IN_DOUBT_S, "sink")
    return {
        "state": next((dict(labels)["state"] for labels, value in states.items() if value), None),
        "commit_s": _by(samples, c.COMMIT_QUANTILE, "quantile"),
        "latency_s": _by(samples, c.LATENCY_QUANTILE, "quantile"),
        "commits": _rates(_by(samples, c.COMMITS, "sink"), age_s),
        "aborts": _rates(_added(samples, c.UNDONE, c.REPLAYS_ABORTED), age_s),
        "expired": {sink: int(n) for sink, n in _by(samples, c.EXPIRED, "sink").items()},
        "retries": {sink: int(n) for sink, n in retries.items()},
        "unknown_outcomes": {sink: int(n) for sink, n in unknown.items()},
        "in_doubt": {sink: {"count": int(n), "oldest_s": oldest.get(sink)} for sink, n in count.items()},
        "lag_records": _sum(samples, c.BEHIND),
        "lso_lag_records": _sum(samples, c.HELD),
        "lso_lag": _places(samples),
        "oldest_open_transaction_s": max(samples.get(c.OPEN_S.name, {}).values(), default=None),
    }


def _by(samples: Samples, metric: Metric, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for labels, value in samples.get(metric.name, {}).items()}


def _added(samples: Samples, *metrics: Metric) -> dict[str, float]:
    total: dict[str, float] = {}
    for metric in metrics:
        for sink, count in _by(samples, metric, "sink").items():
            total[sink] = total.get(sink, 0.0) + count
    return total


def _rates(counts: dict[str, float], age_s: float) -> dict[str, Any]:
    return {sink: {"count": int(n), "per_s": round(n / age_s, 6)} for sink, n in counts.items()}


def _places(samples: Samples) -> list[dict[str, Any]]:
    """Of every partition that is known: what readers of committed records do not get yet, and for how long."""
    since = samples.get(c.OPEN_S.name, {})
    return [
        {**dict(labels), "partition": int(dict(labels)["partition"]), "records": int(held), "open_s": since.get(labels)}
        for labels, held in sorted(samples.get(c.HELD.name, {}).items())
    ]


def _sum(samples: Samples, metric: Metric) -> int | None:
    values = samples.get(metric.name)
    return None if values is None else int(sum(values.values()))
