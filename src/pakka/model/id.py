"""Who is who: the pipeline, the sink's place in it, and one attempt at one slot of one epoch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pakka.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ID = re.compile(r"pakka\.([^.]+)\.([^.]+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)")


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may be the name of a pipeline or a sink.

    Names end in paths, SQL values and transaction ids of servers with limits of their own, and a pipeline's name is its
    identity for ever. So the alphabet is small, and a name outside it is refused rather than rewritten.
    """
    if _NAME.fullmatch(name):
        return name
    likely = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:63] or "refunds"
    raise ConfigError(
        f"{kind} name {name!r} is not allowed: letters, digits, `_` and `-`, at most 63, beginning with a letter or digit",
        hint=f"`{likely}` would do",
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A half sentence for error messages: the nearest right name, or all of them if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return "there is " + ", ".join(f"`{n}`" for n in names) if names else "there is none"


@dataclass(frozen=True, slots=True)
class Binding:
    """A sink's place in a pipeline, and the directory it may spool to."""

    pipeline: str
    sink: str
    spool: str

    def __str__(self) -> str:
        return f"sink `{self.pipeline}.{self.sink}`"


@dataclass(frozen=True, slots=True)
class Slot:
    """One attempt at one slot of one epoch, for one sink. Its string form is the id that servers see.

    The fence is part of it because Spark repeats batch, partition and attempt numbers after a driver crash.
    """

    pipeline: str
    sink: str
    epoch: int
    fence: int
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"pakka.{self.pipeline}.{self.sink}.{self.epoch}.{self.fence}.{self.number}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Slot | None:
        """The slot an id names, or None if it is not an id of ours."""
        match = _ID.fullmatch(text)
        if match is None:
            return None
        pipeline, sink, *numbers = match.groups()
        return cls(pipeline, sink, *map(int, numbers))
