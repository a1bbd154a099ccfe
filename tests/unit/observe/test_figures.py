"""Events in, numbers out: what a run tells is what its metrics say."""

import re

import pytest

from pakka.contract.lag import Lag
from pakka.model.event import Aborted, Committed, Delivered, Noticed, Retried, Started, Stopped
from pakka.model.latency import Latency
from pakka.observe import catalogue as c
from pakka.observe.catalogue import METRICS, Kind
from pakka.observe.figures import SOURCE, STATE, Figures, Glance, sink_part

STARTED = Started("refunds", 7, 41, 1, 3, {"refunds": 2, "audit": 1})
DELIVERED = Delivered(
    "refunds", 42, True, 1000, {"refunds": 970, "audit": 970, "dead_letters": 20}, 20, 10, 0.5, 0.04, 0.3, 0.01
)


@pytest.fixture
def figures() -> Figures:
    return Figures("refunds", ["refunds", "audit", "dead_letters"], lambda: 1_763_208_000.0)


def value(figures: Figures, metric, *labels: str) -> float | None:
    return next(r for r in figures.read() if r.metric is metric).values.get(labels)


def spread(figures: Figures, metric, *labels: str) -> tuple[int, float]:
    found = next(r for r in figures.read() if r.metric is metric).spreads[labels]
    return sum(found.counts), found.total


def state(figures: Figures) -> list[str]:
    return [labels[0] for labels, is_it in value_map(figures, c.STATE).items() if is_it]


def value_map(figures: Figures, metric) -> dict:
    return dict(next(r for r in figures.read() if r.metric is metric).values)


def test_names_keep_to_the_conventions():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"pakka_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.name.endswith("_seconds") or metric.kind is not Kind.HISTOGRAM
        assert metric.labels[0] == "pipeline"
        assert metric.meaning.endswith(".")
        assert list(metric.buckets) == sorted(metric.buckets)


def test_every_counter_of_every_sink_is_there_before_anything_happens(figures):
    for reading in figures.read():
        if reading.metric.kind is Kind.COUNTER:
            assert set(reading.values.values()) == {0.0}, reading.metric.name
    assert set(value_map(figures, c.COMMITS)) == {("refunds",), ("audit",), ("dead_letters",)}
    assert set(value_map(figures, c.LOOKS_FAILED)) == {SOURCE, STATE, *map(sink_part, figures.sinks)}


def test_a_run_is_in_one_state_at_a_time(figures):
    assert state(figures) == ["recovering"]
    figures.take(STARTED)
    assert state(figures) == ["running"]
    figures.take(Stopped("refunds", 1, 1000, "done"))
    assert state(figures) == ["stopped"]


def test_a_run_that_fails_is_stopped_too(figures):
    figures.take(STARTED)
    figures.end()
    assert state(figures) == ["stopped"]


def test_the_start_tells_fence_and_newest_epoch_and_what_recovery_aborted(figures):
    figures.take(STARTED)
    assert (value(figures, c.FENCE), value(figures, c.COMMITTED)) == (7, 41)
    assert value_map(figures, c.UNDONE) == {("refunds",): 2, ("audit",): 1, ("dead_letters",): 0}
    assert value(figures, c.LAST_DELIVERY) is None


def test_a_delivered_epoch_is_counted_once_with_its_rows_and_times(figures):
    figures.take(STARTED)
    figures.take(DELIVERED)
    assert (value(figures, c.DELIVERED), value(figures, c.COMMITTED)) == (1, 42)
    assert value(figures, c.LAST_DELIVERY) == 1_763_208_000.0
    assert value(figures, c.ROWS_IN) == 1000
    assert value_map(figures, c.ROWS_OUT) == {("refunds",): 970, ("audit",): 970, ("dead_letters",): 20}
    assert (value(figures, c.DEAD), value(figures, c.DROPPED)) == (20, 10)
    assert [spread(figures, m) for m in (c.EPOCH_S, c.PREPARE_S, c.DECIDE_S)] == [(1, 0.5), (1, 0.3), (1, 0.01)]


def test_an_epoch_of_an_earlier_run_counts_for_nothing_but_its_number(figures):
    figures.take(Delivered("refunds", 42, False, 0, {}, 0, 0, 0.5, 0.0))
    assert (value(figures, c.DELIVERED), value(figures, c.ROWS_IN), value(figures, c.COMMITTED)) == (0, 0, 42)


def test_litter_that_was_swept_is_counted_as_aborted(figures):
    figures.take(Delivered("refunds", 0, True, 1, {"refunds": 1}, 0, 0, 0.5, 0.0, swept={"audit": 4}))
    assert value(figures, c.UNDONE, "audit") == 4


def test_commits_are_counted_and_timed_by_sink(figures):
    figures.take(Committed("refunds", 0, "audit", 10, 1, False, 0.02))
    figures.take(Committed("refunds", 1, "audit", 10, 3, True, 4.0))
    assert (value(figures, c.COMMITS, "audit"), value(figures, c.COMMITS, "refunds")) == (2, 0)
    assert spread(figures, c.COMMIT_S, "audit") == (2, 4.02)
    assert (value(figures, c.SETTLED, "audit"), value(figures, c.SETTLED, "refunds")) == (1, 0)


def test_retries_are_counted_by_sink_and_those_without_an_answer_apart(figures):
    figures.take(Retried("refunds", 0, "audit", False, "busy", 0.1))
    figures.take(Retried("refunds", 0, "audit", True, "line cut", 0.2))
    figures.take(Retried("refunds", 0, None, True, "line cut", 0.1))
    assert (value(figures, c.RETRIES, "audit"), value(figures, c.UNKNOWN, "audit")) == (2, 1)
    assert (value(figures, c.RETRIES, "refunds"), value(figures, c.DECIDE_RETRIES)) == (0, 1)


