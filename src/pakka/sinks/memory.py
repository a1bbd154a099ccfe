"""The memory sink: the contract in its shortest true form. For tests, and to copy from.

Rows ride inside the prepared record, so the state store's decision is what keeps them durable, nothing waits in the
sink before the commit, and there is nothing to abort. That is fine for the small epochs of a test and for nothing else.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from pakka.contract.audit import Scratch
from pakka.contract.sink import Entry, Ledger
from pakka.errors import FencedError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums

_SLOT_BYTES_MAX = 1 << 20


@dataclass
class Space:
    """What outlives a driver: the visible rows, the ledger and the fence. One lock stands for the sink's transaction."""

    rows: list[pa.Table] = field(default_factory=list)
    fences: dict[tuple[str, str], int] = field(default_factory=dict)
    ledger: dict[tuple[str, str], Entry] = field(default_factory=dict)
    committed: set[Slot] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    _named: ClassVar[dict[str, Space]] = {}

    @classmethod
    def named(cls, name: str) -> Space:
        """The space of that name in this process; made at first use."""
        return cls._named.setdefault(name, cls())


@dataclass(frozen=True)
class MemorySink:
    """Keep rows in this process, in a named space."""

    space: str = "default"

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.SPOOLED, "rows, ledger and fence change under one lock")

    def target(self) -> str:
        return f"memory:{self.space}"

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> MemoryWriter:
        return MemoryWriter(slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> MemoryCommitter:
        return MemoryCommitter(binding, fence, Space.named(self.space))

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._memory_scratch import MemoryScratch

        return MemoryScratch(MemorySink(f"{self.space}.audit-{token}"))

    def scratch_tokens(self) -> Sequence[str]:
        return ()  # gone with the process that made them


class MemoryWriter:
    """Collects a slot's rows and hands them over inside the prepared record."""

    def __init__(self, slot: Slot, schema: pa.Schema) -> None:
        self.slot = slot
        self.rows = 0
        self.buffer = pa.BufferOutputStream()
        self.stream = pa.ipc.new_stream(self.buffer, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self.stream.write_batch(batch)
        self.rows += batch.num_rows

    def prepare(self, checksum: str) -> Prepared:
        self.stream.close()
        data = self.buffer.getvalue()
        if data.size > _SLOT_BYTES_MAX:
            raise SinkError(
                f"sink `{self.slot.pipeline}.{self.slot.sink}`: slot {self.slot.number} of epoch {self.slot.epoch} has "
                f"{data.size} bytes, and the memory sink takes {_SLOT_BYTES_MAX}; nothing was written",
                hint="the memory sink is for tests; use `parquet` or `sqlite`",
            )
        rows = base64.b64encode(data.to_pybytes()).decode()
        return Prepared(self.slot, self.rows, checksum, {"rows": rows})

    def discard(self) -> None:
        """Nothing is staged: what was written goes with this object."""


class MemoryCommitter:
    """Makes an epoch visible and enters it in the ledger, under one lock."""

    def __init__(self, binding: Binding, fence: int, space: Space) -> None:
        self.binding = binding
        self.key = (binding.pipeline, binding.sink)
        self.fence = fence
        self.space = space

    def raise_fence(self) -> bool:
        with self.space.lock:
            self._check_fence()
            self.space.fences[self.key] = self.fence
        return True

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        with self.space.lock:
            # The fence is checked under the lock that makes rows visible: a check outside it could be overtaken.
            self._check_fence()
            last = self.space.ledger.get(self.key)
            if last is not None and epoch.number <= last.epoch.number:
                if epoch.number == last.epoch.number and epoch != last.epoch:
                    raise SinkError(f"{self.binding}: holds another epoch {epoch.number}; nothing was changed")
                return ALREADY_COMMITTED
            tables = [pa.ipc.open_stream(base64.b64decode(p.detail["rows"])).read_all() for p in prepared]
            self.space.rows.extend(tables)
            self.space.committed.update(p.slot for p in prepared)
            self.space.ledger[self.key] = Entry(
                epoch, sum(p.rows for p in prepared), add_checksums(p.checksum for p in prepared)
            )
        return COMMITTED

    def abort(self, prepared: Sequence[Prepared]) -> None:
        for record in prepared:
            if record.slot in self.space.committed:
                raise SinkError(f"{self.binding}: `{record.slot}` is committed and cannot be aborted; it stays visible")

    def pending(self) -> Sequence[Prepared]:
        return ()

    def ledger(self) -> Ledger:
        with self.space.lock:
            return Ledger(self.space.fences.get(self.key, 0), self.space.ledger.get(self.key))

    def close(self) -> None:
        pass

    def _check_fence(self) -> None:
        seen = self.space.fences.get(self.key, 0)
        if seen > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, seen)
