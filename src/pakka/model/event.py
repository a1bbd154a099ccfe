"""What a run tells while it runs: the live line, `--json` and tests listen to the same events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Started:
    """The driver owns the pipeline and has recovered it."""

    pipeline: str
    fence: int
    committed: int
    """The newest epoch that was already committed; -1 for none."""
    finished: int
    """Epochs of an earlier run that were decided, and are committed now."""
    aborted: int
    """Prepared records of an earlier run that nobody decided, and that are gone now."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An epoch is in every sink."""

    pipeline: str
    epoch: int
    is_new: bool
    """False: an earlier run had delivered it, and only Spark had to be told."""
    rows_in: int
    rows_out: Mapping[str, int]
    """Rows by sink; the dead letters are one of them."""
    dead: int
    dropped: int
    epoch_s: float
    commit_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is over, between two epochs."""

    pipeline: str
    epochs: int
    rows_in: int
    reason: str
    """`done`: the source has no more rows; `asked`: somebody asked the run to stop."""


Event = Started | Delivered | Stopped


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON, with its kind."""
    data = {name: getattr(event, name) for name in event.__dataclass_fields__}
    return {"event": type(event).__name__.lower(), **data}
