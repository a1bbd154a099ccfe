"""From a document to a `Pipeline`: every field checked, every mistake reported at its place, nothing started."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pakka import registry
from pakka.config import mistake
from pakka.config.document import Document
from pakka.config.environment import cover, hider, references
from pakka.config.function import PythonFunction
from pakka.config.problem import Loc
from pakka.config.shape import RULES, OutputShape, PipelineShape, RuleShape
from pakka.contract.pipeline import DEAD_LETTERS, Output, Pipeline, Trigger
from pakka.errors import ConfigError
from pakka.model.id import check_name
from pakka.model.rule import OnFail, Rule
from pakka.registry import Role

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BESIDE = tuple(OutputShape.model_fields)


def build(document: Document) -> Pipeline:
    """The pipeline, or one `ConfigError` with all that is wrong."""
    # A field with nothing behind it is one that was not given: people comment out what is below it.
    data = {key: value for key, value in document.data.items() if value is not None}
    shape = _validated(document, data)
    source = _made(document, Role.SOURCE, ("source",), data.get("source"))
    sinks = _outputs(document, data.get("sinks"))
    dead = _made(document, Role.SINK, (DEAD_LETTERS,), data.get(DEAD_LETTERS))
    named: dict[Loc, Any] = {("sinks", name): output.sink for name, output in sinks.items()}
    _check_targets(document, {**named, (DEAD_LETTERS,): dead} if dead is not None else named)
    rules = tuple(_rules(document, shape.quality, DEAD_LETTERS in data)) if shape else ()
    process = _process(document, shape) if shape else None
    document.check()
    assert shape is not None
    try:
        return Pipeline(
            name=shape.pipeline,
            source=source,
            sinks=sinks,
            process=process,
            record_time=cover(shape.record_time, data),
            quality=rules,
            dead_letters=dead,
            state=cover(shape.state, data),
            spool=cover(shape.spool, data),
            checkpoint=cover(shape.checkpoint, data),
            slots=shape.slots,
            trigger=Trigger(shape.trigger),
            spark=cover({key: _setting(value) for key, value in shape.spark.items()}, data),
        )
    except ConfigError as error:
        _report_error(document, (), error)
        document.check()
        raise


def _validated(document: Document, data: dict[str, Any]) -> PipelineShape | None:
    """Validated as JSON: strict, and yet a list may become a tuple and text an enum member."""
    if document.problems and not data:
        return None
    if isinstance(name := data.get("pipeline"), str):
        _checked(document, ("pipeline",), check_name, "pipeline", name)
    try:
        return PipelineShape.model_validate_json(json.dumps(data))
    except ValidationError as error:
        mistake.report(document, error)
        return None


def _outputs(document: Document, data: Any) -> dict[str, Output]:
    outputs: dict[str, Output] = {}
    for name, given in data.items() if isinstance(data, dict) else ():
        loc: Loc = ("sinks", name)
        _checked(document, loc, check_name, "sink", name, at_key=True)
        if name == DEAD_LETTERS:
            document.report(loc, "no sink may have this name", "`dead_letters` is a field of the pipeline", at_key=True)
        sink = _made(document, Role.SINK, loc, given, _BESIDE)
        if not isinstance(given, dict):
            continue
        beside = {key: given[key] for key in _BESIDE if key in given}
        try:
            shape = OutputShape.model_validate_json(json.dumps(beside))
        except ValidationError as error:
            mistake.report(document, error, loc)
            continue
        if sink is not None:
            outputs[name] = Output(sink, cover(tuple(shape.select or ()), given), cover(shape.where, given))
    return outputs


def _made(document: Document, role: Role, loc: Loc, data: Any, beside: Collection[str] = ()) -> Any:
    """The source or sink that `{kind: options}` stands for. None if something is wrong, or not there at all."""
    if not isinstance(data, dict):
        return None
    kinds = [key for key in data if key not in beside]
    found = [kind for kind in kinds if kind in registry.names(role)]
    if not kinds:
        example = "`files: {path: data}`" if role is Role.SOURCE else "`parquet: {path: out}`"
        document.report(loc, f"expected a kind of {role.value} with its options, such as {example}")
    elif not found and len(kinds) == 1:
        _checked(document, (*loc, kinds[0]), registry.find, role, kinds[0], at_key=True)
    for kind in kinds if found or len(kinds) > 1 else ():
        if kind not in found:
            mistake.report_unknown(document, (*loc, kind), [*beside, *registry.names(role)])
    for kind in found[1:]:
        document.report((*loc, kind), f"a {role.value} is of one kind, and this one is `{found[0]}`", at_key=True)
    return _instance(document, role, (*loc, found[0]), data[found[0]]) if found else None


def _instance(document: Document, role: Role, loc: Loc, options: Any) -> Any:
    """Make the dataclass from its options. Pydantic reads its annotations; unknown options are refused here."""
    given = {} if options is None else options
    if not isinstance(given, dict):
        document.report(loc, "expected a mapping of options")
        return None
    kind = _checked(document, loc, registry.find, role, str(loc[-1]), at_key=True)
    if kind is None:
        return None
    known = [field.name for field in fields(kind) if field.init]
    unknown = [name for name in given if name not in known]
    for name in unknown:
        mistake.report_unknown(document, (*loc, name), known)
    options = {name: value for name, value in given.items() if name not in unknown}
    try:
        made = _checked(document, loc, _from_options, kind, options)
    except ValidationError as error:
        mistake.report(document, error, loc)
        return None
    return made


def _from_options(kind: type[Any], options: dict[str, Any]) -> Any:
    made = TypeAdapter(kind).validate_json(json.dumps(options), strict=True)
    for field in fields(made) if references(options) else ():
        # Not through `replace`: making the sink once more would make plain strings once more.
        object.__setattr__(made, field.name, cover(getattr(made, field.name), options))
    return made


def _rules(document: Document, shapes: list[RuleShape], has_dead_letters: bool) -> Iterable[Rule]:
    default = OnFail.DEAD_LETTER if has_dead_letters else OnFail.FAIL
    for number, shape in enumerate(shapes):
        loc: Loc = ("quality", number)
        given = [name for name in RULES if getattr(shape, name) is not None]
        if len(given) != 1:
            listed = ", ".join(f"`{name}`" for name in RULES)
            document.report(loc, f"a rule is one of {listed}, and this has {', '.join(given) or 'none of them'}")
            continue
        on_fail = OnFail(shape.on_fail) if shape.on_fail else default
        if on_fail is OnFail.DEAD_LETTER and not has_dead_letters:
            document.report(
                (*loc, "on_fail"),
                "rows that break this rule are dead letters, and there is no `dead_letters` sink",
                "add `dead_letters: {parquet: {path: out/dead}}`, or use `on_fail: drop` or `on_fail: fail`",
            )
        made = _checked(document, (*loc, given[0]), _made_rules, shape, on_fail)
        yield from (_hidden(document, rule) for rule in made or ())


def _made_rules(shape: RuleShape, on_fail: OnFail) -> list[Rule]:
    if shape.not_null:
        return [Rule.not_null(column, on_fail) for column in shape.not_null]
    if shape.range:
        low, high = shape.range.min, shape.range.max
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            raise ConfigError(f"min {low} is above max {high}, so every row would break this rule")
        return [Rule.range(shape.range.column, low, high, on_fail)]
    if shape.regex:
        return [Rule.regex(shape.regex.column, shape.regex.pattern, on_fail)]
    if shape.one_of:
        return [Rule.one_of(shape.one_of.column, shape.one_of.values, on_fail)]
    if shape.unique:
        return [Rule.unique(*shape.unique, on_fail=on_fail)]
    return [Rule.expr(str(shape.expr), on_fail)]


def _hidden(document: Document, rule: Rule) -> Rule:
    """A rule's words stand in dead letters and errors, and its condition in reprs: references stay references there."""
    given = document.data["quality"]
    return replace(rule, words=hider(given)(rule.words), condition=cover(rule.condition, given))


