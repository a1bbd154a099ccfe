"""Small decimals cross as numbers: what the task makes of them is what they were, with its nulls, wherever the batch begins."""

from decimal import Decimal

import pyarrow as pa
import pytest

from pakka.spark.decimals import restored

KIND = pa.decimal128(18, 4)
NUMBERS = [0, 1, -1, None, 999_999_999_999_999_999, -999_999_999_999_999_999, None, 12_345, -12_345]
DECIMALS = [None if n is None else Decimal(n).scaleb(-4) for n in NUMBERS]
SCHEMA = pa.schema([("amount", KIND), ("id", pa.int64()), ("large", pa.decimal128(38, 2))])


def crossed() -> pa.RecordBatch:
    columns = [pa.array(NUMBERS, pa.int64()), pa.array(range(9)), pa.array([Decimal("1.50")] * 9, pa.decimal128(38, 2))]
    return pa.record_batch(columns, names=["c0", "c1", "c2"])


@pytest.mark.parametrize(("begin", "count"), [(0, 9), (3, 6), (4, 2), (8, 1), (2, 0)])
def test_numbers_become_the_decimals_they_were(begin, count):
    batch = restored(crossed().slice(begin, count), SCHEMA)
    batch.validate(full=True)
    assert batch.column(0).type == KIND
    assert batch.column(0).to_pylist() == DECIMALS[begin : begin + count]


def test_what_came_as_it_is_stays_as_it_is():
    batch = restored(crossed(), SCHEMA)
    assert batch.column(1).to_pylist() == list(range(9))
    assert batch.column(2).to_pylist() == [Decimal("1.50")] * 9


def test_a_column_without_nulls_and_one_of_nothing_else():
    for numbers in ([7, -7], [None, None], []):
        (column,) = restored(
            pa.record_batch([pa.array(numbers, pa.int64())], names=["c0"]), pa.schema([("amount", KIND)])
        ).columns
        assert column.to_pylist() == [None if n is None else Decimal(n).scaleb(-4) for n in numbers]
