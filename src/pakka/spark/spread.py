"""Work of a commit on the executors: a Spark job with a task for each piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pakka.contract.sink import Spread
from pakka.errors import UnknownOutcomeError
from pakka.model.event import Noticed
from pakka.notice import heard, pass_on
from pakka.spark.job import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def over(spark: SparkSession) -> Spread:
    """The executors of a session. A piece whose task fails is done again, as often as Spark tries a task."""

    def spread(work: Sequence[Callable[[], Any]]) -> list[Any]:
        try:
            answers = spark.sparkContext.parallelize(work, len(work)).map(_do).collect()
        except Exception as error:
            raise UnknownOutcomeError(f"a task failed for good: {cause_of(error)}; others may be done") from error
        # What several have noticed is said once.
        for said in dict.fromkeys(said for _, heard_there in answers for said in heard_there):
            pass_on(said)
        return [answer for answer, _ in answers]

    return spread


def _do(piece: Callable[[], Any]) -> tuple[Any, list[Noticed]]:
    said: list[Noticed] = []
    with heard("", said.append):
        return piece(), said
