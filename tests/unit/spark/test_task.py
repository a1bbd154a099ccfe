"""What a task hands back, as far as it can be seen without Spark."""

import json
from contextlib import suppress
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pakka.errors import BugError, RefusedError
from pakka.model.epoch import Count
from pakka.model.event import Noticed
from pakka.model.id import Binding
from pakka.model.prepared import SlotReport
from pakka.notice import heard, notice
from pakka.spark.job import run_writers
from pakka.spark.pace import Pace
from pakka.spark.task import Errand, Task


class Talking(Task):
    """Its sink has something to say, and then does what `then` does."""

    then = staticmethod(lambda: SlotReport(0, (), Count()))

    def _run(self, batches):
        notice(Binding("refunds", "out", ""), "mended", "it is told now")
        return self.then()


class Refused(Talking):
    @staticmethod
    def then():
        raise RefusedError("a row does not fit")


class Here:
    """Stands for Spark: one task, which has run when this is made."""

    def __init__(self, task, batches=()):
        self.task = task
        self.answers = [(answer,) for batch in task(iter(batches)) for answer in batch.column(0).to_pylist()]

    def collect(self):
        return self.answers

    pipeline = "refunds"
    rdd = property(lambda self: self)
    over = lambda self, *_: self  # noqa: E731
    getNumPartitions = lambda _: 1  # noqa: E731
    setLocalProperty = lambda *_: None  # noqa: E731
    sparkSession = property(lambda self: SimpleNamespace(sparkContext=self))


def task_of(kind):
    return kind("refunds", "spool", 0, 1, 0, None, (), None)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("kind", [Talking, Refused])
def test_what_a_sink_says_on_an_executor_is_told_on_the_driver_once(kind, slots):
    here, said = Here(task_of(kind)), []
    here.answers *= slots
    with heard("refunds", said.append), suppress(RefusedError):
        run_writers(here, here, 1, 0, 1, 0, Pace())
    assert said == [Noticed("refunds", "mended", "sink `refunds.out`: it is told now", sink="out")]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("a row does not fit", "a row does not fit (epoch 0, slot 3)"),
        ("a row of epoch 0 does not fit", "a row of epoch 0 does not fit"),
    ],
)
def test_a_row_that_is_refused_is_told_with_its_epoch_and_slot(message, told, monkeypatch):
    class Refusing(Talking):
        def _run(self, batches):
            raise RefusedError(message)

    monkeypatch.setattr("pyspark.TaskContext.get", lambda: SimpleNamespace(partitionId=lambda: 3))
    here = Here(task_of(Refusing))
    with pytest.raises(RefusedError) as refused:
        run_writers(here, here, 1, 0, 1, 0, Pace())
    assert refused.value.message == told


def test_a_task_that_has_nothing_to_say_says_nothing():
    class Quiet(Talking):
        def _run(self, batches):
            return self.then()

    ((answer,),) = Here(task_of(Quiet)).answers
    assert "said" not in json.loads(answer)


def test_a_task_that_is_not_told_its_epoch_writes_nothing():
    with pytest.raises(BugError, match="was not told which epoch it is for"):
        Errand(task_of(Talking))(iter(()))


class Counting(Talking):
    """Takes what comes, and refuses it if there is no row."""

    def _run(self, batches):
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            raise RefusedError("there is nothing")
        return SlotReport(0, (), Count(rows, rows))


class Learning:
    def __init__(self):
        self.learnt = []

    def learn(self, rows, size):
        self.learnt.append((rows, size))


WIDE = pa.record_batch([pa.array(["x" * 96] * 50)], names=["c0"])


def test_the_bytes_that_crossed_are_told_beside_the_report_and_not_in_it():
    ((answer,),) = Here(task_of(Counting), [WIDE, WIDE]).answers
    told = json.loads(answer)
    assert told["bytes"] == 2 * WIDE.nbytes >= 2 * 50 * 96
    assert "bytes" not in json.dumps(told["report"])


def test_of_an_epoch_the_rows_and_bytes_of_all_slots_are_learnt():
    here, pace = Here(task_of(Counting), [WIDE, WIDE]), Learning()
    here.answers *= 3
    run_writers(here, here, 1, 0, 1, 0, pace)
    assert pace.learnt == [(300, 6 * WIDE.nbytes)]


def test_of_an_epoch_that_is_refused_nothing_is_learnt():
    here, pace = Here(task_of(Counting)), Learning()
    with pytest.raises(RefusedError):
        run_writers(here, here, 1, 0, 1, 0, pace)
    assert pace.learnt == []
