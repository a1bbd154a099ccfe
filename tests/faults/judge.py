"""The judge: counts every input's effect with readers that know nothing of pakka.

Rows are read with pyarrow.dataset and DuckDB, databases with their own drivers. What it finds wrong comes back as
sentences; no sentence means that each row is where it belongs, once.
"""

import hashlib
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.dataset as ds

from tests.faults.workload import SCHEMAS, Workload

STANDARD = ("refunds", "audit", "dead_letters")
_SHOWN = 5
Values = tuple[Any, ...]
Readers = dict[str, Callable[[Path], list[Values]]]


def read_parquet(root: Path, columns: list[str]) -> list[Values]:
    """As anybody would read a directory of Parquet files."""
    if not root.is_dir():
        return []
    dataset = ds.dataset(root, format="parquet", partitioning="hive")
    if not dataset.files:
        return []
    return [tuple(row.values()) for row in dataset.to_table(columns=columns).to_pylist()]


def read_with_duckdb(root: Path, columns: list[str]) -> list[Values]:
    """The same by another reader, which looks into every directory, hidden or not."""
    with closing(duckdb.connect()) as db:
        try:
            query = f"SELECT {', '.join(columns)} FROM read_parquet(?)"
            return db.execute(query, [str(root / "**" / "*.parquet")]).fetchall()
        except duckdb.IOException:  # no files yet
            return []


