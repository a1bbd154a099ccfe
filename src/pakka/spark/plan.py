"""From a pipeline and a schema to the wire: the columns Spark computes in one pass for every sink together.

Each distinct expression is one column of the wire, however many sinks take it. Beside them travel a hash for each
distinct selection, a condition for each `where`, and, if there is anything to judge, the mask and the broken row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.functions import coalesce, col, expr, lit, to_json, when, xxhash64
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType, TimestampType
from pyspark.util import PythonEvalType

from pakka.contract.lag import Timed
from pakka.contract.pipeline import DEAD_LETTERS, Output, Pipeline
from pakka.errors import ConfigError, SchemaError
from pakka.model.id import nearest
from pakka.quality.dead_letter import quoted_whole, row_sql
from pakka.quality.judge import Judge
from pakka.spark.decimals import unscaled
from pakka.spark.task import Errand, Route, Task

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

RAW = "_pakka_raw"
"""The column that carries a malformed record's raw text past `process`."""
_MASK = "_pakka_mask"
_ANSWER = StructType([StructField("answer", StringType())])
_OWN = "_pakka_"
"""How the columns begin that travel beside the user's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compute for an epoch, and the task that takes it. All of it is made once, in the JVM too, and used for every epoch: made
    anew each time, which is what `select` and `mapInArrow` of PySpark do, it is 10 ms of an epoch.
    """

    pipeline: str
    mask: Column | None
    wire: JavaObject
    task: Column

    def over(self, batch: DataFrame, slots: int) -> DataFrame:
        """The task's answers over an epoch's rows."""
        judged = batch if self.mask is None else batch.select("*", self.mask)
        wire = judged._jdf.select(self.wire).coalesce(slots)
        return ClassicDataFrame(wire.mapInArrow(self.task._jc, False, None), batch.sparkSession)


