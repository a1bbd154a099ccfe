"""What does exactly-once cost, against the same sink without the protocol?

Both sides write the same Arrow rows, as durably, in one process without Spark: the one through writer, prepare, decision and
commit, with fence, ledger and state store; the other straight into the target, where a crash leaves half an epoch.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import rows, scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.driver import PIPELINE, driver, origin
from bench.measure import Taken, clocked, in_turns
from pakka.contract.sink import Sink
from pakka.coordinator.epoch import Harvest
from pakka.model.epoch import Count, Epoch
from pakka.model.id import Binding, Slot
from pakka.model.prepared import SlotReport, checksum_of
from pakka.sinks.files import ParquetSink
from pakka.sinks.sqlite import SqliteSink
from pakka.state import open_store

EPOCH_ROWS = {"tiny": (200,), "small": (50_000, 500_000), "full": (50_000, 500_000)}
ROUNDS = {"tiny": 1, "small": 7, "full": 21}
SLOTS = 2
_GOAL = Goal(1.05, words="at most 1.05x the time")
_SLICE_ROWS = 10_000

Deliver = Callable[[], Taken]
"""Deliver one more epoch."""


def answer(size: str) -> Answer:
    figures: list[Figure] = []
    for count in EPOCH_ROWS[size]:
        batches = rows.arrow_batches(count)
        # The clock of small epochs is read more often.
        rounds = ROUNDS[size] * (3 if count < 100_000 else 1)
        with scratch.directory("protocol") as place, _sides(place, batches) as sides:
            taken = in_turns(sides, rounds)
        figures += _figures(count, taken)
    notes = (
        "Parquet: the plain side syncs its files and the directory, or does not, as said; SQLite: the plain side is one "
        "transaction with the same encoder, statement, journal and `synchronous`.",
        f"{SLOTS} slots, written one after the other; on Spark they are written side by side.",
    )
    return Answer("protocol", size, tuple(figures), notes, ROUNDS[size])


def _figures(count: int, taken: dict[str, list[Taken]]) -> list[Figure]:
    n = f"{count:,} rows an epoch"
    wall = {name: [t.wall_s for t in side] for name, side in taken.items()}
    cpu = {name: [t.cpu_s for t in side] for name, side in taken.items()}
    figures = []
    for sink in ("parquet", "sqlite"):
        plain = f"{sink} plain"
        figures.append(Figure(f"{sink}, {n}", Spread.ratio(wall[sink], wall[plain]), "x", _GOAL))
        figures.append(Figure(f"{sink}, {n}, processor time", Spread.ratio(cpu[sink], cpu[plain]), "x"))
    unsynced = Spread.ratio(wall["parquet"], wall["parquet unsynced"])
    figures.append(Figure(f"parquet, {n}, against files never synced", unsynced, "x"))
    figures += [Figure(f"{name}, {n}", Spread.of(times).scaled(1e3), "ms") for name, times in wall.items()]
    return figures


@contextmanager
def _sides(place: Path, batches: list[pa.RecordBatch]) -> Iterator[dict[str, Deliver]]:
    parquet, sqlite = ParquetSink(str(place / "parquet")), SqliteSink(str(place / "rows.db"), "orders")
    plain = SqliteSink(str(place / "plain.db"), "orders")
    with (
        exactly_once(place / "a", parquet, batches) as with_parquet,
        exactly_once(place / "b", sqlite, batches) as with_sqlite,
        _plain_sqlite(plain, batches) as without_sqlite,
    ):
        yield {
            "parquet": with_parquet,
            "parquet plain": _plain_parquet(place / "plain", batches, is_synced=True),
            "parquet unsynced": _plain_parquet(place / "unsynced", batches, is_synced=False),
            "sqlite": with_sqlite,
            "sqlite plain": without_sqlite,
        }


@contextmanager
def exactly_once(place: Path, sink: Sink, batches: list[pa.RecordBatch], position: str = "") -> Iterator[Deliver]:
    """One epoch after another of these rows, through a coordinator with a SQLite state store. `position` is the source's."""
    share = -(-len(batches) // SLOTS)
    schema = batches[0].schema

    def write(epoch: Epoch, fence: int, number: int) -> SlotReport:
        spool = str(place / "spool")
        slot = Slot(PIPELINE, "out", epoch.number, fence, number, 0)
        writer = sink.open_writer(Binding(PIPELINE, "out", spool), slot, schema)
        mine = batches[number * share : (number + 1) * share]
        for batch in mine:
            writer.write(batch)
        count = sum(b.num_rows for b in mine)
        return SlotReport(number, (writer.prepare(checksum_of(count)),), Count(count, count))

    def prepare(epoch: Epoch, fence: int) -> Harvest:
        return Harvest(SLOTS, [write(epoch, fence, number) for number in range(SLOTS)])

    with (
        closing(open_store(f"sqlite:///{place}/state.db")) as store,
        driver({"out": sink}, store, str(place / "spool")) as coordinator,
    ):
        epochs = iter(range(1 << 30))

        def deliver() -> Taken:
            os.sync()
            of = replace(origin(next(epochs)), position=position)
            return clocked(lambda: coordinator.deliver(of, prepare))

        yield deliver


def _plain_parquet(place: Path, batches: list[pa.RecordBatch], is_synced: bool) -> Deliver:
    """As a writer without a protocol would: each slot's file straight into the directory that readers read."""
    place.mkdir()
    share = -(-len(batches) // SLOTS)
    epochs = iter(range(1 << 30))

    def write(epoch: int) -> None:
        for number in range(SLOTS):
            path = place / f"part-{epoch}-{number}.parquet"
            table = pa.Table.from_batches(batches[number * share : (number + 1) * share], batches[0].schema)
            # The options of the sink, so that only the protocol differs.
            pq.write_table(table, path, compression="snappy", dictionary_pagesize_limit=128 << 10)
            if is_synced:
                _sync(path)
        if is_synced:
            _sync(place)

    def deliver() -> Taken:
        os.sync()
        return clocked(lambda: write(next(epochs)))

    return deliver


@contextmanager
def _plain_sqlite(sink: SqliteSink, batches: list[pa.RecordBatch]) -> Iterator[Deliver]:
    encode = sink.open_encoder(Binding(PIPELINE, "plain", ""), batches[0].schema)
    names = ", ".join(f'"{name}"' for name in batches[0].schema.names)
    marks = ", ".join("?" * len(batches[0].schema.names))
    with closing(sqlite3.connect(sink.path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute(f'CREATE TABLE "{sink.table}" ({names})')

        def write() -> None:
            db.execute("BEGIN IMMEDIATE")
            for batch in batches:
                encoded = encode(batch)
                for start in range(0, encoded.num_rows, _SLICE_ROWS):
                    part = encoded.slice(start, _SLICE_ROWS)
                    values = zip(*(column.to_pylist() for column in part.columns), strict=True)
                    db.executemany(f'INSERT INTO "{sink.table}" ({names}) VALUES ({marks})', values)
            db.execute("COMMIT")

        def deliver() -> Taken:
            os.sync()
            return clocked(write)

        yield deliver


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
