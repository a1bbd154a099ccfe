"""A column that several sinks take travels once, however each of them writes its name."""

import pytest

from pakka.spark.plan import _spelt

COLUMNS = ["id", "Qty", "true", "two words", "a.b"]


@pytest.mark.parametrize(
    ("written", "spelt"),
    [
        ("id", ["`id`"]),
        ("`id`", ["`id`"]),
        ("ID", ["`id`"]),
        ("qty", ["`Qty`"]),
        ("*", ["`id`", "`Qty`", "`true`", "`two words`", "`a.b`"]),
    ],
)
def test_a_column_has_one_spelling(written, spelt):
    assert _spelt(written, COLUMNS) == spelt


@pytest.mark.parametrize("written", ["id + 1", "id AS x", "a.b", "true", "NULL", "other", "`two words`", "count(*)"])
def test_what_is_no_plain_name_of_a_column_stays_as_it_was_written(written):
    assert _spelt(written, COLUMNS) == [written]


def test_a_quoted_name_that_would_be_a_value_is_a_column():
    assert _spelt("`true`", COLUMNS) == ["`true`"]


def test_of_two_columns_that_differ_in_case_the_exact_one_is_taken():
    assert _spelt("ID", ["id", "ID"]) == ["`ID`"]
