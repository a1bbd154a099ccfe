"""An epoch whose slots become visible one by one: what a driver knows of it, and what the ledger keeps of it, in part and whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from pakka.model.epoch import Epoch
from pakka.model.prepared import add_checksums
from pakka.sinks._two_phase import Share


@dataclass
class Known:
    """An epoch in part, as this driver knows it. One for each epoch: several threads add to it."""

    epoch: int
    shares: dict[int, Share] = field(default_factory=dict)
    is_sure: bool = True
    """False: more may be visible, and the slots topic has to be asked."""


class UntoldError(Exception):
    """The slots topic is gone, or is another one than that which the epoch in part was begun with."""


def part_of(epoch: Epoch, slots_topic: str) -> str:
    """What the ledger keeps of an epoch in part. It has another version, so that the `spooled` way does not take it for a whole one."""
    entry = {"v": 2, "epoch": epoch.to_json(), "is_whole": False, "slots_topic": slots_topic}
    return json.dumps(entry, separators=(",", ":"))


def entry_of(epoch: Epoch, shares: Iterable[Share]) -> str:
    """What the ledger keeps of a whole epoch: the same as the `spooled` way does, so that the way may be changed between two epochs."""
    held = list(shares)
    rows, checksum = sum(s.rows for s in held), add_checksums(s.checksum for s in held)
    slots = [[s.slot, s.fence, s.attempt] for s in held]
    entry = {"v": 1, "epoch": epoch.to_json(), "rows": rows, "checksum": checksum, "slots": slots}
    return json.dumps(entry, separators=(",", ":"))
