"""Every metric there is, as data: the endpoint and the page in the documentation are both made from it.

Names keep to Prometheus' conventions: `_total` for what only grows, base units last. Rates and quantiles over time are the
server's work; the few quantiles that are here are those of the live line.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_BRIEF_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LONG_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)
_PIPELINE = ("pipeline",)
_SINK = ("pipeline", "sink")
_QUANTILE = ("pipeline", "quantile")
_PLACE = ("pipeline", "part", "sink", "topic", "partition")
"""`part` is `source`, or `sink` for the sink of that name."""


class Kind(Enum):
    """What a figure does over time."""

    COUNTER = "counter"
    """Only grows, from 0 at the start of each run."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class State(Enum):
    """What a run is doing."""

    RECOVERING = "recovering"
    """From the start of the process on: Spark starts, the fence is taken, what an earlier run left is settled."""
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: its name, its labels, what it means, and a condition on it that somebody should be told of."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    alert: str
    """In PromQL. Limits are to be taken as examples."""
    buckets: tuple[float, ...] = ()


METRICS: list[Metric] = []
"""Every one, in the order in which they are told."""


def _add(metric: Metric) -> Metric:
    METRICS.append(metric)
    return metric


def _counter(name: str, labels: tuple[str, ...], meaning: str, alert: str) -> Metric:
    return _add(Metric(name, Kind.COUNTER, labels, meaning, alert))


def _gauge(name: str, labels: tuple[str, ...], meaning: str, alert: str) -> Metric:
    return _add(Metric(name, Kind.GAUGE, labels, meaning, alert))


def _seconds(
    name: str, labels: tuple[str, ...], meaning: str, limit_s: float, buckets: tuple[float, ...] = _BRIEF_S
) -> Metric:
    alert = f"histogram_quantile(0.99, rate({name}_bucket[10m])) > {limit_s:g}"
    return _add(Metric(name, Kind.HISTOGRAM, labels, meaning, alert, buckets))


