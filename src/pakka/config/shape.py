"""The shape of a pipeline file, as strict pydantic models: unknown fields are refused, and nothing is converted.

Sources and sinks are open mappings here: which kinds there are, and which options each takes, the registry knows.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_WORDS = {"millisecond": "ms", "sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


def wrong(expected: str) -> PydanticCustomError:
    """A value of the wrong form; the message is made from what was expected and what is there."""
    return PydanticCustomError("expected", "expected {expected}", {"expected": expected})


def seconds(value: Any) -> float:
    """A duration: `10s`, `500ms`, `2 minutes`, or a number of seconds."""
    found: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        word = match.group(2).lower()
        unit = _UNITS_S.get(word) or _UNITS_S.get(_WORDS.get(word.removesuffix("s"), ""))
        found = float(match.group(1)) * unit if unit else None
    if found is None or not 0 < found < float("inf"):
        raise wrong("a duration above zero, such as `10s`, `500ms` or `2 minutes`")
    return found


def _scalar(value: Any) -> Any:
    if isinstance(value, str | int | float):
        return value
    raise wrong("text, a number, true or false")


def _bound(value: Any) -> Any:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    raise wrong("a number, or text such as a date")


def _listed(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise wrong("a column, or a list of columns")
    return [value] if isinstance(value, str) else value


def _sql(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise wrong("Spark SQL, or `{python: module:function}`")
    return {"sql": value} if isinstance(value, str) else value


def _interval(value: Any) -> float | None:
    if value == "available_now":
        return None
    if isinstance(value, dict) and set(value) == {"interval"}:
        return seconds(value["interval"])
    raise wrong("`available_now`, or an interval such as `{interval: 10s}`")


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}
_BOUND_SCHEMA = {"type": ["string", "number"]}
_COLUMNS_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]
}
_DURATION_SCHEMA = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _DURATION.pattern}]
}
_TRIGGER_SCHEMA = {
    "anyOf": [
        {"const": "available_now"},
        {
            "type": "object",
            "properties": {"interval": _DURATION_SCHEMA},
            "required": ["interval"],
            "additionalProperties": False,
        },
    ]
}

Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Scalar: TypeAlias = Annotated[Any, PlainValidator(_scalar), WithJsonSchema(_SCALAR_SCHEMA)]
Bound: TypeAlias = Annotated[Any, PlainValidator(_bound), WithJsonSchema(_BOUND_SCHEMA)]
Columns: TypeAlias = Annotated[
    list[Text], Field(min_length=1), BeforeValidator(_listed), WithJsonSchema(_COLUMNS_SCHEMA)
]
Interval: TypeAlias = Annotated[float | None, PlainValidator(_interval), WithJsonSchema(_TRIGGER_SCHEMA)]
Options: TypeAlias = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class Range(_Shape):
    """Both ends are inclusive; one of them may be left out. Null passes: `not_null` is the rule for that."""

    column: Text
    min: Bound = None
    max: Bound = None


class Regex(_Shape):
    """The pattern, a Java regular expression, must be found in the value; anchor it with ^ and $ for all of it."""

    column: Text
    pattern: Text


class OneOf(_Shape):
    """The value must be one of these. Null passes."""

    column: Text
    values: Annotated[list[Scalar], Field(min_length=1)]


class RuleShape(_Shape):
    """A quality rule: one of the six, and what becomes of a row that breaks it."""

    not_null: Columns | None = None
    """A column, or a list of them, that must have a value."""
    range: Range | None = None
    """`{column, min, max}`: the value must lie between the two ends, which belong to it; one may be left out. Null passes."""
    regex: Regex | None = None
    """`{column, pattern}`: the pattern, a Java regular expression, must be found in the value. Null passes."""
    one_of: OneOf | None = None
    """`{column, values}`: the value must be one of these. Null passes."""
    unique: Columns | None = None
    """A column, or a list of them: no two rows of an epoch may share the values; all rows that do break the rule."""
    expr: Text | None = None
    """Any Spark SQL condition; a null answer counts as broken."""
    on_fail: Literal["drop", "dead_letter", "fail"] | None = None
    """What becomes of a row that breaks the rule. Default: `dead_letter` if there is a `dead_letters` sink, else `fail`."""


RULES = tuple(name for name in RuleShape.model_fields if name != "on_fail")


class Process(_Shape):
    """Spark SQL over the view `source`, or a Python function from DataFrame to DataFrame."""

    sql: Text | None = None
    python: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """`module:function`."""


class OutputShape(_Shape):
    """What stands beside a sink's kind."""

    select: Annotated[list[Text], Field(min_length=1)] | None = None
    """The columns or Spark SQL expressions that this sink gets; all columns if not given."""
    where: Text | None = None
    """A Spark SQL condition: only rows for which it is true go to this sink."""


class PipelineShape(_Shape):
    """A pipeline: source -> process -> quality -> sinks."""

    pipeline: Text
    """The pipeline's name, its identity for ever: letters, digits, `_` and `-`."""
    source: Options
    """Where rows come from: one kind of source with its options."""
    process: Annotated[Process, BeforeValidator(_sql)] | None = None
    """Spark SQL over the view `source`, or `{python: "module:function"}`. Rows go on as they are if not given."""
    record_time: Text | None = None
    """When a row's record was made, for the metrics: a TIMESTAMP column, or an expression, of what `process` makes. Default: the source's, if kept."""
    quality: list[RuleShape] = []
    """Rules that every row must keep."""
    sinks: Annotated[dict[str, Options], Field(min_length=1)]
    """Where good rows go: each sink under a name of its own. All of them get an epoch, or none does."""
    dead_letters: Options | None = None
    """Where rows go that break a rule with `on_fail: dead_letter`, and malformed records: a sink."""
    state: Annotated[str, StringConstraints(pattern=r"^(sqlite:///.|postgresql://.)")] = "sqlite:///.pakka/state.db"
    """Where fences and decisions are kept: `sqlite:///PATH` or `postgresql://...`."""
    spool: Text = ".pakka/spool"
    """A directory in which some sinks keep rows between prepare and commit."""
    checkpoint: Text | None = None
    """Spark's checkpoint directory. Default: `.pakka/checkpoints/NAME`."""
    slots: Annotated[int, Field(ge=1)] | None = None
    """At most so many writers an epoch. Default: the parallelism of the cluster."""
    trigger: Interval = None
    """`available_now` (default): deliver all there is, then stop. `{interval: 10s}`: go on for ever."""
    spark: dict[str, Scalar] = {}
    """Spark settings, as in `spark-defaults.conf`."""
