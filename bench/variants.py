"""The way of an epoch's rows into Parquet, one piece at a time, to see what each piece costs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.engine import OnBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWER = "answer string"
_GATHER_ROWS = 500_000


def _answer(text: object = "") -> pa.RecordBatch:
    return pa.record_batch([pa.array([str(text)])], names=["answer"])


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take the rows and do nothing with them."""
    yield _answer(sum(b.num_rows for b in batches))


def count_and_add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up the hashes, in the last column."""
    yield _answer(sum(int(b.columns[-1].to_numpy().sum(dtype="int64")) for b in batches))


def write(
    batches: Iterator[pa.RecordBatch], directory: str, is_kept: bool, is_synced: bool
) -> Iterator[pa.RecordBatch]:
    """Write the rows with pyarrow, gathered and with the options of the sink: nowhere, to a file, or durably."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.parquet") if is_kept else os.devnull
    with pa.OSFile(path, "wb") as file:
        writer, gathered = None, []
        for batch in batches:
            rows = batch.select(batch.schema.names[:-1])
            writer = writer or _parquet_writer(file, rows.schema)
            gathered.append(rows)
            if sum(b.num_rows for b in gathered) >= _GATHER_ROWS:
                writer.write_table(pa.Table.from_batches(gathered))
                gathered = []
        if writer is not None:
            if gathered:
                writer.write_table(pa.Table.from_batches(gathered))
            writer.close()
    if is_synced:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    yield _answer()


def _parquet_writer(file: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, schema, compression="snappy", dictionary_pagesize_limit=128 << 10)


def _scan(_: Path) -> OnBatch:
    return lambda batch, _: batch.write.format("noop").mode("append").save()


def _mapped(
    work: Callable[..., Iterator[pa.RecordBatch]], is_hashed: bool, **options: bool
) -> Callable[[Path], OnBatch]:
    def make(place: Path) -> OnBatch:
        out = place / "out"
        out.mkdir()
        task = partial(work, directory=str(out), **options) if options else work

        def on_batch(batch: DataFrame, _: int) -> None:
            from pyspark.sql.functions import xxhash64

            rows = batch.select("*", xxhash64(*batch.columns)) if is_hashed else batch
            rows.coalesce(batch.sparkSession.sparkContext.defaultParallelism).mapInArrow(task, _ANSWER).collect()

        return on_batch

    return make


VARIANTS: dict[str, Callable[[Path], OnBatch]] = {
    "scan (noop)": _scan,
    "+ Arrow to Python": _mapped(count, is_hashed=False),
    "+ hash column": _mapped(count_and_add, is_hashed=True),
    "+ encode, to nowhere": _mapped(write, is_hashed=True, is_kept=False, is_synced=False),
    "+ files": _mapped(write, is_hashed=True, is_kept=True, is_synced=False),
    "+ fsync": _mapped(write, is_hashed=True, is_kept=True, is_synced=True),
}
