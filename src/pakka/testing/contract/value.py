"""Cases of values: what goes in comes out equal, or is refused with `SchemaError` before anything is staged."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pakka.contract.sink import Writer
from pakka.errors import SchemaError
from pakka.testing.contract.columns import MOMENTS, NESTED, NUMBERS, PLAIN, TEXTS, Column
from pakka.testing.contract.table import Beside, case
from pakka.testing.contract.trial import Driver, Trial
from pakka.testing.contract.verdict import Broken, require

_SHOWN = 120


@case(Beside.VALUES)
def every_spark_type_reads_back_or_is_refused(trial: Trial) -> None:
    """Every type that Spark can hand over, with ordinary values and null."""
    _check(trial, PLAIN)


@case(Beside.VALUES)
def hard_numbers_read_back_or_are_refused(trial: Trial) -> None:
    """NaN, infinities, the ends of every range, decimals of 38 digits."""
    _check(trial, NUMBERS)


@case(Beside.VALUES)
def hard_texts_read_back_or_are_refused(trial: Trial) -> None:
    """Empty and very long texts, NUL, characters beyond 16 bits, and all that a text format has a meaning for."""
    _check(trial, TEXTS)


@case(Beside.VALUES)
def hard_moments_read_back_or_are_refused(trial: Trial) -> None:
    """Dates before 1582, the first and last years, and the edge of what nanoseconds can hold."""
    _check(trial, MOMENTS)


@case(Beside.VALUES)
def nested_values_read_back_or_are_refused(trial: Trial) -> None:
    """Arrays, structs and maps, in each other, empty and null."""
    _check(trial, NESTED)


def _check(trial: Trial, columns: Sequence[Column]) -> None:
    """Each column on a sink of its own, so that one refusal does not hide the next; all that is wrong is told at once."""
    wrong = []
    for number, column in enumerate(columns):
        harness = trial.harness.fresh(f"column-{number}")
        try:
            with Trial(harness) as own:
                _deliver(own, column)
        except Broken as broken:
            wrong.append(f"{column.name} ({column.kind}): {broken}")
    require(not wrong, f"{len(wrong)} of {len(columns)} columns: " + "; ".join(wrong))


def _deliver(trial: Trial, column: Column) -> None:
    ids = [f"RFD-{n}" for n in range(len(column.values))]
    values = pa.array(list(column.values), column.kind)
    batch = pa.record_batch([pa.array(ids, pa.string()), values], names=["refund_id", "value"])
    driver = trial.driver(1)
    writer: Writer | None = None
    try:
        writer = driver.writer(driver.slot(0), batch.schema)
        writer.write(batch)
        record = writer.prepare("0" * 16)
    except SchemaError as error:
        _expect_clean_refusal(trial, driver, writer, error)
        return
    except Exception as error:
        raise Broken(
            f"must be stored or refused with SchemaError, and raises {type(error).__name__}: {error}"
        ) from error
    driver.must_commit(0, [record], "a commit of rows that were not refused")
    wanted = _plain(batch.to_pylist())
    try:
        found = _plain(trial.harness.rows(batch.schema))
    except (ValueError, ArithmeticError) as error:
        raise Broken(f"was stored, and cannot be read back: {type(error).__name__}: {error}") from error
    if wanted != found:
        lost, strange = list((wanted - found).elements()), list((found - wanted).elements())
        raise Broken(f"{_words(lost)} went in, and {_words(strange)} came out")


def _words(rows: list[str]) -> str:
    if not rows:
        return "nothing"
    return rows[0] if len(rows[0]) <= _SHOWN else f"{rows[0][:_SHOWN]}... ({len(rows[0])} characters)"


def _expect_clean_refusal(trial: Trial, driver: Driver, writer: Writer | None, error: SchemaError) -> None:
    require("value" in error.message, f"is refused, and the message does not name the column: {error.message}")
    if writer is not None:
        writer.discard()
    trial.expect_no_litter("after a refusal")
    require(not driver.pending(), "after a refusal, pending names records")


def _plain(rows: Any) -> Counter[str]:
    return Counter(repr(sorted((name, _canonical(value)) for name, value in row.items())) for row in rows)


def _canonical(value: Any) -> Any:
    """A form in which equal values are equal and others are not: NaN is NaN, -0.0 is 0.0, an instant has no zone, a map no order."""
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dict):
        return {name: _canonical(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        made = [_canonical(inner) for inner in value]
        is_map = isinstance(value, list) and all(isinstance(inner, tuple) for inner in value)
        return sorted(made, key=repr) if is_map else made
    return value
