"""From the words of a user to the sink that is to be audited.

- `refunds.yaml#refunds`: a sink of a pipeline file;
- `sqlite:///x.db`, `parquet:out/refunds`, `postgresql://user@host/db`: a URL whose scheme is the name of a sink, read by that sink's `from_url`;
- `out/refunds`: a directory, taken for Parquet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from pakka import registry
from pakka.contract.audit import Addressable
from pakka.contract.sink import Sink
from pakka.errors import UsageError
from pakka.model.id import nearest
from pakka.registry import Role

if TYPE_CHECKING:
    from pakka.contract.pipeline import Pipeline

_URL = re.compile(r"([a-z][a-z0-9_+.-]*):.*", re.DOTALL)
_DIRECTORY = "parquet"
_SCHEMES = {"postgresql": "postgres", "mariadb": "mysql"}
"""Schemes that people know, and the names of the sinks they mean."""


@dataclass(frozen=True, slots=True)
class Target:
    """A sink, the name of its kind, and the spool and the slots of its pipeline, if it is in one."""

    sink: Sink
    kind: str
    spool: str | None = None
    slots: int | None = None


def is_pipeline_file(text: str) -> bool:
    return text.partition("#")[0].endswith((".yaml", ".yml"))


def kind_of(text: str) -> str:
    """The kind of sink that a URL or a directory means."""
    match = _URL.fullmatch(text)
    return _SCHEMES.get(match[1], match[1]) if match else _DIRECTORY


def find(text: str, load: Callable[[str], Pipeline]) -> Target:
    """The sink that `text` means. Nothing is opened yet."""
    if is_pipeline_file(text):
        return _of_pipeline(text, load)
    kind = kind_of(text)
    url = text if _URL.fullmatch(text) else f"{_DIRECTORY}:{text}"
    made = registry.find(Role.SINK, kind)
    from_url = getattr(made, Addressable.from_url.__name__, None)
    if from_url is not None:
        sink: Sink = from_url(url)
    elif all(f.default is not MISSING or f.default_factory is not MISSING for f in fields(made)):
        sink = made()
    else:
        raise UsageError(
            f"a sink `{kind}` has no URL",
            hint="name it as a sink of a pipeline file, `refunds.yaml#refunds`, or give it a classmethod `from_url`",
        )
    _check_path(sink, kind)
    return Target(sink, kind)


def _of_pipeline(text: str, load: Callable[[str], Pipeline]) -> Target:
    file, _, name = text.partition("#")
    pipeline = load(file)
    outputs = pipeline.outputs
    if not name and len(outputs) == 1:
        (name,) = outputs
    if name not in outputs:
        what = f"`{file}` has no sink `{name}`" if name else f"`{file}` has several sinks"
        example = next(iter(outputs))
        hint = nearest(name, outputs) if name else f"name one of them: `{file}#{example}`; {nearest('', outputs)}"
        raise UsageError(what, hint=hint)
    sink = outputs[name].sink
    return Target(sink, type(sink).__name__, pipeline.spool_path, pipeline.slots)


def _check_path(sink: Sink, kind: str) -> None:
    """A path that was typed and is not there is more likely a mistake than a wish."""
    path = getattr(sink, "path", None)
    if not isinstance(path, str):
        return
    if not Path(path).exists():
        raise UsageError(
            f"there is nothing at {path}",
            hint="make it first, or audit the sink of a pipeline file, which need not have been run: `refunds.yaml#refunds`",
        )
    if kind == _DIRECTORY and Path(path).is_file():
        raise UsageError(
            f"{path} is a file, and a sink `{kind}` is a directory", hint=f"for a database: `sqlite:///{path}`"
        )