STATE = _gauge(
    "pakka_state",
    ("pipeline", "state"),
    "1 for what the run is doing: `recovering`, `running` or `stopped`.",
    'min_over_time(pakka_state{state="recovering"}[10m]) == 1',
)
FENCE = _gauge(
    "pakka_fence",
    _PIPELINE,
    "The fence of this driver. It rises with every start of the pipeline.",
    "changes(pakka_fence[1h]) > 3",
)
COMMITTED = _gauge(
    "pakka_committed_epoch",
    _PIPELINE,
    "The newest epoch that is in every sink; -1 for none.",
    "delta(pakka_committed_epoch[1h]) < 0",
)
LAST_DELIVERY = _gauge(
    "pakka_last_delivery_timestamp_seconds",
    _PIPELINE,
    "When the newest epoch of this run was delivered, in Unix time.",
    "time() - pakka_last_delivery_timestamp_seconds > 600",
)
DELIVERED = _counter(
    "pakka_epochs_delivered_total",
    _PIPELINE,
    "Epochs that this run has brought into every sink.",
    "rate(pakka_epochs_delivered_total[10m]) == 0",
)
ABORTED = _counter(
    "pakka_epochs_aborted_total",
    _PIPELINE,
    "Epochs that were aborted before their decision.",
    "pakka_epochs_aborted_total > 0",
)
ROWS_IN = _counter(
    "pakka_rows_in_total",
    _PIPELINE,
    "Rows of delivered epochs, as they reached the rules.",
    "rate(pakka_rows_in_total[10m]) == 0",
)
ROWS_OUT = _counter(
    "pakka_rows_out_total",
    _SINK,
    "Rows of delivered epochs by sink; the dead letters are one of them.",
    'rate(pakka_rows_out_total{sink!="dead_letters"}[10m]) == 0',
)
DEAD = _counter(
    "pakka_rows_dead_total",
    _PIPELINE,
    "Rows that broke a rule, and malformed records, that became dead letters.",
    "rate(pakka_rows_dead_total[10m]) / rate(pakka_rows_in_total[10m]) > 0.01",
)
DROPPED = _counter(
    "pakka_rows_dropped_total",
    _PIPELINE,
    "Rows that a rule has dropped.",
    "rate(pakka_rows_dropped_total[10m]) / rate(pakka_rows_in_total[10m]) > 0.01",
)
EPOCH_S = _seconds(
    "pakka_epoch_seconds", _PIPELINE, "From Spark's hand-over of an epoch until it is in every sink.", limit_s=60
)
PREPARE_S = _seconds(
    "pakka_prepare_seconds", _PIPELINE, "Of that, the Spark job that writes and prepares all slots.", limit_s=60
)
DECIDE_S = _seconds("pakka_decide_seconds", _PIPELINE, "Of that, writing the decision to the state store.", limit_s=1)
COMMIT_S = _seconds("pakka_commit_seconds", _SINK, "Of that, the commit of one sink, with all retries.", limit_s=10)
COMMIT_QUANTILE = _gauge(
    "pakka_commit_quantile_seconds",
    _QUANTILE,
    "The commit of all sinks together, over the newest 1,000 epochs.",
    'pakka_commit_quantile_seconds{quantile="0.99"} > 10',
)
COMMITS = _counter(
    "pakka_commits_total",
    _SINK,
    "Epochs that a sink has committed, those that recovery finished included.",
    "rate(pakka_commits_total[10m]) == 0",
)
UNDONE = _counter(
    "pakka_records_aborted_total",
    _SINK,
    "Prepared records that were aborted: of aborted epochs, of failed attempts, by recovery.",
    "rate(pakka_records_aborted_total[30m]) > 0",
)
REPLAYS_ABORTED = _counter(
    "pakka_replays_aborted_total",
    _SINK,
    "Transactions of a commit that a sink has given up before their end; they are sent again.",
    "increase(pakka_replays_aborted_total[10m]) > 3",
)
EXPIRED = _counter(
    "pakka_slots_expired_total",
    _SINK,
    "Decided slots whose transaction had expired, and which were sent again from the spool.",
    "increase(pakka_slots_expired_total[1h]) > 0",
)
RETRIES = _counter(
    "pakka_commit_retries_total",
    _SINK,
    "Commits that were asked for again.",
    "increase(pakka_commit_retries_total[10m]) > 3",
)
DECIDE_RETRIES = _counter(
    "pakka_decide_retries_total",
    _PIPELINE,
    "Decisions that were written again.",
    "increase(pakka_decide_retries_total[10m]) > 3",
)
UNKNOWN = _counter(
    "pakka_unknown_outcomes_total",
    _SINK,
    "Of the retries, those because no answer came.",
    "increase(pakka_unknown_outcomes_total[1h]) > 3",
)
SETTLED = _counter(
    "pakka_unknown_outcomes_settled_total",
    _SINK,
    "Commits that lost an answer and were settled by asking.",
    "pakka_unknown_outcomes_total > 0 and pakka_unknown_outcomes_settled_total == 0",
)
IN_DOUBT = _gauge(
    "pakka_in_doubt_records",
    _SINK,
    "Records that are prepared in the sink and not settled, now.",
    "min_over_time(pakka_in_doubt_records[15m]) > 0",
)
IN_DOUBT_S = _gauge(
    "pakka_in_doubt_oldest_seconds",
    _SINK,
    "The age of the oldest of them; 0 if there are none.",
    "pakka_in_doubt_oldest_seconds > 300",
)
LATENCY = _seconds(
    "pakka_record_latency_seconds",
    _PIPELINE,
    "From the record time of a row to the commit of its epoch, counted in rows.",
    300,
    _LONG_S,
)
LATENCY_QUANTILE = _gauge(
    "pakka_record_latency_quantile_seconds",
    _QUANTILE,
    "The same, over the rows of the newest 20 epochs.",
    'pakka_record_latency_quantile_seconds{quantile="0.99"} > 300',
)
BEHIND = _gauge(
    "pakka_lag_records",
    _PLACE,
    "Committed records of a source that no decided epoch holds yet.",
    "deriv(pakka_lag_records[15m]) > 0",
)
HELD = _gauge(
    "pakka_lso_lag_records",
    _PLACE,
    "Records above the last stable offset, held back by open transactions.",
    "min_over_time(pakka_lso_lag_records[15m]) > 0",
)
OPEN_S = _gauge(
    "pakka_open_transaction_oldest_seconds",
    _PLACE,
    "Since when the oldest transaction is open that holds them; 0 if none is.",
    "pakka_open_transaction_oldest_seconds > 900",
)
LOOKS_FAILED = _counter(
    "pakka_looks_failed_total",
    ("pipeline", "part", "sink"),
    "Times that a sink, the source or the state store could not be asked for a gauge.",
    "increase(pakka_looks_failed_total[10m]) > 3",
)
