"""Ages of rows, counted in a task: the same counts as by looking at each row."""

import random

import pyarrow as pa
import pytest

from pakka.model.latency import edge_s
from pakka.spark.age import Ages

NOW_US = 1_763_208_000_000_000


def times(*ages_us: int | None) -> pa.Array:
    made = [None if age is None else NOW_US - age for age in ages_us]
    return pa.array(made, pa.timestamp("us", "UTC"))


def test_every_row_is_in_the_bucket_of_its_age():
    chance = random.Random(3)
    given = [int(10 ** chance.uniform(0, 17)) for _ in range(3000)]
    ages = Ages(NOW_US)
    ages.take(times(*given[:1000]))
    ages.take(times(*given[1000:]))
    counted = ages.counted()
    edges = {bucket: (edge_s(bucket) * 1e6, edge_s(bucket + 1) * 1e6) for bucket in counted}
    assert counted == {b: sum(low <= age < high for age in given) for b, (low, high) in edges.items()}
    assert sum(counted.values()) == 3000


@pytest.mark.parametrize("age_us", [0, 1, 1023, -1, -3_600_000_000])
def test_what_is_new_or_from_the_future_is_in_the_first_bucket(age_us):
    ages = Ages(NOW_US)
    ages.take(times(age_us))
    assert ages.counted() == {0: 1}


def test_rows_without_a_time_are_not_counted():
    ages = Ages(NOW_US)
    ages.take(times(None, None))
    ages.take(times())
    assert ages.counted() == {}
    ages.take(times(5_000_000, None))
    assert sum(ages.counted().values()) == 1


def test_a_slice_counts_only_its_own_rows():
    ages = Ages(NOW_US)
    ages.take(times(1, 2, 3, None, 5)[3:])
    assert ages.counted() == {0: 1}