@dataclass
class _Wire:
    """The columns of the wire, each expression once."""

    known: dict[str, int] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)

    def add(self, expression: str, column: Column | None = None) -> int:
        """The place of an expression on the wire; `column` is it, if it is not just the expression."""
        if expression not in self.known:
            self.known[expression] = len(self.columns)
            self.columns.append(expr(expression) if column is None else column)
        return self.known[expression]

    @property
    def named(self) -> tuple[Column, ...]:
        """The columns under names that no user's column has."""
        return tuple(column.alias(name) for column, name in zip(self.columns, self.names, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"c{place}" for place in range(len(self.columns)))


def make_plan(pipeline: Pipeline, frame: DataFrame, judge: Judge) -> Plan:
    """Plan for rows like those of `frame`. Every name in the pipeline is resolved here, before anything starts."""
    columns = _user_columns(pipeline, frame, judge)
    for rule in pipeline.quality:
        rule.check_columns(columns)
    wire = _Wire()
    mask = mask_place = row_place = None
    judged = frame
    if not judge.is_idle:
        mask = expr(judge.mask).alias(_MASK)
        judged = _resolve(pipeline, "quality", frame, [col("*"), mask], columns)
        mask_place = wire.add(_MASK)
        row_place = wire.add(f"IF({_MASK} = 0L, NULL, {row_sql(columns, judge.raw_column)})")
    routes = [
        _route(pipeline, name, output, judged, wire, columns, judge)
        for name, output in pipeline.outputs.items()
        if name != DEAD_LETTERS
    ]
    if DEAD_LETTERS in pipeline.outputs:
        hashed = routes[0].hash_column
        if not judge.is_idle:
            # A dead row goes to no other sink, so its hash travels in the place of the first one's.
            of_dead = expr(f"xxhash64({_MASK}, {row_sql(columns, judge.raw_column)})")
            wire.columns[hashed] = when(col(_MASK) == lit(0), wire.columns[hashed]).otherwise(of_dead)
        sink = pipeline.outputs[DEAD_LETTERS].sink
        routes.append(Route(DEAD_LETTERS, sink, (), (), hashed, is_dead_letters=True))
    time_place = _time_place(pipeline, judged, wire, columns, judge)
    kinds = _resolve(pipeline, "sinks", judged, wire.named, columns).schema
    schema = _arrow_schema(pipeline, kinds)
    wire.columns = unscaled(wire.columns, kinds, frame.sparkSession)
    places = (mask_place, row_place, time_place)
    task = Task(pipeline.name, pipeline.spool_path, -1, -1, 0, schema, tuple(routes), judge, *places)
    classic: Any = frame
    function: Any = pandas_udf(Errand(task), _ANSWER, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    return Plan(pipeline.name, mask, classic._jcols(*wire.named), function(*wire.names))


def _user_columns(pipeline: Pipeline, frame: DataFrame, judge: Judge) -> list[str]:
    """The columns that are the user's. Two that Spark cannot tell apart, or one of ours among them, would lose values."""
    columns = list(frame.columns)
    if judge.raw_column is not None:
        columns.remove(judge.raw_column)
    is_exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    seen: dict[str, str] = {}
    for column in columns:
        if column.lower().startswith(_OWN):
            raise ConfigError(
                f"pipeline `{pipeline.name}`: the rows have a column `{column}`, and pakka uses names that begin with `{_OWN}` "
                "itself; nothing was started",
                hint="rename it in `process`",
            )
        key = column if is_exact else column.lower()
        if key in seen:
            raise ConfigError(
                f"pipeline `{pipeline.name}`: the rows have the columns `{seen[key]}` and `{column}`, which Spark does not tell "
                "apart; nothing was started",
                hint="rename one of them, in the schema or in `process`",
            )
        seen[key] = column
    return columns


def _route(
    pipeline: Pipeline, name: str, output: Output, judged: DataFrame, wire: _Wire, columns: list[str], judge: Judge
) -> Route:
    expressions = list(output.select) or [quoted_whole(c) for c in columns]
    field_name = f"sinks.{name}.select"
    selected = _resolve(pipeline, field_name, judged, [expr(e) for e in expressions], columns)
    fields = [f for f in selected.schema.fields if f.name not in (RAW, _MASK)]
    names = tuple(f.name for f in fields)
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigError(
            f"pipeline `{pipeline.name}`: sink `{name}` would get two columns called `{twice[0]}`",
            hint=f"rename one with `... AS other_name` under `{field_name}`",
        )
    expressions = [e for x in expressions for e in _spelt(x, columns)]
    where = None
    guard = [] if judge.is_idle else [col(_MASK) == lit(0)]
    if output.where is not None:
        condition = coalesce(expr(output.where), lit(False))
        _resolve(pipeline, f"sinks.{name}.where", judged, [condition], columns)
        guard.append(condition)
        where = wire.add(f"where {output.where}", reduce(and_, guard))
    # What a sink computes, it computes of the rows it gets: another row might be just the one that cannot be computed.
    computed = {e: when(reduce(and_, guard), expr(e)) for e in expressions if guard and e.strip("`") not in columns}
    taken = [computed.get(e, expr(e)) for e in expressions]
    suffix = f" for {name}" if computed else ""
    hashed = wire.add(f"hash {expressions}{suffix}", _hash(taken, [f.dataType for f in fields]))
    places = tuple(wire.add(e + suffix if e in computed else e, c) for e, c in zip(expressions, taken, strict=True))
    return Route(name, output.sink, places, names, hashed, where)


def _time_place(pipeline: Pipeline, judged: DataFrame, wire: _Wire, columns: list[str], judge: Judge) -> int | None:
    """Where the record time travels. A column that a sink takes anyway travels once."""
    given = pipeline.record_time
    if given is None:
        column = pipeline.source.time_column if isinstance(pipeline.source, Timed) else None
        is_kept = column in columns and isinstance(judged.schema[column].dataType, TimestampType)
        return wire.add(quoted_whole(column)) if column is not None and is_kept else None
    found = [f.dataType for f in _resolve(pipeline, "record_time", judged, [expr(given)], columns).schema.fields]
    if found != [TimestampType()]:
        kinds = ", ".join(kind.simpleString() for kind in found)
        raise ConfigError(
            f"pipeline `{pipeline.name}`: record_time: `{given}` is {kinds}, and one timestamp is needed; nothing was started",
            hint="make it one, for example with `to_timestamp(ts)`, `timestamp_millis(ms)` or `CAST(ts AS TIMESTAMP)`",
        )
    (spelt,) = _spelt(given, columns)
    if judge.is_idle or spelt.strip("`") in columns:
        return wire.add(spelt)
    return wire.add(f"record time {spelt}", when(col(_MASK) == lit(0), expr(spelt)))


def _spelt(expression: str, columns: list[str]) -> list[str]:
    """One text for each column, however it was written, so that it travels once. A star has no text of its own."""
    if expression == "*":
        return [quoted_whole(c) for c in columns]
    # Without backquotes these are values, even if a column is called so.
    name = re.fullmatch(r"(?!(?:true|false|null)$)[a-z_]\w*|`[a-z_]\w*`", expression, re.ASCII | re.IGNORECASE)
    if name is None:
        return [expression]
    # Spark may take a name in another case; an exact one comes first.
    asked = expression.strip("`")
    same = sorted((c for c in columns if c.lower() == asked.lower()), key=lambda c: c != asked)
    return [quoted_whole(same[0])] if same else [expression]


def _hash(columns: Sequence[Column], types: Sequence[DataType]) -> Column:
    """A row's hash. Spark does not hash maps, whose order means nothing; their JSON stands in for them."""
    return xxhash64(*(to_json(c) if _has_map(t) else c for c, t in zip(columns, types, strict=True)))


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return True
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, StructType) and any(_has_map(f.dataType) for f in kind.fields)


def _resolve(
    pipeline: Pipeline, where: str, frame: DataFrame, columns: Sequence[Column], known: Sequence[str]
) -> DataFrame:
    try:
        return frame.select(*columns)
    except AnalysisException as error:
        text = _first_line(error)
        unknown = re.search(r"name `?([^`'\"]+)`? cannot be resolved", text)
        hint = nearest(unknown.group(1), known) if unknown else "a name with odd characters is written in backquotes"
        raise ConfigError(f"pipeline `{pipeline.name}`: {where}: {text}", hint=hint) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _arrow_schema(pipeline: Pipeline, schema: StructType) -> pa.Schema:
    """The wire as Arrow. Nullability is not promised: a sink takes what the rows hold."""
    try:
        return to_arrow_schema(_nullable_struct(schema), timezone="UTC")
    except Exception as error:  # pyspark has no one class for a type that Arrow does not know
        raise SchemaError(
            f"pipeline `{pipeline.name}`: a column cannot travel as Arrow: {str(error).splitlines()[0]}",
            hint="cast it in `process`, for example to STRING",
        ) from error


def _nullable_struct(kind: StructType) -> StructType:
    return StructType([StructField(f.name, _nullable(f.dataType), True) for f in kind.fields])


def _nullable(kind: DataType) -> DataType:
    """The same type with nulls allowed at every depth. Spark's "never null" holds where there is a value at all: the fields
    of a struct that is null are null as well, and Arrow's writers would stumble over them.
    """
    if isinstance(kind, StructType):
        return _nullable_struct(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    return MapType(kind.keyType, _nullable(kind.valueType), True) if isinstance(kind, MapType) else kind
