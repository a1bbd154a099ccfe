"""The statements both stores speak, and the way between rows and values.

Parameters are written `?`; a store whose driver wants another mark puts it in. Every statement but the list of names goes
by primary key, within a range that does not grow with history.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NamedTuple

from pakka.contract.state import Decision, EpochRow, Owner, PipelineState
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.phase import Phase
from pakka.model.prepared import Prepared, totals

Row = tuple[Any, ...]

NAMES = "SELECT name FROM pakka_pipeline"
PIPELINE = "SELECT name, fence, owner, committed, origin, base, is_reset, totals FROM pakka_pipeline WHERE name = ?"
ADD_PIPELINE = """
    INSERT INTO pakka_pipeline (name, fence, committed, base, is_reset, totals) VALUES (?, 0, -1, 0, 0, ?)
    ON CONFLICT (name) DO NOTHING
"""
TAKE_FENCE = "UPDATE pakka_pipeline SET fence = ?, owner = ? WHERE name = ?"
ADVANCE = "UPDATE pakka_pipeline SET committed = ?, origin = ?, is_reset = ?, totals = ? WHERE name = ?"
REBASE = "UPDATE pakka_pipeline SET base = ?, is_reset = ? WHERE name = ?"
FORGET_PIPELINE = "DELETE FROM pakka_pipeline WHERE name = ?"

OPEN = """
    SELECT number, fence, origin, counts, sinks, prepared, decided_at FROM pakka_epoch WHERE pipeline = ? AND number > ?
    ORDER BY number
"""
OPEN_COUNTS = "SELECT number, origin, counts FROM pakka_epoch WHERE pipeline = ? AND number > ? ORDER BY number"
DECIDED = "SELECT fence, origin, counts, sinks, prepared FROM pakka_epoch WHERE pipeline = ? AND number = ?"
ADD_EPOCH = """
    INSERT INTO pakka_epoch (pipeline, number, fence, origin, counts, sinks, prepared, decided_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
AMEND = """
    UPDATE pakka_epoch SET fence = ?, counts = ?, sinks = ?, prepared = ?, decided_at = ?
    WHERE pipeline = ? AND number = ?
"""
DROP_PREPARED = "UPDATE pakka_epoch SET prepared = NULL WHERE pipeline = ? AND number > ? AND number <= ?"
# The lower end matters: without it PostgreSQL walks over what earlier deletes left in the index, until a vacuum.
PRUNE = "DELETE FROM pakka_epoch WHERE pipeline = ? AND number > ? AND number <= ?"
FORGET_EPOCHS = "DELETE FROM pakka_epoch WHERE pipeline = ?"

_WINDOW = """
    SELECT e.number, e.fence, e.origin, e.counts, e.sinks, e.decided_at, p.committed
    FROM pakka_epoch e JOIN pakka_pipeline p ON p.name = e.pipeline WHERE e.pipeline = ?
"""
WINDOW = _WINDOW + " ORDER BY e.number DESC LIMIT ?"
FIND = _WINDOW + " AND e.number = ?"


class OpenCount(NamedTuple):
    """What settling needs of an open epoch, without its records."""

    number: int
    origin: Origin
    counts: Count


def to_json(value: object) -> str:
    """One text for one value, so that two decisions can be compared; ASCII, so that no server's encoding matters."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def epoch_params(decision: Decision) -> Row:
    """The parameters of ADD_EPOCH."""
    return (decision.epoch.pipeline, decision.epoch.number, *_identity(decision), decision.at)


def amend_params(decision: Decision) -> Row:
    """The parameters of AMEND: all but the origin, which an epoch keeps."""
    fence, _, counts, sinks, prepared = _identity(decision)
    return (fence, counts, sinks, prepared, decision.at, decision.epoch.pipeline, decision.epoch.number)


def is_same(decision: Decision, row: Row) -> bool:
    """Is a row of DECIDED this very decision? A settled one no longer has its records; their totals are compared."""
    fence, origin, counts, sinks, prepared = _identity(decision)
    return row[:4] == (fence, origin, counts, sinks) and row[4] in (None, prepared)


def origin_json(origin: Origin) -> str:
    return to_json(origin.to_json())


def owner_json(owner: Owner) -> str:
    return to_json(asdict(owner))


def count_json(count: Count) -> str:
    return to_json(count.to_json())


def pipeline_of(row: Row) -> PipelineState:
    """A row of PIPELINE. Its open decisions are read apart."""
    name, fence, owner, committed, origin, base, is_reset, counts = row
    return PipelineState(
        name,
        fence,
        Owner(**json.loads(owner)) if owner else None,
        committed,
        _origin_of(origin) if origin else None,
        base,
        bool(is_reset),
        _count_of(counts),
    )


def decision_of(pipeline: str, row: Row) -> Decision:
    """A row of OPEN."""
    number, fence, origin, counts, sinks, prepared, at = row
    records = tuple(Prepared.from_json(p) for p in json.loads(prepared))
    made = _sinks_of(sinks)
    # Mostly its records are all that was made.
    made = {} if made == totals(records) else made
    return Decision(Epoch(pipeline, number, _origin_of(origin)), fence, records, _count_of(counts), at, made)


def open_count_of(row: Row) -> OpenCount:
    """A row of OPEN_COUNTS."""
    number, origin, counts = row
    return OpenCount(number, _origin_of(origin), _count_of(counts))


def epoch_row_of(pipeline: str, row: Row) -> EpochRow:
    """A row of WINDOW or FIND."""
    number, fence, origin, counts, sinks, at, committed = row
    return EpochRow(
        Epoch(pipeline, number, _origin_of(origin)),
        Phase.COMMITTED if number <= committed else Phase.DECIDED,
        fence,
        _count_of(counts),
        _sinks_of(sinks),
        at,
    )


def _sinks_of(text: str) -> dict[str, tuple[int, str]]:
    return {sink: (rows, checksum) for sink, (rows, checksum) in json.loads(text).items()}


def _identity(decision: Decision) -> Row:
    """What makes a decision this one and no other, as stored: fence, origin, counts, totals by sink, records."""
    return (
        decision.fence,
        origin_json(decision.epoch.origin),
        count_json(decision.count),
        to_json(decision.sinks),
        to_json([p.to_json() for p in decision.prepared]),
    )


def _origin_of(text: str) -> Origin:
    return Origin(**json.loads(text))


def _count_of(text: str) -> Count:
    return Count(**json.loads(text))
