"""What a driver writes down of a transaction that hangs, before it takes the id, by which the coordinator forgets how it was ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pakka.sinks._kafka_batch import Place
from pakka.sinks._kafka_raw import Described, Opened


@dataclass(frozen=True, slots=True)
class Note:
    """How a transaction was ended that hangs, and where it does: by producer, topic, partition and first offset it is one for ever."""

    producer_id: int
    is_commit: bool
    places: tuple[tuple[str, int, int], ...]
    """Those of which it was told that it hangs there."""
    producer_epoch: int = -1
    """Of the coordinator when this was written. -1: by a release that did not write it down."""

    def is_of(self, found: Described, hanging: Mapping[Place, Opened]) -> bool:
        """Whether this is the transaction that hangs. That one place is the same is enough: only one transaction of a producer can hang.
        Where no place is told, it is the one after which nothing was done but to take the id.
        """
        places = {(*place, opened.offset) for place, opened in hanging.items()}
        is_next = found.is_forgotten and found.producer_epoch == self.producer_epoch + 1
        return found.producer_id == self.producer_id and (is_next or not places.isdisjoint(self.places))

    def to_bytes(self) -> bytes:
        data = {
            "v": 1,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "is_commit": self.is_commit,
            "places": self.places,
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Note | None:
        """None: a newer pakka wrote it, in other words."""
        data = json.loads(raw)
        if data["v"] != 1:
            return None
        places = tuple((str(topic), int(partition), int(offset)) for topic, partition, offset in data["places"])
        return cls(int(data["producer_id"]), bool(data["is_commit"]), places, int(data.get("producer_epoch", -1)))
