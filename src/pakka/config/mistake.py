"""From what pydantic found to what a person should read: expected, got, and the nearest right name."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ValidationError

from pakka.config.document import Document
from pakka.config.environment import EnvText, hider
from pakka.config.problem import Loc
from pakka.config.shape import OneOf, PipelineShape, Process, Range, Regex, RuleShape
from pakka.model.id import nearest

_EXPECTED = {
    "string_type": "text",
    "string_too_short": "some text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
}
_FORMS = {
    "state": "`sqlite:///PATH` or `postgresql://...`",
    "python": "`module:function`",
}
_SHAPES: dict[Loc, type[BaseModel]] = {
    (): PipelineShape,
    ("process",): Process,
    ("quality", 0): RuleShape,
    ("quality", 0, "range"): Range,
    ("quality", 0, "regex"): Regex,
    ("quality", 0, "one_of"): OneOf,
}
_TEXT_CHARS_MAX = 60
# How pydantic calls the forms of an option that may have several.
_FORM = re.compile(r"(str|int|float|bool)$|(tuple|list|dict)\[")


def report(document: Document, error: ValidationError, prefix: Loc = ()) -> None:
    """Report everything pydantic found, each at its place in the file."""
    choices: dict[Loc, list[str]] = {}
    for found in error.errors(include_url=False, include_input=False):
        loc, is_choice = _place(document, (*prefix, *found["loc"]))
        kind, context = found["type"], found.get("ctx", {})
        if is_choice and kind in _EXPECTED:
            choices.setdefault(loc, []).append(_EXPECTED[kind])
            continue
        if kind == "missing":
            _report_missing(document, loc)
        elif kind == "extra_forbidden":
            report_unknown(document, loc, _fields(loc[:-1]))
        elif kind == "literal_error":
            names = re.findall(r"'([^']*)'", context["expected"])
            value = _at(document, loc)
            advice = near(value, names) if isinstance(value, str) else ""
            document.report(loc, f"expected {_either(names)}, got {_shown(value)}", advice)
        else:
            _report_wrong(document, loc, kind, context, found["msg"])
    for loc, expected in choices.items():
        # Where one of the forms fits, only what does not fit inside it is told.
        if not any(len(other) > len(loc) and other[: len(loc)] == loc for other in choices):
            words = " or ".join(dict.fromkeys(expected))
            document.report(loc, f"expected {words}, got {_shown(_at(document, loc))}")


def report_unknown(document: Document, loc: Loc, known: Collection[str]) -> None:
    """A field that does not exist."""
    document.report(loc, "there is no such field", nearest(str(loc[-1]), known), at_key=True)


def near(name: str, known: Collection[str]) -> str:
    """The nearest right name, if there is one near."""
    found = nearest(name, known)
    return found if found.startswith("did you mean") else ""


def _place(document: Document, loc: Loc) -> tuple[Loc, bool]:
    """The place of a mistake in the file, and whether it is one of several forms that an option may have: pydantic tries every
    form, and names it in the place as if it were a field.
    """
    value: Any = document.data
    place: list[str | int] = []
    is_choice = False
    for step in loc:
        is_there = step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
        if not is_there and isinstance(step, str) and _FORM.match(step):
            is_choice = True
            continue
        place.append(step)
        value = value[step] if is_there else None
    return tuple(place), is_choice


def _report_missing(document: Document, loc: Loc) -> None:
    if loc in document.keys:
        document.report(loc, "this field is empty", at_key=True)
    else:
        document.report(loc[:-1], f"the field `{loc[-1]}` is missing")


def _report_wrong(document: Document, loc: Loc, kind: str, context: dict[str, Any], message: str) -> None:
    value = _at(document, loc)
    expected = _EXPECTED.get(kind)
    if kind == "expected":
        expected = context["expected"]
    elif kind == "string_pattern_mismatch":
        expected = _FORMS.get(str(loc[-1]))
    elif kind == "greater_than_equal":
        expected = f"{context['ge']} or more"
    elif kind == "greater_than":
        expected = f"more than {context['gt']}"
    elif kind == "too_short":
        document.report(loc, "at least one is needed")
        return
    if expected is None:
        # A sink's or source's own check. Its words may hold the value, which may come from the environment.
        document.report(loc, hider(document.data)(message.removeprefix("Value error, ")))
        return
    is_number = isinstance(value, int | float)
    document.report(
        loc, f"expected {expected}, got {_shown(value)}", "put it in quotes" if expected == "text" and is_number else ""
    )


def _at(document: Document, loc: Loc) -> Any:
    value: Any = document.data
    for step in loc:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            # A single column name stands for a list of one.
            return value
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        text = value.shown if isinstance(value, EnvText) else value
        return f"`{text}`" if len(text) <= _TEXT_CHARS_MAX else f"`{text[:_TEXT_CHARS_MAX]}...`"
    return "a list" if isinstance(value, list) else "a mapping"


def _either(names: list[str]) -> str:
    quoted = [f"`{n}`" for n in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _fields(loc: Loc) -> Collection[str]:
    shape = _SHAPES.get(tuple(0 if isinstance(step, int) else step for step in loc))
    return shape.model_fields if shape else ()
