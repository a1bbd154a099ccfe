"""What the writers of prepared transactions have in common: whose they are, which fence they are under, and what is visible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from pakka.errors import FencedError, PakkaError, SinkError
from pakka.model.id import Binding, Slot
from pakka.sinks._columns import Place
from pakka.sinks._sql import SqlSink


class Asking(Protocol):
    """A connection that brings rows."""

    def ask(self, statement: str, values: Mapping[str, object], /) -> list[tuple[Any, ...]]: ...


L = TypeVar("L", bound=Asking)


class SqlWriter(Generic[L]):
    """One attempt at one slot, in one transaction of the server."""

    def __init__(self, sink: SqlSink, binding: Binding, slot: Slot) -> None:
        self.binding = binding
        self.slot = slot
        self.place = Place(binding, str(sink.address), str(sink.where))
        self.key = {"pipeline": binding.pipeline, "sink": binding.sink}
        self.rows = 0
        self._line: L | None = None
        self._is_sent = False
        self._is_visible = False

    @property
    def _who(self) -> str:
        return f"{self.binding}: epoch {self.slot.epoch}, slot {self.slot.number}"

    @property
    def _open_line(self) -> L:
        if self._line is None:
            raise SinkError(f"{self._who}: was prepared or discarded; nothing was changed")
        return self._line

    def _has_committed_attempt(self, line: L, ledger: str) -> bool:
        """Another attempt at this slot is visible: the epoch runs again because other slots, or other sinks, have lost it.

        Its rows are not loaded a second time, which a unique key would refuse for ever. They are only counted, and the driver
        compares them with what the ledger holds.
        """
        found = line.ask(
            f"SELECT fence, attempt FROM {ledger} WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND epoch = %(epoch)s "
            "AND slot = %(slot)s",
            {**self.key, "epoch": self.slot.epoch, "slot": self.slot.number},
        )
        return bool(found) and (self.slot.fence, self.slot.attempt) not in found

    def _ledger_row(self, checksum: str) -> dict[str, object]:
        """What the ledger keeps of this attempt, by column."""
        slot = self.slot
        return {
            **self.key,
            "epoch": slot.epoch,
            "slot": slot.number,
            "fence": slot.fence,
            "attempt": slot.attempt,
            "rows": self.rows,
            "checksum": checksum,
        }

    def _check_fence(self, seen: int) -> None:
        if seen > self.slot.fence:
            raise FencedError.of(str(self.binding), self.slot.pipeline, self.slot.fence, seen)
        if seen < self.slot.fence:
            raise SinkError(
                f"{self._who}: its fence is {self.slot.fence}, and the sink holds {seen or 'none'}; nothing was written",
                hint="the tables `pakka_fence` and `pakka_ledger` were removed or restored; run again, to compare them with the state",
            )

    def _used(self) -> PakkaError:
        return SinkError(f"{self._who}: `{self.slot}` was used before; nothing was changed")
