"""An epoch: its number, and where its rows came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an epoch's rows came from: Spark's query, its batch, and a digest of the source offsets.

    Two runs of one epoch number are the same epoch only if their origins are equal. A number alone proves nothing: a
    deleted checkpoint starts again at 0 with other rows.
    """

    query: str
    batch: int
    digest: str
    position: str = field(default="", compare=False)
    """Where the source stands after this epoch, in its own words; empty if it has none. It follows from the offsets, and
    tells other systems how far the pipeline is: it is no part of what makes an epoch the same."""

    def to_json(self) -> dict[str, Any]:
        """Without a position where there is none: records written before there were positions stay as they are."""
        data = asdict(self)
        if not self.position:
            del data["position"]
        return data

    def __str__(self) -> str:
        return f"query {self.query[:8]}, batch {self.batch}, offsets {self.digest[:12]}"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of one pipeline."""

    pipeline: str
    number: int
    origin: Origin

    def to_json(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "number": self.number, "origin": self.origin.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Epoch:
        return cls(data["pipeline"], data["number"], Origin(**data["origin"]))


@dataclass(frozen=True, slots=True)
class Count:
    """What became of an epoch's rows. `rows_in` is counted where rows enter the judge, the rest where they leave it."""

    rows_in: int = 0
    good: int = 0
    dead: int = 0
    dropped: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    """Rows that broke each rule, by the rule's words. A row may break several."""

    @property
    def adds_up(self) -> bool:
        return self.rows_in == self.good + self.dead + self.dropped

    def __add__(self, other: Count) -> Count:
        broken = {
            rule: self.broken.get(rule, 0) + other.broken.get(rule, 0) for rule in {**self.broken, **other.broken}
        }
        return Count(
            self.rows_in + other.rows_in,
            self.good + other.good,
            self.dead + other.dead,
            self.dropped + other.dropped,
            broken,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What Spark's checkpoint says: whose it is, what was planned, and what was acknowledged. -1 is none."""

    path: str
    query: str | None = None
    planned: int = -1
    acknowledged: int = -1
    digests: dict[int, str] = field(default_factory=dict)
    """Digests of the source offsets of the newest batches."""