def _process(document: Document, shape: PipelineShape) -> str | Callable[[DataFrame], DataFrame] | None:
    process = shape.process
    if process is None:
        return None
    if (process.sql is None) == (process.python is None):
        document.report(("process",), "expected SQL, or one of `sql` and `python`")
        return None
    if process.python is not None:
        function = PythonFunction.parse(process.python)
        _checked(document, ("process", "python"), function.check)
        return function
    sql: str = cover(process.sql, document.data)
    return sql


def _check_targets(document: Document, sinks: Mapping[Loc, Any]) -> None:
    """The pipeline checks this too; here it is known where the second one stands."""
    seen: dict[str, Loc] = {}
    for loc, sink in sinks.items():
        first = seen.setdefault(sink.target(), loc)
        if first != loc:
            target = hider(document.data)(sink.target())
            document.report(
                loc, f"sink `{first[-1]}` writes to {target} too", "give each sink an output of its own", at_key=True
            )


def _checked(document: Document, loc: Loc, make: Callable[..., Any], *given: Any, at_key: bool = False) -> Any:
    """What `make` returns, or None after its `ConfigError` was reported at a place."""
    try:
        return make(*given)
    except ConfigError as error:
        _report_error(document, loc, error, at_key)
        return None


def _report_error(document: Document, loc: Loc, error: ConfigError, at_key: bool = False) -> None:
    hide = hider(document.data)
    document.report(loc, hide(error.message), hide(error.hint), at_key)


def _setting(value: Any) -> str:
    """Spark takes every setting as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
