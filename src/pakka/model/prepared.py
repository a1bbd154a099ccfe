"""What a writer hands over: enough for any process to finish or undo one slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pakka.errors import BugError
from pakka.model.epoch import Count
from pakka.model.id import Slot

VERSION = 1
_WRAP = 1 << 64


@dataclass(frozen=True, slots=True)
class Prepared:
    """A slot's rows, durable and invisible, described in small JSON with no secrets and no live handles.

    `detail` is the sink's own: file names, a transaction id, a spool path. `checksum` is order-free, so that a slot
    that was run again can be compared with what a sink already holds.
    """

    slot: Slot
    rows: int
    checksum: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        s = self.slot
        return {
            "v": VERSION,
            "slot": [s.pipeline, s.sink, s.epoch, s.fence, s.number, s.attempt],
            "rows": self.rows,
            "checksum": self.checksum,
            "detail": dict(self.detail),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prepared:
        if data["v"] > VERSION:
            raise BugError(
                f"a prepared record of version {data['v']} was found and this pakka knows {VERSION}; it was left as it is",
                hint="run the newer pakka that prepared it",
            )
        return cls(Slot(*data["slot"]), data["rows"], data["checksum"], data["detail"])


@dataclass(frozen=True, slots=True)
class SlotReport:
    """All that one task hands back: a prepared record for every sink, and what became of its rows."""

    number: int
    prepared: tuple[Prepared, ...]
    count: Count
    is_retried: bool = False
    ages: Mapping[int, int] = field(default_factory=dict)
    """Rows by their age at the epoch's time; see `pakka.model.latency`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "prepared": [p.to_json() for p in self.prepared],
            "count": self.count.to_json(),
            "is_retried": self.is_retried,
            "ages": {str(bucket): rows for bucket, rows in self.ages.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SlotReport:
        records = tuple(Prepared.from_json(p) for p in data["prepared"])
        ages = {int(bucket): rows for bucket, rows in data["ages"].items()}
        return cls(data["number"], records, Count(**data["count"]), data["is_retried"], ages)


def add_checksums(checksums: Iterable[str]) -> str:
    """The checksum of several sets of rows together. Order-free: sums of row hashes, modulo 2**64."""
    return f"{sum(int(c, 16) for c in checksums) % _WRAP:016x}"


def checksum_of(row_hashes: int) -> str:
    """The checksum of rows whose 64-bit hashes add up to `row_hashes`, signed or not, wrapped or not."""
    return f"{row_hashes % _WRAP:016x}"


def totals(prepared: Sequence[Prepared]) -> dict[str, tuple[int, str]]:
    """Rows and checksum by sink: what is kept of the records once an epoch is settled."""
    by_sink: dict[str, list[Prepared]] = {}
    for record in prepared:
        by_sink.setdefault(record.slot.sink, []).append(record)
    return {s: (sum(p.rows for p in ps), add_checksums(p.checksum for p in ps)) for s, ps in by_sink.items()}
