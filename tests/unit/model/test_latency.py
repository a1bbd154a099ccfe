"""Counts of rows by age: what is told of them is near what it would be by sorting all rows."""

import math
import random
from itertools import pairwise

import pytest

from pakka.model.event import Delivered, to_json
from pakka.model.latency import BUCKETS, Latency, add_ages, edge_s, quantiles


def test_edges_grow_by_a_sixteenth_of_an_octave():
    edges = [edge_s(bucket) for bucket in range(BUCKETS)]
    assert edges == sorted(edges)
    assert edges[0] == 0
    assert edges[16] == pytest.approx(2048e-6)
    assert max(b / a for a, b in pairwise(edges[1:])) <= 1 + 1 / 16


def test_no_age_is_too_old_for_the_buckets():
    assert edge_s(BUCKETS - 1) > 2**63 / 1e6


def bucket_of(age_s: float) -> int:
    """By looking for it."""
    return max(b for b in range(BUCKETS) if edge_s(b) <= age_s)


def test_quantiles_are_near_those_of_all_rows():
    chance = random.Random(7)
    ages = sorted(math.exp(chance.uniform(-5, 8)) for _ in range(2000))
    latency = Latency(add_ages([{bucket_of(age): 1} for age in ages]), after_s=0.25)
    p50, p99 = quantiles([latency], (0.5, 0.99))
    assert p50 == pytest.approx(ages[999] + 0.25, rel=0.04)
    assert p99 == pytest.approx(ages[1979] + 0.25, rel=0.04)
    assert latency.rows == 2000


def test_each_epoch_has_its_own_way_to_its_commit():
    early, late = Latency({0: 9}, after_s=1.0), Latency({0: 1}, after_s=60.0)
    assert quantiles([late, early], (0.5, 0.9, 0.99)) == [1.0, 1.0, 60.0]


def test_without_rows_there_is_nothing_to_tell():
    assert quantiles([], (0.5,)) == [0.0]


def test_a_clock_that_is_ahead_never_makes_a_negative_latency():
    assert list(Latency({0: 3}, after_s=-2.0)) == [(0.0, 3)]


def test_an_event_tells_quantiles_and_not_buckets():
    latency = Latency({0: 3}, after_s=1.5)
    told = to_json(Delivered("refunds", 0, True, 3, {"refunds": 3}, 0, 0, 0.5, 0.1, latency=latency))
    assert told["latency"] == {"rows": 3, "p50_s": 1.5, "p99_s": 1.5}
