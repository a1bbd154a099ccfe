"""A file sink in the hands of a driver: write an epoch, commit it, crash somewhere, look as a reader."""

import os
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from pakka import points
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Kind
from pakka.sinks.files import ParquetSink

BINDING = Binding("refunds", "out", "spool")
ROWS = 100


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


def table(begin=0, rows=ROWS):
    return pa.table({"id": range(begin, begin + rows), "merchant": [f"m{n % 4}" for n in range(begin, begin + rows)]})


def epoch(number, query="q"):
    return Epoch("refunds", number, Origin(query, number, f"digest-{number}"))


class Driver:
    """One driver under one fence. `number` of an epoch says which ids its rows have: no two epochs share one."""

    def __init__(self, sink, fence, binding=BINDING, raised=True):
        self.sink, self.fence, self.binding = sink, fence, binding
        self.committer = sink.open_committer(binding, fence)
        if raised:
            assert self.committer.raise_fence() is True

    def slot(self, number, slot, attempt=0):
        return Slot(self.binding.pipeline, self.binding.sink, number, self.fence, slot, attempt)

    def writer(self, number=0, slot=0, attempt=0, schema=None):
        return self.sink.open_writer(self.binding, self.slot(number, slot, attempt), schema or table().schema)

    def prepare(self, number=0, slots=1, rows=ROWS, attempt=0):
        """Every slot of an epoch, prepared; `rows` in each."""
        return [self.prepare_slot(number, slot, rows, attempt) for slot in range(slots)]

    def prepare_slot(self, number, slot, rows=ROWS, attempt=0):
        writer = self.writer(number, slot, attempt)
        for batch in table(first_id(number, slot), rows).to_batches(max_chunksize=30):
            writer.write(batch)
        return writer.prepare(f"{number * 100 + slot + 1:016x}")

    def commit(self, number, prepared):
        return self.committer.commit_epoch(epoch(number), prepared)

    def deliver(self, number, slots=1, rows=ROWS):
        outcome = self.commit(number, self.prepare(number, slots, rows))
        assert outcome.kind is Kind.COMMITTED, outcome

    def crash(self, point, work):
        """Do `work`, and die at the named point; fails if it is never reached."""

        def strike(reached, _):
            if reached == point:
                raise Crash(point)

        points.arm(strike)
        try:
            work()
        except Crash:
            return
        finally:
            points.arm(None)
        raise AssertionError(f"{point} was never reached")


def first_id(number, slot):
    return number * 100_000 + slot * 1_000


def expected_ids(number, slots=1, rows=ROWS):
    return Counter(first_id(number, slot) + n for slot in range(slots) for n in range(rows))


def sink_at(tmp_path, **options):
    return ParquetSink(str(tmp_path / "out" / "refunds"), **options)


def output(sink) -> Path:
    return Path(sink.target())


def staged(sink):
    """Everything in the staging area apart from the owner and the directory that is the fence."""
    root = output(sink).with_name(f".{output(sink).name}.pakka")
    found = [str(p.relative_to(root)) for p in sorted(root.rglob("*"))]
    return [name for name in found if os.sep in name]


def read_pyarrow(path, format="parquet"):
    if not Path(path).exists():
        return pa.table({"id": pa.array([], pa.int64())})
    return ds.dataset(path, format=format, partitioning="hive").to_table()


def read_duckdb(path):
    """Every Parquet file DuckDB finds below the directory, hidden or not."""
    with duckdb.connect() as connection:
        if not connection.execute("SELECT file FROM glob(?)", [f"{path}/**/*.parquet"]).fetchall():
            return pa.table({"id": pa.array([], pa.int64())})
        return connection.read_parquet(f"{path}/**/*.parquet", hive_partitioning=True).to_arrow_table()


READERS = {"pyarrow": read_pyarrow, "duckdb": read_duckdb}


def ids(sink, reader="pyarrow"):
    """How often a reader sees each id."""
    rows = READERS[reader](output(sink))
    return Counter(rows["id"].to_pylist()) if rows.num_rows else Counter()
