"""The judge of outputs that Spark and pakka made together: independent readers, against the input files."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds

from tests.faults import judge
from tests.faults.judge import Values, read_parquet, read_table
from tests.faults.spark.inputs import MALFORMED, Inputs, batch_of, by_batch

_REFUND = ["id", "batch", "refund_id", "merchant", "amount"]


def letters(rows: list[Values]) -> list[Values]:
    """Dead letters as the input tells them: a row that could be parsed is the same row in whatever order its fields stand."""
    found = []
    for rules, row in rows:
        text = row if rules == [MALFORMED] else json.dumps(json.loads(row), sort_keys=True)
        found.append((tuple(rules), text))
    return found


READERS: dict[str, Callable[[Path], list[Values]]] = {
    "refunds": lambda out: read_parquet(out / "refunds", _REFUND),
    "audit": lambda out: read_table(out / "audit.db", "refund_audit", ["refund_id", "batch"]),
    "slips": lambda out: read_table(out / "slips.db", "slips", ["id", "batch"]),
    "dead_letters": lambda out: letters(read_parquet(out / "dead", ["rules", "row"])),
}


def _glance(root: Path, column: str) -> list[Any]:
    """One column of a directory of Parquet files, as a reader sees it at this moment."""
    if not root.is_dir():
        return []
    dataset = ds.dataset(root, format="parquet", partitioning="hive")
    return dataset.to_table(columns=[column]).column(column).to_pylist() if dataset.files else []


# What a reader sees of each sink: the batch of every row.
SIGHTS: dict[str, Callable[[Path], list[int]]] = {
    "refunds": lambda out: _glance(out / "refunds", "batch"),
    "audit": lambda out: [batch for (batch,) in read_table(out / "audit.db", "refund_audit", ["batch"])],
    "dead_letters": lambda out: [batch_of(row) for row in _glance(out / "dead", "row")],
}


@dataclass(frozen=True)
class SparkJudge(judge.Judge):
    """Knows the input files, and looks at the outputs."""

    workload: Inputs  # type: ignore[assignment]

    def read(self, sink: str) -> list[Values]:
        return READERS[sink](self.root / "out")

    def sight(self, sink: str) -> list[int]:
        """The batch of every row that a reader sees at this moment."""
        return SIGHTS[sink](self.root / "out")

    def shows_slots(self, sink: str) -> bool:
        """Whether an epoch comes into sight slot by slot, and not as a whole."""
        return sink == "slips"

    def amount(self) -> Any:
        """The sum that an accountant would ask for, by SQL over the files."""
        with closing(duckdb.connect()) as db:
            query = (
                "SELECT sum(amount) FROM (SELECT DISTINCT id, amount FROM read_parquet(?, hive_partitioning = true))"
            )
            return db.execute(query, [str(self.root / "out" / "refunds" / "*" / "*.parquet")]).fetchall()[0][0]

    def rows(self, copies: int = 1) -> list[str]:
        """Each line of the input exactly once in each sink it belongs to; `copies` times if a person asked for that."""
        lines = self.workload.read()
        findings = []
        for sink in self.sinks:
            found = Counter(self.read(sink))
            wanted = Counter(v for line in lines if (v := line.for_sink(sink)) is not None)
            wanted = Counter({values: count * copies for values, count in wanted.items()})
            findings += _tell(sink, "lost", wanted - found)
            findings += _tell(sink, "twice or foreign", found - wanted)
        amount = sum(v[4] for line in lines if (v := line.for_sink("refunds")) is not None)
        if self.amount() != amount:
            findings.append(f"refunds: the amounts add up to {self.amount()}, and those of the input to {amount}")
        return findings

    def partial(self) -> list[str]:
        """At any time: of each batch a sink shows all rows, or none. Not for sinks that commit slot by slot."""
        lines = self.workload.read()
        findings = []
        for sink in self.sinks:
            if self.shows_slots(sink):
                continue
            whole = by_batch(lines, sink)
            for batch, count in sorted(Counter(self.sight(sink)).items()):
                if count != whole[batch]:
                    findings.append(f"{sink}: {count} of the {whole[batch]} rows of batch {batch} are in sight")
        return findings


def _tell(sink: str, what: str, rows: Counter[Values]) -> list[str]:
    listed = list(rows.elements())
    return [f"{sink}: {len(listed)} rows {what}, such as {listed[:5]}"] if listed else []
