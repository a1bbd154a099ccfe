"""What a run that serves metrics tells of itself now, for `pakka status`: the figures that no state store keeps."""

from __future__ import annotations

import socket
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
    return _told(samples)


def _told(samples: Samples) -> dict[str, Any]:
    states = samples.get(c.STATE.name, {})
    retries, unknown = _by(samples, c.RETRIES, "sink"), _by(samples, c.UNKNOWN, "sink")
    count, oldest = _by(samples, c.IN_DOUBT, "sink"), _by(samples, c.IN_DOUBT_S, "sink")
    return {
        "state": next((dict(labels)["state"] for labels, value in states.items() if value), None),
        "commit_s": _by(samples, c.COMMIT_QUANTILE, "quantile"),
        "latency_s": _by(samples, c.LATENCY_QUANTILE, "quantile"),
        "retries": {sink: int(n) for sink, n in retries.items()},
        "unknown_outcomes": {sink: int(n) for sink, n in unknown.items()},
        "in_doubt": {sink: {"count": int(n), "oldest_s": oldest.get(sink)} for sink, n in count.items()},
        "lag_records": _sum(samples, c.BEHIND),
        "lso_lag_records": _sum(samples, c.HELD),
        "oldest_open_transaction_s": max(samples.get(c.OPEN_S.name, {}).values(), default=None),
    }


def _by(samples: Samples, metric: Metric, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for labels, value in samples.get(metric.name, {}).items()}


def _sum(samples: Samples, metric: Metric) -> int | None:
    values = samples.get(metric.name)
    return None if values is None else int(sum(values.values()))
