"""The scratch area for audits of the memory sink."""

from __future__ import annotations

from dataclasses import dataclass

from pakka.contract.audit import AUDIT_ID
from pakka.sinks.memory import MemorySink, Space


@dataclass(frozen=True)
class MemoryScratch:
    """A space of its own in this process. Another process has another one under the same name, and that is the point."""

    sink: MemorySink

    def make(self) -> None:
        Space.named(self.sink.space)

    def read(self) -> list[str]:
        return [value for table in Space.named(self.sink.space).rows for value in table.column(AUDIT_ID).to_pylist()]

    def stored(self) -> frozenset[str]:
        return frozenset(str(slot) for slot in Space.named(self.sink.space).committed)

    def remove(self) -> None:
        space = Space.named(self.sink.space)
        for kept in (space.rows, space.fences, space.ledger, space.committed):
            kept.clear()
