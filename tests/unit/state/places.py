"""The places a state store may be at, and the values the tests put there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pakka.contract.state import Decision, Owner, StateStore
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.id import Slot
from pakka.model.prepared import Prepared
from pakka.state import open_store
from pakka.state.postgres import PostgresStore
from pakka.state.sqlite import SqliteStore

PIPELINE = "refunds"
OWNER = Owner("host-a", 4711, 1_700_000_000.5)


@dataclass(frozen=True)
class Place:
    """Where a store is, and how to open it, from this process or another."""

    url: str

    def open(self, **options: Any) -> StateStore:
        return open_store(self.url, **options)

    def open_as(self, variant: Callable[[type], type]) -> Any:
        """Open as a subclass of the store's own class, which `variant` makes."""
        if self.url.startswith("sqlite"):
            return variant(SqliteStore)(self.url.removeprefix("sqlite:///"))
        return variant(PostgresStore)(self.url)


def epoch(number: int, pipeline: str = PIPELINE, query: str = "query-1") -> Epoch:
    return Epoch(pipeline, number, Origin(query, number, f"digest-{number}"))


def decision(
    number: int,
    fence: int = 1,
    *,
    pipeline: str = PIPELINE,
    sinks: tuple[str, ...] = ("lake", "audit"),
    slots: int = 2,
    rows: int = 10,
    count: Count | None = None,
    **detail: Any,
) -> Decision:
    """Epoch `number`, with `rows` rows in each slot of each sink."""
    records = tuple(
        Prepared(Slot(pipeline, sink, number, fence, slot, 0), rows, f"{number * 100 + slot:016x}", detail)
        for slot in range(slots)
        for sink in sinks
    )
    count = count or Count(slots * rows + 3, slots * rows, 2, 1, {"not_null(merchant)": 3})
    return Decision(epoch(number, pipeline), fence, records, count, 1_700_000_000.25 + number)


def fill(store: StateStore, first: int, last: int, fence: int = 1) -> None:
    """Decide the epochs from `first` to `last`."""
    for number in range(first, last + 1):
        store.decide(decision(number, fence))
