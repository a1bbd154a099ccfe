"""The one Spark job of an epoch, and what a person wants to know of it when it fails."""

from __future__ import annotations

import json
import re
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import pakka.errors
from pakka.coordinator.epoch import Harvest
from pakka.errors import AbortedError, PakkaError
from pakka.model.event import Noticed
from pakka.model.prepared import SlotReport
from pakka.notice import pass_on
from pakka.spark.pace import Pace
from pakka.spark.plan import Plan
from pakka.spark.task import Order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# `pyarrow.lib.ArrowInvalid: ...`, `RuntimeError: ...`: the last line of a Python traceback.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Invalid|Refused|Fenced|Timeout|Interrupt)(: .*)?$")
# `[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] ...`: Spark's own kind of message.
_CLASSED = re.compile(r"\[[A-Z][A-Z0-9_.]{5,}\]")


def run_writers(plan: Plan, batch: DataFrame, slots: int, epoch: int, fence: int, at_us: int, pace: Pace) -> Harvest:
    """Judge, write and prepare, and bring the reports home. `pace` learns how wide the rows were."""
    Order(epoch, fence, at_us).give(batch)
    # As an RDD it is planned once. `collect` of the frame would generate its code again, once the slots are counted, and describe
    # the plan to Spark's pages, which show the job under the query's batch anyway.
    job = plan.over(batch, slots).rdd
    # Asked of the very plan that runs, so that a slot which said nothing is missed.
    expected = job.getNumPartitions()
    try:
        answers = [json.loads(row[0]) for row in job.collect()]
    except Exception as error:
        raise AbortedError(
            f"pipeline `{plan.pipeline}`: epoch {epoch}: a task failed for good: {cause_of(error)}; the epoch was aborted and "
            "nothing of it is visible",
            hint="mend the cause and run again: the epoch runs again with the same rows",
        ) from error
    # What several slots have noticed is said once.
    for said in dict.fromkeys(Noticed(**said) for answer in answers for said in answer.get("said", ())):
        pass_on(said)
    for answer in answers:
        if "error" in answer:
            raise _error_of(answer["error"])
    reports = [SlotReport.from_json(answer["report"]) for answer in answers]
    pace.learn(sum(report.count.rows_in for report in reports), sum(answer["bytes"] for answer in answers))
    return Harvest(expected, reports)


def _error_of(answer: dict[str, str]) -> PakkaError:
    kind = getattr(pakka.errors, answer["class"], PakkaError)
    error: PakkaError = kind(answer["message"], answer["hint"])
    return error


def cause_of(error: BaseException) -> str:
    """The lines of a Spark error that a person wants: what happened and what caused it, without the stacks."""
    lines = [line.strip().removeprefix("Caused by:").strip(" :") for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and "Traceback (most recent call last)" in str(error):
        return raised[-1][:600]
    classed = list(dict.fromkeys(line for line in lines if _CLASSED.search(line)))
    told = list(dict.fromkeys([*classed[:1], *classed[1:][-1:], *raised[-1:]]))
    whole = [_whole(lines, line) if line in raised[-1:] else line for line in told]
    return " <- ".join(line[:400] for line in whole) or (lines or [type(error).__name__])[0][:600]


def _whole(lines: list[str], first: str) -> str:
    """A message of several lines, such as the header and the schema that do not agree; the stack begins below it."""
    after = lines[lines.index(first) + 1 :]
    rest = takewhile(lambda line: not line.startswith(("at ", "... ", "Driver stacktrace")), after)
    return " ".join([first, *islice(rest, 4)])
