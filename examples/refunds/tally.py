"""Count what is in the outputs against what was in the inputs.

This file knows nothing of pakka. It reads the input lines again, says by itself what has to become of each, and looks
for exactly that in the outputs: with the json module, pyarrow and sqlite3, as any other reader would.

    python examples/refunds/tally.py .demo
"""

import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

AMOUNT_MAX = 100_000_000
MALFORMED = "malformed"
NOT_NULL = "not_null(merchant)"
RANGE = f"range(amount_paise, 1..{AMOUNT_MAX})"


@dataclass(frozen=True)
class Output:
    """One output, row by row, against what it has to hold."""

    name: str
    expected: int
    there: int
    lost: int
    twice: int
    strange: int
    """Rows that the input gives no reason for."""

    @property
    def is_right(self) -> bool:
        return self.expected == self.there and not (self.lost or self.twice or self.strange)

    @classmethod
    def of(cls, name: str, expected: "Counter[Any]", there: "Counter[Any]") -> "Output":
        more = there - expected
        twice = sum(n for row, n in more.items() if row in expected)
        lost = (expected - there).total()
        return cls(name, expected.total(), there.total(), lost, twice, more.total() - twice)


@dataclass(frozen=True)
class Tally:
    """All that was counted."""

    rows_in: int
    outputs: tuple[Output, ...]
    """Refunds, audit, dead letters."""
    broken: dict[str, tuple[int, int]]
    """By rule: the dead letters the input asks for, and the ones that are there."""
    epochs: int

    def wrong(self) -> list[str]:
        """What is not as it should be, in words; nothing if all is well."""
        found = [
            f"{o.name}: {o.expected} rows expected, {o.there} there: {o.lost} lost, {o.twice} twice, {o.strange} strange"
            for o in self.outputs
            if not o.is_right
        ]
        found += [f"dead letters that name {r}: {e} expected, {t} there" for r, (e, t) in self.broken.items() if e != t]
        refunds, _, dead = self.outputs
        if self.rows_in != refunds.there + dead.there:
            found.append(f"{self.rows_in} rows in, but {refunds.there} refunds and {dead.there} dead letters out")
        return found


def tally(root: Path) -> Tally:
    """Count all under a directory that holds `data/settlements` and `out`."""
    rows_in, refunds, dead = expected(root / "data" / "settlements")
    audit = Counter(refund for refund, _, _ in refunds.elements())
    dead_there = dead_letters(root / "out" / "dead")
    by_rule = _by_rule(dead), _by_rule(dead_there)
    return Tally(
        rows_in,
        (
            Output.of("refunds", refunds, parquet_rows(root / "out" / "refunds")),
            Output.of("audit", audit, sqlite_rows(root / "out" / "audit.db")),
            Output.of("dead letters", dead, dead_there),
        ),
        {rule: (by_rule[0][rule], by_rule[1][rule]) for rule in sorted({*by_rule[0], *by_rule[1]})},
        epochs(root / "out" / "refunds"),
    )


def expected(inputs: Path) -> tuple[int, "Counter[Any]", "Counter[Any]"]:
    """How many lines came in, the refunds they must become, and the dead letters: (what identifies it, its rules)."""
    rows_in = 0
    refunds: Counter[Any] = Counter()
    dead: Counter[Any] = Counter()
    for file in sorted(inputs.glob("*.json")):
        for line in file.read_text().splitlines():
            rows_in += 1
            row = _parsed(line)
            if row is None:
                dead[(line, (MALFORMED,))] += 1
                continue
            broken = [NOT_NULL] if row["merchant"] is None else []
            broken += [RANGE] if not 1 <= row["amount_paise"] <= AMOUNT_MAX else []
            if broken:
                dead[(row["settlement_id"], tuple(broken))] += 1
            else:
                refunds[(f"RFD-{row['settlement_id']}", row["merchant"], row["amount_paise"])] += 1
    return rows_in, refunds, dead


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("amount_paise"), int) else None


def parquet_rows(path: Path) -> "Counter[Any]":
    if not path.exists():
        return Counter()
    table = ds.dataset(path, format="parquet", partitioning="hive").to_table(["refund_id", "merchant", "amount_paise"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sqlite_rows(path: Path) -> "Counter[Any]":
    if not path.exists():
        return Counter()
    # Not read-only: a reader that comes after a crash rolls back what was not committed, as SQLite asks of every reader.
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = db.execute("SELECT refund_id FROM refund_audit") if "refund_audit" in tables else ()
        return Counter(refund for (refund,) in rows)


def dead_letters(path: Path) -> "Counter[Any]":
    if not path.exists():
        return Counter()
    table = ds.dataset(path, format="parquet", partitioning="hive").to_table(["rules", "row"])
    letters = zip(table.column("rules").to_pylist(), table.column("row").to_pylist(), strict=True)
    return Counter((_key(row, rules), tuple(rules)) for rules, row in letters)


def _key(row: str, rules: list[str]) -> str:
    """What identifies a dead letter: the line itself if it was malformed, else the settlement in it."""
    parsed = None if MALFORMED in rules else _parsed(row)
    return row if parsed is None else str(parsed["settlement_id"])


def epochs(path: Path) -> int:
    """The epochs that a reader of the Parquet output can see."""
    return len(list(path.glob("pakka_epoch=*")))


def _by_rule(letters: "Counter[Any]") -> "Counter[str]":
    rules: Counter[str] = Counter()
    for (_, broken), n in letters.items():
        for rule in broken:
            rules[rule] += n
    return rules


if __name__ == "__main__":
    wrong = tally(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).wrong()
    print("\n".join(wrong) or "every row of the input is in the outputs once")
    sys.exit(1 if wrong else 0)
