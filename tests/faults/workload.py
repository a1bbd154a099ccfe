"""The input of a fault test: the same rows in every process, split into batches and slots as Spark would split them.

Each row says which batch it came from, so that a reader who knows nothing of pakka can see part of an epoch.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

CHUNKS = 3
"""RecordBatches a slot, so that a crash in the middle of its writes has a middle."""

SCHEMAS = {
    "refunds": pa.schema(
        [("id", pa.int64()), ("batch", pa.int64()), ("merchant", pa.string()), ("amount", pa.int64())]
    ),
    "audit": pa.schema([("id", pa.int64()), ("batch", pa.int64())]),
    "slips": pa.schema([("id", pa.int64()), ("batch", pa.int64())]),
    "balances": pa.schema([("account", pa.int64()), ("batch", pa.int64()), ("id", pa.int64())]),
    "dead_letters": pa.schema([("id", pa.int64()), ("batch", pa.int64()), ("reason", pa.string())]),
}


ACCOUNTS = 20
"""So few that every batch changes each of them but the first, and every slot most of them."""


class Row(NamedTuple):
    """One input row."""

    id: int
    batch: int
    merchant: str
    amount: int

    @property
    def is_dead(self) -> bool:
        return self.amount <= 0

    def for_sink(self, sink: str) -> tuple[int | str, ...] | None:
        """What `sink` gets of this row; None if it is not for it."""
        if self.is_dead:
            return (self.id, self.batch, f"amount {self.amount}") if sink == "dead_letters" else None
        if sink == "refunds":
            return tuple(self)
        if sink == "balances":
            # One account is the batch's own: a later one would hide for ever that all of this batch was lost.
            return (self.id % ACCOUNTS or ACCOUNTS + self.batch, self.batch, self.id)
        if sink == "audit" or (sink == "slips" and self.id % 2 == 0):
            return (self.id, self.batch)
        return None


@dataclass(frozen=True)
class Workload:
    """Rows by batch and slot. Batch 1 has an empty slot and the last batch no dead rows: both are usual, and special."""

    batches: int = 3
    slots: int = 3
    rows: int = 90
    """Rows a batch."""

    def batch(self, number: int) -> list[Row]:
        first = number * self.rows
        return [self._row(i, number) for i in range(first, first + self.rows)]

    def slot(self, batch: int, slot: int) -> list[Row]:
        writers = self.slots - 1 if batch == 1 and self.slots > 1 else self.slots
        return [row for row in self.batch(batch) if row.id % writers == slot]

    def chunks(self, batch: int, slot: int) -> list[list[Row]]:
        rows = self.slot(batch, slot)
        size = -(-len(rows) // CHUNKS) or 1
        return [rows[i : i + size] for i in range(0, len(rows), size)]

    def all(self) -> list[Row]:
        return [row for number in range(self.batches) for row in self.batch(number)]

    def _row(self, number: int, batch: int) -> Row:
        is_dead = number % 7 == 3 and batch != self.batches - 1
        return Row(number, batch, f"merchant {number % 5} ₹", -number if is_dead else number + 1)


def row_hash(values: tuple[int | str, ...]) -> int:
    """A 64-bit hash of one row, to be added up in any order."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest(), "big")
