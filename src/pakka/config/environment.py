"""`${env:NAME}`: text that comes from the environment, and stays out of sight.

A value taken from the environment is a string like any other, except that its repr is what the file says. It pickles as
a plain string, so that executors need nothing from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import quote, unquote

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")

# A shorter value is no secret, and hiding every "1" or "on" would make messages unreadable.
_HIDDEN_CHARS_MIN = 4


class EnvText(str):
    """A string with values from the environment in it. `shown` is the text as the file has it."""

    shown: str
    values: Mapping[str, str]
    """What came from the environment, by the reference that stands for it."""

    def __new__(cls, text: str, shown: str, values: Mapping[str, str]) -> EnvText:
        made = super().__new__(cls, text)
        made.shown = shown
        made.values = dict(values)
        return made

    def __repr__(self) -> str:
        return repr(self.shown)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


def resolve(text: str, environ: Mapping[str, str]) -> str:
    """The text with its references replaced. A name that is not set raises `KeyError` with that name."""
    values = {match.group(0): environ[match.group(1)] for match in REFERENCE.finditer(text)}
    if not values:
        return text
    return EnvText(REFERENCE.sub(lambda match: values[match.group(0)], text), text, values)


def hider(value: object) -> Callable[[str], str]:
    """A function that puts references back in place of the values that `value` took from the environment."""
    known = {form: reference for reference, text in references(value).items() for form in _forms(text)}
    hidden = sorted((text for text in known if len(text) >= _HIDDEN_CHARS_MIN), key=len, reverse=True)
    if not hidden:
        return lambda text: text
    pattern = re.compile("|".join(re.escape(text) for text in hidden))
    return lambda text: pattern.sub(lambda match: known[match.group(0)], text)


def _forms(text: str) -> set[str]:
    """The shapes in which a value may turn up: as it is, in a repr, in JSON, and in or out of a URL."""
    return {text, repr(text)[1:-1], json.dumps(text)[1:-1], quote(text, safe=""), unquote(text)}


def references(value: object) -> dict[str, str]:
    """Every reference in `value`, however deep, and the text that stands for it."""
    if isinstance(value, EnvText):
        return dict(value.values)
    items: Iterable[object] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, list | tuple):
        items = value
    elif is_dataclass(value):
        items = [getattr(value, field.name) for field in fields(value)]
    return {reference: text for item in items for reference, text in references(item).items()}


def cover(value: Any, original: object) -> Any:
    """`value` with every string in it that holds what `original` took from the environment turned into an `EnvText`.

    Validation makes plain strings, and a sink may make a path absolute: what counts is what a string holds.
    """
    hide = hider(original)
    if isinstance(value, str):
        shown = hide(value)
        known = references(original).items()
        return value if shown == value else EnvText(value, shown, {r: text for r, text in known if r in shown})
    if isinstance(value, Mapping):
        return {key: cover(item, original) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(cover(item, original) for item in value)
    return value
