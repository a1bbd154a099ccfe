"""An epoch whose slots become visible one by one: what a driver knows of it, and what the ledger keeps of it, in part and whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pakka.model.epoch import Epoch
from pakka.model.id import Slot
from pakka.model.prepared import add_checksums
from pakka.sinks._kafka_ledger import Page
from pakka.sinks._kafka_slots import Found
from pakka.sinks._two_phase import Share


@dataclass
class Known:
    """An epoch in part, as this driver knows it. One for each epoch: several threads add to it."""

    epoch: int
    shares: dict[int, Share] = field(default_factory=dict)
    is_sure: bool = True
    """False: more may be visible, and the slots topic has to be asked."""


class UntoldError(Exception):
    """Nobody can tell which slots are visible: the slots topic is not the one that the epoch in part was begun with, or the ledger is not, or
    what has ended is forgotten.
    """


def shares_of(page: Page, found: Found, slots_topic: str) -> dict[int, Share]:
    """What is visible of the epoch that the ledger has in part."""
    begun_with = json.loads(page.entry).get("slots_topic") if page.entry else None
    if begun_with and found.topic != begun_with:
        raise UntoldError(
            f"slots topic `{slots_topic}` {'was made anew' if found.topic else 'is gone'} since epoch {page.epoch} was begun, and nobody else "
            "can tell which of its slots are visible"
        )
    lost = found.lost_of_epoch(page.epoch)
    if lost:
        # What was committed without anybody knowing it any more would be sent again, and doubled.
        raise UntoldError(lost_slots(lost, slots_topic))
    return found.of_epoch(page.epoch)


def lost_slots(lost: Sequence[Slot], slots_topic: str) -> str:
    numbers = ", ".join(str(slot.number) for slot in lost)
    return (
        f"slots topic `{slots_topic}` has slot {numbers} of epoch {lost[0].epoch} in a transaction that is open there, and that no coordinator knows "
        "any more: its id has expired, and nobody else can tell whether that slot is visible"
    )


def check_life(page: Page, found: Found, slots_topic: str) -> None:
    """No slot is visible before its epoch is in the ledger, and epochs only rise. Slots of another life of the pipeline would be taken for
    the new ones of the same number; and where it is the ledger that is older, the new ones would double them.
    """
    ahead = [each.slot.epoch for each in found.committed.values() if each.slot.epoch > page.epoch]
    if ahead:
        known = f"has epochs up to {page.epoch}" if page.epoch >= 0 else "is empty"
        raise UntoldError(
            f"slots topic `{slots_topic}` has visible slots of epoch {max(ahead)}, and the ledger {known}: it was lost or is an older copy, or the "
            "slots are of an earlier life of this pipeline, which has begun anew without that topic being removed"
        )


def part_of(epoch: Epoch, slots_topic: str, topic: str | None) -> str:
    """What the ledger keeps of an epoch in part. It has another version, so that the `spooled` way does not take it for a whole one.

    `topic` is that of all rows; None: each names its own.
    """
    entry = {"v": 2, "epoch": epoch.to_json(), "is_whole": False, "slots_topic": slots_topic, "topic": topic}
    return json.dumps(entry, separators=(",", ":"))


def entry_of(epoch: Epoch, shares: Iterable[Share]) -> str:
    """What the ledger keeps of a whole epoch: the same as the `spooled` way does, so that the way may be changed between two epochs."""
    held = list(shares)
    rows, checksum = sum(s.rows for s in held), add_checksums(s.checksum for s in held)
    slots = [[s.slot, s.fence, s.attempt] for s in held]
    entry = {"v": 1, "epoch": epoch.to_json(), "rows": rows, "checksum": checksum, "slots": slots}
    return json.dumps(entry, separators=(",", ":"))
