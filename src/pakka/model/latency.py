"""How long rows take from their record time to the commit: a count of rows by age, small whatever the number of rows.

Rows are counted in the tasks by their age at the epoch's time, in buckets that are a sixteenth of an octave wide; counts of
slots and of epochs are added. The commit is later than the epoch's time by the same span for all rows of an epoch, so that
span is added at the end. A quantile is off by at most 1/32 of the age.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

BITS = 48
"""A bucket is what is left of an age in microseconds, as a 64-bit float, without this many low bits."""
BASE = 0x4090
"""That of 1,024 µs. What is younger, or from the future by another machine's clock, is in bucket 0."""
BUCKETS = 1024
"""Enough for ages that no 64-bit number of microseconds exceeds."""


@cache
def edge_s(bucket: int) -> float:
    """The youngest age in a bucket."""
    if bucket == 0:
        return 0.0
    (age_us,) = struct.unpack("<d", struct.pack("<q", (bucket + BASE) << BITS))
    return float(age_us) / 1e6


@dataclass(frozen=True, slots=True)
class Latency:
    """Rows by their age when the epoch was committed. Rows without a record time are not in it."""

    ages: Mapping[int, int] = field(default_factory=dict)
    """Rows by bucket of their age at the epoch's time."""
    after_s: float = 0.0
    """From the epoch's time to the end of its commit."""

    @property
    def rows(self) -> int:
        return sum(self.ages.values())

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Seconds and rows, from the least on."""
        for bucket in sorted(self.ages):
            middle = (edge_s(bucket) + edge_s(bucket + 1)) / 2 if bucket else 0.0
            yield max(0.0, middle + self.after_s), self.ages[bucket]

    def to_json(self) -> dict[str, Any]:
        p50, p99 = quantiles([self], (0.5, 0.99))
        return {"rows": self.rows, "p50_s": round(p50, 3), "p99_s": round(p99, 3)}


def quantiles(latencies: list[Latency], wanted: tuple[float, ...]) -> list[float]:
    """The latency that so large a part of all these rows does not exceed; 0 if there are none."""
    pairs = sorted(pair for latency in latencies for pair in latency)
    total = sum(rows for _, rows in pairs)
    return [_first(pairs, part * total) for part in wanted]


def _first(pairs: list[tuple[float, int]], rows_before: float) -> float:
    for seconds, rows in pairs:
        rows_before -= rows
        if rows_before <= 0:
            return seconds
    return 0.0


def add_ages(all_ages: list[Mapping[int, int]]) -> dict[int, int]:
    """The counts of several slots together."""
    total: dict[int, int] = {}
    for ages in all_ages:
        for bucket, rows in ages.items():
            total[bucket] = total.get(bucket, 0) + rows
    return total