def read_table(path: Path, table: str, columns: list[str]) -> list[Values]:
    """The rows of a table in a SQLite file; none if there is no such file or table."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            return []
        return db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()


READERS: Readers = {
    "refunds": lambda out: read_parquet(out / "refunds", SCHEMAS["refunds"].names),
    "audit": lambda out: read_table(out / "audit.db", "refund_audit", SCHEMAS["audit"].names),
    "slips": lambda out: read_table(out / "slips.db", "slips", SCHEMAS["slips"].names),
    "dead_letters": lambda out: read_parquet(out / "dead", SCHEMAS["dead_letters"].names),
}

BY_DUCKDB: Readers = {
    "refunds": lambda out: read_with_duckdb(out / "refunds", SCHEMAS["refunds"].names),
    "dead_letters": lambda out: read_with_duckdb(out / "dead", SCHEMAS["dead_letters"].names),
}

# All that may stand beside the rows when nothing is under way: the staging areas are there, and empty.
_STAGING = r"(/owner\.json|/fence-\d+)?"
EXPECTED = re.compile(
    r"out/(refunds|dead)(/pakka_epoch=\d+(/part-[^/]+\.parquet|/_pakka\.manifest)?)?"
    rf"|out/\.(refunds|dead)\.pakka{_STAGING}"
    r"|out/(audit|slips)\.db(-wal|-shm)?"
    rf"|spool/refunds\.(audit|refunds|balances|dead_letters){_STAGING}"
)


@dataclass(frozen=True)
class Judge:
    """Knows the input, and looks at the outputs."""

    root: Path
    state: str
    workload: Workload
    sinks: tuple[str, ...] = STANDARD
    pipeline: str = "refunds"

    def final(self) -> list[str]:
        """After a run to the end: every row once, no litter, and a state store with nothing open."""
        return [*self.rows(), *self.litter(), *self.open()]

    def rows(self) -> list[str]:
        """Each input row exactly once in each sink it belongs to."""
        findings = []
        for sink in self.sinks:
            found, wanted = Counter(self.read(sink)), Counter(self.wanted(sink))
            findings += _tell(sink, "lost", (wanted - found).elements())
            findings += _tell(sink, "twice or foreign", (found - wanted).elements())
            other = self.read_otherwise(sink)
            if other is not None and Counter(other) != found:
                findings.append(f"{sink}: DuckDB sees other rows than pyarrow")
        return [*findings, *self._apart()]

    def read(self, sink: str) -> list[Values]:
        """The rows of a sink, as its readers see them now."""
        return READERS[sink](self.root / "out")

    def read_otherwise(self, sink: str) -> list[Values] | None:
        """The same by another kind of reader, where there is one."""
        return BY_DUCKDB[sink](self.root / "out") if sink in BY_DUCKDB else None

    def wanted(self, sink: str) -> list[Values]:
        """The rows of a sink when all is delivered."""
        return [v for row in self.workload.all() if (v := row.for_sink(sink)) is not None]

    def partial(self) -> list[str]:
        """At any time: of each batch a sink shows all rows, or none. Not for sinks that commit slot by slot."""
        return [f for sink in self.sinks if sink != "slips" for f in self.partial_of(sink, self.counts(sink))]

    def counts(self, sink: str, readers: Readers = READERS) -> Counter[int]:
        """Rows in sight, by batch."""
        return Counter(batch for _, batch, *_ in readers[sink](self.root / "out"))

    def partial_of(self, sink: str, counts: Counter[int]) -> list[str]:
        findings = []
        for batch, count in sorted(counts.items()):
            whole = sum(row.for_sink(sink) is not None for row in self.workload.batch(batch))
            if count != whole:
                findings.append(f"{sink}: {count} of the {whole} rows of batch {batch} are in sight")
        return findings

    def seen(self) -> dict[str, list[Values]]:
        """What readers see now."""
        return {sink: sorted(self.read(sink)) for sink in self.sinks}

    def litter(self) -> list[str]:
        """Whatever lies in outputs and spool that a reader or the next run has no use for."""
        findings = []
        for path in _walk(self.root, ("out", "spool")):
            name = path.relative_to(self.root).as_posix()
            if not EXPECTED.fullmatch(name):
                findings.append(f"litter: {name}")
        slips = self.root / "out" / "slips.db"
        findings += [f"litter: staged slip of {slot}" for (slot,) in read_table(slips, "prepared", ["slot"])]
        return findings

    def open(self) -> list[str]:
        """The state store, asked directly: all epochs settled."""
        last = self.workload.batches - 1
        rows = read_state(self.state, f"SELECT committed FROM pakka_pipeline WHERE name = '{self.pipeline}'")
        if rows != [(last,)]:
            return [f"state: committed is {rows}, and epoch {last} is the last"]
        opened = read_state(
            self.state, f"SELECT number FROM pakka_epoch WHERE pipeline = '{self.pipeline}' AND number > {last}"
        )
        return [f"state: epoch {number} is open" for (number,) in opened]

    def _apart(self) -> list[str]:
        """Good and dead rows together are the input, and no row is both."""
        if not {"refunds", "dead_letters"} <= {*self.sinks}:
            return []
        good, dead = ({values[0] for values in self.read(s)} for s in ("refunds", "dead_letters"))
        everything = {row.id for row in self.workload.all()}
        findings = _tell("refunds and dead_letters", "in both", sorted(good & dead))
        return findings + _tell("refunds and dead_letters", "in neither", sorted(everything - good - dead))


def _tell(sink: str, what: str, rows: Iterable[object]) -> list[str]:
    listed = list(rows)
    return [f"{sink}: {len(listed)} rows {what}, such as {listed[:_SHOWN]}"] if listed else []


def _walk(root: Path, tops: tuple[str, ...]) -> list[Path]:
    found = []
    for top in tops:
        for directory, names, files in os.walk(root / top):
            found += [Path(directory) / name for name in (*names, *files)]
    return sorted(found)


def read_state(url: str, query: str) -> list[Values]:
    """What the state store holds, past all of pakka's code."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as db:
            return db.execute(query).fetchall()
    with psycopg.connect(url) as server:
        return server.execute(query.encode()).fetchall()


@dataclass(frozen=True)
class Snapshot:
    """Outputs byte for byte, databases row for row, and the tables of the state store."""

    outputs: dict[str, str]
    state: dict[str, list[Values]]


def take_snapshot(root: Path, state: str, pipeline: str) -> Snapshot:
    tables = {"pakka_pipeline": "name", "pakka_epoch": "pipeline"}
    rows = {
        t: sorted(read_state(state, f"SELECT * FROM {t} WHERE {c} = '{pipeline}'"), key=repr) for t, c in tables.items()
    }
    return Snapshot(take_outputs(root), rows)


def take_outputs(root: Path) -> dict[str, str]:
    outputs = {p.relative_to(root).as_posix(): _content(p) for p in _walk(root, ("out", "spool"))}
    return {name: text for name, text in outputs.items() if not name.endswith((".db-wal", ".db-shm", ".db-journal"))}


def _content(path: Path) -> str:
    if path.is_dir():
        return "directory"
    if path.suffix == ".db":
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as db:
            return "\n".join(db.iterdump())
    return hashlib.sha256(path.read_bytes()).hexdigest()
