"""What a run tells while it runs: the live line, `--json`, metrics and tests listen to the same events.

They come in the order in which things happen, but those of several sinks come from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pakka.model.latency import Latency


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
    undone: Mapping[str, int] = field(default_factory=dict)
    """The same by sink."""


@dataclass(frozen=True, slots=True)
class Retried:
    """A part of an epoch is not settled yet, and is asked again after a wait."""

    pipeline: str
    epoch: int
    sink: str | None
    """The sink that has not committed; None: the state store, which has not taken the decision."""
    is_unknown: bool
    """No answer came, so that it may be done or not. False: it is known to be not done."""
    reason: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class Committed:
    """A decided epoch is visible in one sink; in the others it may not be yet."""

    pipeline: str
    epoch: int
    sink: str
    rows: int
    tries: int
    was_unknown: bool
    """An answer was lost on the way, and asking again has settled it."""
    commit_s: float


@dataclass(frozen=True, slots=True)
class Aborted:
    """An epoch was aborted before its decision. Nothing of it is visible, and it runs again with the same rows."""

    pipeline: str
    epoch: int
    reason: str
    undone: Mapping[str, int]
    """Prepared records that are gone now, by sink."""


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
    prepare_s: float = 0.0
    decide_s: float = 0.0
    swept: Mapping[str, int] = field(default_factory=dict)
    """Records by sink of attempts that failed or lost a race, and that are gone now."""
    latency: Latency | None = None
    """From the record time of the rows to the commit; None if the rows have none."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something about the source or a sink that nobody has to act on at once, and that should not pass in silence."""

    pipeline: str
    about: str
    """What was noticed, of a source: `partitions`, `topics`, `stalled`, `unseen`, `unnoted`; of a sink: `aborted`, `expired`, `gone`, `mended`, `open`, `unsettled`,
    `weak`."""
    message: str
    hint: str = ""
    sink: str = ""
    """The sink that it is about, if it says so."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is over, between two epochs."""

    pipeline: str
    epochs: int
    rows_in: int
    reason: str
    """`done`: the source has no more rows; `asked`: somebody asked the run to stop."""


Event = Started | Retried | Committed | Aborted | Delivered | Noticed | Stopped
Listen = Callable[[Event], None]


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON, with its kind."""
    data = {name: getattr(event, name) for name in event.__dataclass_fields__}
    told = {name: value.to_json() if isinstance(value, Latency) else value for name, value in data.items()}
    return {"event": type(event).__name__.lower(), **told}
