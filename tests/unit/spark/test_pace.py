"""How many rows a batch should have, and in whose session that may be set."""

from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from pakka.spark.pace import ROWS_MAX, SETTINGS, Pace
from pakka.spark.session import _SETTINGS

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Session:
    """Stands for the clone that Spark makes for a query. Each epoch has a new object for the same session."""

    def __init__(self, **changed):
        self.values = SETTINGS | changed
        self.calls = []
        self.conf = self
        self.jvm = object()

    @property
    def epoch(self):
        return SimpleNamespace(conf=self, _jsparkSession=self.jvm)

    def get(self, key, default):
        self.calls.append("get")
        return self.values.get(key, default)

    def set(self, key, value):
        self.calls.append("set")
        self.values[key] = value

    @property
    def rows(self):
        return self.values[ROWS]


def paced(row_bytes, rows=ROWS_MAX):
    pace = Pace()
    pace.learn(rows, rows * row_bytes)
    return pace


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [
        (8, 10_000),
        (100, 10_000),
        (209, 10_000),
        (210, 8192),
        (1000, 2048),
        (1024, 2048),
        (1025, 1024),
        (4000, 512),
        (1 << 20, 2),
        (2 << 20, 1),
        (64 << 20, 1),
    ],
)
def test_a_batch_is_two_megabytes_or_ten_thousand_rows(row_bytes, rows):
    assert paced(row_bytes).rows == rows


def test_before_the_first_epoch_a_batch_has_what_the_session_says():
    assert Pace().rows == ROWS_MAX == int(_SETTINGS[ROWS])


def test_rows_without_bytes_are_narrow_ones():
    assert paced(0).rows == ROWS_MAX


def test_the_last_epoch_counts_and_not_those_before():
    pace = paced(4000)
    pace.learn(1000, 1000 * 100)
    assert pace.rows == ROWS_MAX


def test_an_epoch_without_rows_teaches_nothing():
    pace = paced(4000)
    pace.learn(0, 0)
    assert pace.rows == 512


def test_one_odd_row_does_not_make_batches_of_one():
    pace = Pace()
    pace.learn(1, 4 << 20)
    assert pace.rows == ROWS_MAX


def test_small_epochs_are_added_up():
    pace = Pace()
    for _ in range(9):
        pace.learn(10, 10 * 4000)
    assert pace.rows == ROWS_MAX
    pace.learn(10, 10 * 4000)
    assert pace.rows == 512


def test_wide_rows_change_a_session_with_our_values_once():
    session, pace = Session(), paced(4000)
    for _ in range(3):
        pace.keep(session.epoch)
    assert session.rows == "512"
    assert session.calls == ["get", "get", "set"]


def test_narrow_rows_ask_the_session_nothing():
    session, pace = Session(), paced(100)
    pace.keep(session.epoch)
    assert session.calls == []


def test_rows_that_become_narrow_again_come_as_many_at_a_time_as_at_first():
    session, pace = Session(), paced(4000)
    pace.keep(session.epoch)
    pace.learn(1000, 1000 * 100)
    pace.keep(session.epoch)
    assert session.rows == "10000"


@pytest.mark.parametrize(
    "changed", [{ROWS: "2000"}, {ROWS: "20000"}, {BYTES: "67108864b"}, {ROWS: None, BYTES: None}, {ROWS: "512"}]
)
def test_what_the_user_has_set_stays(changed):
    session, pace = Session(**changed), paced(4000)
    for row_bytes in (4000, 1000, 100):
        pace.learn(1000, 1000 * row_bytes)
        pace.keep(session.epoch)
    assert session.values == SETTINGS | changed
    assert set(session.calls) <= {"get"}


def test_a_query_that_is_started_again_has_a_session_of_its_own():
    first, second, theirs, pace = Session(), Session(), Session(**{ROWS: "2000"}), paced(4000)
    for session in (first, second, theirs):
        pace.keep(session.epoch)
    assert [session.rows for session in (first, second, theirs)] == ["512", "512", "2000"]


def test_the_session_that_the_user_holds_is_not_changed(monkeypatch):
    session, pace = Session(), paced(4000)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session.epoch)
    pace.keep(session.epoch)
    assert session.rows == "10000"
    clone = Session()
    pace.keep(clone.epoch)
    assert clone.rows == "512"
