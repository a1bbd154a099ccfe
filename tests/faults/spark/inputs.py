"""The input of a fault test on Spark: JSON files, one an epoch, with some broken rows in each.

What should become of them is read from the files themselves, line by line, with nothing of Spark or pakka.
"""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "id BIGINT, batch BIGINT, merchant STRING, amount BIGINT"
PROCESS = "SELECT id, batch, concat('RFD-', id) AS refund_id, merchant, amount FROM source"
AMOUNT_MAX = 1_000_000
RULES = {"merchant": "not_null(merchant)", "amount": f"range(amount, 1..{AMOUNT_MAX})"}
MALFORMED = "malformed"
_BATCH = re.compile(r'"batch": ?(\d+)')


def batch_of(row: str) -> int:
    """The batch that a dead letter came from, whether it is JSON or what was left of it."""
    found = _BATCH.search(row)
    assert found, f"no batch in {row!r}"
    return int(found.group(1))


@dataclass(frozen=True)
class Inputs:
    """Files in a directory. `batches` is what the judge calls epochs."""

    path: Path
    batches: int = 3
    rows: int = 240

    def write(self, first: int = 0, count: int | None = None) -> None:
        """Make the files, each appearing at once, as Spark asks for."""
        self.path.mkdir(parents=True, exist_ok=True)
        for number in range(first, self.batches if count is None else first + count):
            path = self.path / f"settlements-{number:03d}.json"
            partial = path.with_name("." + path.name)
            partial.write_text("".join(line + "\n" for line in self._lines(number)))
            os.rename(partial, path)

    def _lines(self, number: int) -> list[str]:
        lines = []
        for row in range(number * self.rows, (number + 1) * self.rows):
            amount = -row if row % 13 == 5 else row % 5_000 + 1
            merchant = None if row % 29 == 7 else f"merchant {row % 7} ₹"
            text = json.dumps({"id": row, "batch": number, "merchant": merchant, "amount": amount})
            # Torn where a crashed writer of the source would tear it, or right, but of the wrong type.
            if row % 97 == 11:
                text = text[: text.index('"merchant"') + 5]
            elif row % 89 == 17:
                text = text.replace(f'"amount": {amount}', '"amount": "many"')
            lines.append(text)
        return lines

    def read(self) -> list["Line"]:
        """Every line there is, and what should become of it."""
        lines = [line for path in sorted(self.path.glob("*.json")) for line in path.read_text().splitlines()]
        return [Line.of(text) for text in lines]


@dataclass(frozen=True)
class Line:
    """One line of the input."""

    batch: int
    broken: tuple[str, ...]
    values: tuple[Any, ...]
    """The row as the sinks should have it; of a dead letter, its text."""

    @classmethod
    def of(cls, text: str) -> "Line":
        try:
            row = json.loads(text)
        except ValueError:
            row = {"amount": None}
        if not isinstance(row["amount"], int):
            return cls(batch_of(text), (MALFORMED,), (text,))
        values = (row["id"], row["batch"], f"RFD-{row['id']}", row["merchant"], row["amount"])
        is_broken = {"merchant": row["merchant"] is None, "amount": not 1 <= row["amount"] <= AMOUNT_MAX}
        broken = tuple(words for column, words in RULES.items() if is_broken[column])
        if broken:
            names = ("id", "batch", "refund_id", "merchant", "amount")
            values = (json.dumps(dict(zip(names, values, strict=True)), sort_keys=True),)
        return cls(row["batch"], broken, values)

    def for_sink(self, sink: str) -> tuple[Any, ...] | None:
        """What `sink` should get of it; None if nothing."""
        if sink == "dead_letters":
            return (self.broken, *self.values) if self.broken else None
        if self.broken:
            return None
        number, batch, refund, *_ = self.values
        if sink == "slips":
            return (number, batch) if number % 2 == 0 else None
        return (refund, batch) if sink == "audit" else self.values


def by_batch(lines: list[Line], sink: str) -> Counter[int]:
    """How many rows of each batch belong into a sink."""
    return Counter(line.batch for line in lines if line.for_sink(sink) is not None)
