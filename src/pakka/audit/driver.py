"""A driver in small: what the coordinator does to one sink, without Spark and without a state store."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from pakka.contract.audit import AUDIT_ID
from pakka.contract.sink import Committer, EpochCommit, EpochEntry, Sink, SlotCommit, Writer
from pakka.errors import UnavailableError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Kind, Outcome
from pakka.model.prepared import Prepared, checksum_of

SCHEMA = pa.schema([(AUDIT_ID, pa.string()), ("amount_paise", pa.int64())])

Decided = tuple[Epoch, Sequence[Prepared]]
"""An epoch that was decided, and its records."""

_TRIES = 20
_WAIT_S = 0.05


@dataclass(frozen=True)
class Driver:
    """Holds one sink's committer under one fence."""

    sink: Sink
    binding: Binding
    fence: int
    committer: Committer

    has_settled: bool = False
    """Something decided was in the way of the fence, and was committed before it could be raised."""

    @classmethod
    def begin(cls, sink: Sink, binding: Binding, fence: int, decided: Decided | None = None) -> Driver:
        """Open the sink and raise the fence. What is in its way is settled as a recovery does it: what is decided is committed,
        and the rest is aborted.
        """
        driver = cls(sink, binding, fence, sink.open_committer(binding, fence))
        named = {record.slot for record in decided[1]} if decided else set()
        for _ in range(_TRIES):
            if driver._raise_fence():
                return driver
            if decided is not None:
                driver.commit(*decided)
                driver = replace(driver, has_settled=True)
            driver.committer.abort([p for p in driver.committer.pending() if p.slot not in named])
            time.sleep(_WAIT_S)
        raise UnavailableError(f"{binding}: the fence cannot be raised to {fence}: something prepared is in its way")

    def _raise_fence(self) -> bool:
        """As the coordinator does, ask again while a commit that is under way holds the fence."""
        for _ in range(_TRIES):
            try:
                return self.committer.raise_fence()
            except UnavailableError:
                time.sleep(_WAIT_S)
        return self.committer.raise_fence()

    @property
    def can_commit(self) -> bool:
        return isinstance(self.committer, SlotCommit | EpochCommit)

    def write(self, epoch: Epoch, number: int, ids: Sequence[str], attempt: int = 0) -> tuple[Writer, str]:
        """Write one slot, and leave it to the caller to prepare it with its checksum."""
        slot = Slot(self.binding.pipeline, self.binding.sink, epoch.number, self.fence, number, attempt)
        writer = self.sink.open_writer(self.binding, slot, SCHEMA)
        # In two batches: a sink that forgets one of them is found.
        half = (len(ids) + 1) // 2
        for part in (ids[:half], ids[half:]):
            writer.write(_batch(part))
        return writer, checksum_of(sum(_hash(i) for i in ids))

    def prepare(self, epoch: Epoch, ids: Sequence[Sequence[str]], attempt: int = 0) -> list[Prepared]:
        """Write and prepare one slot for each list of ids."""
        records = []
        for number, rows in enumerate(ids):
            writer, checksum = self.write(epoch, number, rows, attempt)
            records.append(writer.prepare(checksum))
        return records

    def commit(self, epoch: Epoch, records: Sequence[Prepared]) -> Outcome:
        """Commit as the coordinator does: ask again while the answer is `retry` or `unknown`."""
        outcome = self._ask(epoch, records)
        for _ in range(_TRIES):
            if outcome.kind not in (Kind.RETRY, Kind.UNKNOWN):
                break
            time.sleep(_WAIT_S)
            outcome = self._ask(epoch, records)
        return outcome

    def close(self) -> None:
        self.committer.close()

    def _ask(self, epoch: Epoch, records: Sequence[Prepared]) -> Outcome:
        outcome = Outcome(Kind.COMMITTED)
        if isinstance(self.committer, SlotCommit):
            for answer in self.committer.commit(epoch, records):
                if not answer.is_final:
                    return answer
                outcome = answer
        if isinstance(self.committer, EpochCommit):
            outcome = self.committer.commit_epoch(epoch, records)
        elif isinstance(self.committer, EpochEntry):
            entered = self.committer.enter_epoch(epoch)
            return outcome if entered.is_final else entered
        return outcome


def _batch(ids: Sequence[str]) -> pa.RecordBatch:
    """Rows with these ids. Made from buffers: arrays of Python values have Arrow import pandas, in every process anew."""
    data = "".join(ids).encode()
    offsets, amounts = array("i", [0, *accumulate(len(i.encode()) for i in ids)]), array("q", range(len(ids)))
    columns = [
        pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(data)),
        pa.Array.from_buffers(pa.int64(), len(ids), [None, pa.py_buffer(amounts)]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _hash(text: str) -> int:
    """A hash of a row that is the same in every process."""
    return int.from_bytes(text.encode()[-8:], "big")