def test_an_aborted_epoch_is_counted_with_its_records(figures):
    figures.take(Aborted("refunds", 3, "a task failed", {"refunds": 5}))
    assert (value(figures, c.ABORTED), value(figures, c.UNDONE, "refunds")) == (1, 5)


def test_what_a_sink_gave_up_or_had_to_send_again_is_counted(figures):
    figures.take(Noticed("refunds", "expired", "sent again", sink="audit"))
    figures.take(Noticed("refunds", "aborted", "given up", sink="audit"))
    figures.take(Noticed("refunds", "aborted", "given up", sink="refunds"))
    figures.take(Noticed("refunds", "mended", "told now", sink="audit"))
    assert value_map(figures, c.EXPIRED) == {("refunds",): 0, ("audit",): 1, ("dead_letters",): 0}
    assert value_map(figures, c.REPLAYS_ABORTED) == {("refunds",): 1, ("audit",): 1, ("dead_letters",): 0}


def test_a_glance_has_what_somebody_should_look_at(figures):
    assert figures.glance() == Glance()
    figures.take(STARTED)
    figures.take(Noticed("refunds", "aborted", "given up", sink="audit"))
    figures.take(Noticed("refunds", "expired", "sent again", sink="audit"))
    figures.see_doubts({"refunds": (2, 190.0), "audit": (1, 5.0)}, [])
    lags = [Lag("settlements", 0, 120, 8, 3.5), Lag("settlements", 1, 3, 0, None)]
    figures.see_lags({SOURCE: lags, sink_part("audit"): [Lag("audit-log", 0, None, 5, 900.0)]}, [])
    assert figures.glance() == Glance(13, "settlements-0", 8, 900.0, in_doubt=3, in_doubt_s=190.0, aborted=4, expired=1)
    figures.see_lags({SOURCE: [Lag("settlements", 0, 120, 0, 0.0)]}, [])
    assert (figures.glance().held, figures.glance().worst) == (0, "")


def test_values_fall_into_the_bucket_they_do_not_exceed(figures):
    figures.take(Committed("refunds", 0, "audit", 1, 1, False, 0.01))
    figures.take(Committed("refunds", 1, "audit", 1, 1, False, 1e9))
    counts = next(r for r in figures.read() if r.metric is c.COMMIT_S).spreads[("audit",)].counts
    assert counts[c.COMMIT_S.buckets.index(0.01)] == 1
    assert (counts[-1], sum(counts)) == (1, 2)


def test_quantiles_of_commits_are_those_of_the_live_line(figures):
    assert value_map(figures, c.COMMIT_QUANTILE) == {}
    for epoch in range(100):
        commit_s = 0.9 if epoch == 7 else 0.01
        figures.take(Delivered("refunds", epoch, True, 1, {"refunds": 1}, 0, 0, 1.0, commit_s))
    assert value_map(figures, c.COMMIT_QUANTILE) == {("0.5",): 0.01, ("0.99",): 0.01}
    figures.take(Delivered("refunds", 100, True, 1, {"refunds": 1}, 0, 0, 1.0, 0.9))
    assert value(figures, c.COMMIT_QUANTILE, "0.99") == 0.9


def test_latency_is_counted_in_rows_and_absent_without_record_times(figures):
    figures.take(DELIVERED)
    assert value_map(figures, c.LATENCY_QUANTILE) == {}
    latency = Latency({0: 90}, 2.0), Latency({0: 10}, 70.0)
    for number, one in enumerate(latency):
        figures.take(Delivered("refunds", 43 + number, True, 100, {"refunds": 100}, 0, 0, 0.5, 0.04, latency=one))
    assert spread(figures, c.LATENCY) == (100, 90 * 2.0 + 10 * 70.0)
    assert value_map(figures, c.LATENCY_QUANTILE) == {("0.5",): 2.0, ("0.99",): 70.0}


def test_what_is_in_doubt_is_told_of_the_sinks_that_answered_only(figures):
    figures.see_doubts({"refunds": (0, 0.0), "audit": (3, 61.5)}, [sink_part("dead_letters")])
    assert value_map(figures, c.IN_DOUBT) == {("refunds",): 0, ("audit",): 3}
    assert value_map(figures, c.IN_DOUBT_S) == {("refunds",): 0, ("audit",): 61.5}
    figures.see_doubts({"refunds": (0, 0.0)}, [sink_part("audit"), STATE])
    assert value_map(figures, c.IN_DOUBT) == {("refunds",): 0}
    assert (value(figures, c.LOOKS_FAILED, *sink_part("audit")), value(figures, c.LOOKS_FAILED, *STATE)) == (1, 1)


def test_lags_are_told_by_partition_and_what_is_not_known_is_not_told(figures):
    lags = [Lag("settlements", 0, 120, 8, 3.5), Lag("settlements", 1, behind=None, held=0, open_s=None)]
    figures.see_lags({SOURCE: lags, sink_part("audit"): [Lag("audit-log", 0, None, 5, 900.0)]}, [])
    assert value_map(figures, c.BEHIND) == {("source", "", "settlements", "0"): 120}
    assert value_map(figures, c.HELD) == {
        ("source", "", "settlements", "0"): 8,
        ("source", "", "settlements", "1"): 0,
        ("sink", "audit", "audit-log", "0"): 5,
    }
    assert value_map(figures, c.OPEN_S) == {
        ("source", "", "settlements", "0"): 3.5,
        ("sink", "audit", "audit-log", "0"): 900.0,
    }
    figures.see_lags({}, [SOURCE])
    assert value_map(figures, c.HELD) == {}
    assert value(figures, c.LOOKS_FAILED, *SOURCE) == 1
