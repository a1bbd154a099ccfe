"""What the appliers of SQL servers have in common: the memory of the other way, and the flow of an epoch's batches."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from pakka.errors import SinkError, UnavailableError
from pakka.model.id import Binding
from pakka.sinks._two_phase import HEADER, Clerk, Page
from pakka.sinks.spooled import Applier

OPERATIONS = ("insert", "update", "delete")
"""What a row of a mirror can say of itself."""

Connection = TypeVar("Connection")


class Load(Protocol):
    """Rows of one schema on their way into the target."""

    schema: pa.Schema

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None: ...


class SqlApplier(Applier, Generic[Connection]):
    """Asks a clerk for fence and ledger; what is left to each server is the transaction itself."""

    def __init__(self, binding: Binding, clerk: Clerk) -> None:
        self.binding = binding
        self.clerk = clerk
        self.key = {"pipeline": binding.pipeline, "sink": binding.sink}

    @abstractmethod
    def open_load(self, line: Connection, schema: pa.Schema) -> Load:
        """Begin to take rows of this schema, in the open transaction."""

    def ledger(self) -> tuple[int, str]:
        page = self.clerk.look(None)
        return page.fence, self._entry_of(page)

    def raise_fence(self, fence: int) -> None:
        if not self.clerk.raise_fence(fence):
            raise UnavailableError(
                f"{self.binding}: the fence cannot be raised to {fence}: another transaction holds its row; nothing was changed",
                hint="let the other driver end, then run again; if there is none, let an administrator see what is prepared",
            )

    def close(self) -> None:
        self.clerk.close()

    def load(self, line: Connection, batches: Iterator[pa.RecordBatch]) -> None:
        """Every batch, whatever becomes of the schema on the way."""
        load: Load | None = None
        for batch in batches:
            if load is None or load.schema != batch.schema:
                if load is not None:
                    load.finish()
                load = self.open_load(line, batch.schema)
            load.write(batch)
        if load is not None:
            load.finish()

    def _entry_of(self, page: Page) -> str:
        """What the spooled way remembers of its newest epoch; made from the slots, if it was committed slot by slot."""
        if not page.header or "is_whole" not in json.loads(page.header):
            return page.header
        epoch = page.epoch
        assert epoch is not None
        if not page.is_whole:
            raise SinkError(
                f"{self.binding}: epoch {page.number} is visible in part, by the `prepared` way, and this run's is `spooled`; nothing "
                "was changed",
                hint="set `way: prepared`, and `pakka indoubt resolve` finishes it; then change the way",
            )
        slots = [[s.slot, s.fence, s.attempt] for s in page.shares.values() if s.slot != HEADER]
        entry = {"v": 1, "epoch": epoch.to_json(), "rows": page.rows, "checksum": page.checksum, "slots": slots}
        return json.dumps(entry, separators=(",", ":"))
