"""An epoch that has to run again although sinks hold some of it: only what is missing is added, and only if it fits.

It happens when a sink has lost a record after the decision, or when the decision was lost with the state store. What a
sink already holds must be what the new run made, slot by slot or as a whole; if not, the pipeline is not deterministic
and a person has to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pakka.contract.sink import Entry
from pakka.contract.state import Decision
from pakka.errors import RegressError
from pakka.model.epoch import Epoch
from pakka.model.prepared import Prepared, totals

Slots = Mapping[int, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Holding:
    """What one sink holds of the epoch: rows and checksum, and by slot if it holds only some slots."""

    rows: int
    checksum: str
    slots: Slots | None = None


def after_loss(
    decision: Decision, lost: Mapping[str, Sequence[Prepared]], held: Mapping[str, Entry], records: Sequence[Prepared]
) -> tuple[Prepared, ...]:
    """The decision's records with those that a sink has lost replaced by new ones.

    `held` is what sinks hold of the epoch. A decision that was itself made beside held slots names only the others.
    """
    gone = {p.slot for ps in lost.values() for p in ps}
    kept = tuple(p for p in decision.prepared if p.slot not in gone)
    holdings = {}
    for sink, (rows, checksum) in totals(kept).items():
        slots = {p.slot.number: (p.rows, p.checksum) for p in kept if p.slot.sink == sink} if sink in lost else None
        holdings[sink] = Holding(rows, checksum, slots)
    held = {s: e for s, e in held.items() if e.epoch == decision.epoch and e.slots is not None}
    for sink, entry in held.items():
        named = holdings[sink].slots if sink in holdings else None
        holdings[sink] = Holding(entry.rows, entry.checksum, {**(named or {}), **(entry.slots or {})})
    _compare(decision.epoch, holdings, records, lacking=min(lost))
    # The new run may have more slots than the old one. What a sink keeps was just seen to be the same rows under the same numbers, so
    # all others hold what it lacks.
    there = {(p.slot.sink, p.slot.number) for p in kept}
    made = (p for p in records if p.slot.sink in lost and (p.slot.sink, p.slot.number) not in there)
    return kept + tuple(p for p in made if p.slot.sink not in held or not _is_in(held[p.slot.sink], p))


def beside_held(epoch: Epoch, held: Mapping[str, Entry], records: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """The new records without those that sinks already hold of this epoch, though no decision for it is left."""
    for sink, entry in held.items():
        if entry.epoch.origin != epoch.origin:
            raise RegressError(
                f"pipeline `{epoch.pipeline}`: sink `{sink}` holds an epoch {epoch.number} of {entry.epoch.origin}, and Spark "
                f"runs it with {epoch.origin}; its rows are not the same; nothing was changed",
                hint="restore the state store and the checkpoint that belong to this sink",
            )
    lacking = min({p.slot.sink for p in records} - set(held), default=min(held))
    _compare(epoch, {s: Holding(e.rows, e.checksum, e.slots) for s, e in held.items()}, records, lacking)
    return tuple(p for p in records if p.slot.sink not in held or not _is_in(held[p.slot.sink], p))


def _is_in(entry: Entry, record: Prepared) -> bool:
    return entry.slots is None or record.slot.number in entry.slots


def _compare(epoch: Epoch, holdings: Mapping[str, Holding], records: Sequence[Prepared], lacking: str) -> None:
    made = totals(records)
    for sink, holding in holdings.items():
        slots = {p.slot.number: (p.rows, p.checksum) for p in records if p.slot.sink == sink}
        if holding.slots is None:
            is_same = made[sink] == (holding.rows, holding.checksum)
        else:
            is_same = all(slots.get(number) == slot for number, slot in holding.slots.items())
        if not is_same:
            raise RegressError(
                f"pipeline `{epoch.pipeline}`: epoch {epoch.number} had to run again, and sink `{sink}` holds {holding.rows} "
                f"rows of it (checksum {holding.checksum}) where the new run made {made[sink][0]} (checksum {made[sink][1]}); "
                "the epoch is only partly visible and nothing was added",
                hint="the pipeline is not deterministic, so a person must decide which rows are right, and add them; then accept "
                f"the sink that lacks them as it is with `pakka reset {epoch.pipeline} --sink {lacking}`",
            )
