"""The JSON Schema of a pipeline file, so that an editor completes and checks it: from the very classes that read it."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from pakka import registry
from pakka.config.shape import RULES, OutputShape, PipelineShape
from pakka.errors import ConfigError
from pakka.registry import Role

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema, with every source and sink there is, built in or from an installed package."""
    schema = PipelineShape.model_json_schema()
    defs: dict[str, Any] = schema["$defs"]
    beside = OutputShape.model_json_schema()["properties"]
    sources = {name: _options(Role.SOURCE, name, defs) for name in registry.names(Role.SOURCE)}
    sinks = {name: _options(Role.SINK, name, defs) for name in registry.names(Role.SINK)}
    properties = schema["properties"]
    properties["source"] |= _one_kind(sources, {})
    properties["sinks"]["additionalProperties"] = _one_kind(sinks, beside)
    properties["dead_letters"]["anyOf"][0] = _one_kind(sinks, {})
    properties["process"]["anyOf"].insert(0, {"type": "string", "minLength": 1})
    defs["RuleShape"]["oneOf"] = [{"required": [name]} for name in RULES]
    _untitle(schema)
    return {"$schema": _DRAFT, "title": "pakka pipeline", **schema}


def _one_kind(kinds: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**kinds, **beside},
        "additionalProperties": False,
        "oneOf": [{"required": [name]} for name in kinds],
    }


def _options(role: Role, name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """The options of one kind. One whose driver library is missing still completes by name."""
    try:
        kind = registry.find(role, name)
    except ConfigError as error:
        return {"type": ["object", "null"], "description": f"{error.message}; {error.hint}"}
    schema = TypeAdapter(kind).json_schema(ref_template="#/$defs/{model}")
    defs.update(schema.pop("$defs", {}))
    for field in fields(kind):
        if not field.init:
            del schema["properties"][field.name]
    told = _docstrings(kind)
    for option, entry in schema["properties"].items():
        if option in told:
            entry["description"] = told[option]
    is_bare = not schema.get("required")
    return {**schema, "type": ["object", "null"] if is_bare else "object", "additionalProperties": False}


def _docstrings(kind: type) -> dict[str, str]:
    """The text under each field of a dataclass, as the source has it. Inherited fields come from their own class."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):
            continue
        if isinstance(body, ast.ClassDef):
            found |= _texts(body.body)
    return found


def _texts(body: Sequence[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(told))):
                found[name] = " ".join(told.split())
    return found


def _untitle(schema: Any) -> None:
    """Pydantic titles every field by its own name, which tells nobody anything."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for value in schema.values():
            _untitle(value)
    elif isinstance(schema, list):
        for value in schema:
            _untitle(value)
