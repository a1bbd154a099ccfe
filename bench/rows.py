"""The rows that are measured with: eight columns as a shop would have them, in Arrow or made by Spark."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.scratch import SCRATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEGIN_US = 1_700_000_000_000_000
_STEP_US = 1_234_567


def arrow_batches(rows: int, batch_rows: int = 10_000) -> list[pa.RecordBatch]:
    """Rows as Spark hands them to a task."""
    ids = np.arange(rows, dtype="int64")
    columns = {
        "id": pa.array(ids),
        "customer_id": pa.array((ids * 7919 % 1_000_003).astype("int32")),
        "qty": pa.array((ids % 97).astype("int32")),
        "amount": _decimals(ids * 31 % 10_000_000, pa.decimal128(12, 2)),
        "tax": _decimals(ids * 17 % 100_000, pa.decimal128(10, 4)),
        "created_at": pa.array(_BEGIN_US + ids * _STEP_US).cast(pa.timestamp("us", tz="UTC")),
        "sku": pa.array([f"sku-{i % 50021:08d}" for i in range(rows)]),
        "note": pa.array([f"order note {hashlib.md5(b'%d' % i).hexdigest()}" for i in range(rows)]),
    }
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches(max_chunksize=batch_rows)
    return batches


def _decimals(unscaled: np.ndarray, kind: pa.DataType) -> pa.Array:
    """128-bit numbers, little end first; all are positive, so the upper half is zero."""
    halves = np.zeros((len(unscaled), 2), dtype="int64")
    halves[:, 0] = unscaled
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(halves.tobytes())])


def parquet_files(spark: SparkSession, rows: int, files: int) -> Path:
    """The same rows as Parquet files, made once and kept for the next run."""
    path = SCRATCH / f"rows-{rows}-{files}"
    if not (path / "_SUCCESS").exists():
        _frame(spark, rows, files).write.mode("overwrite").parquet(str(path))
    return path


def _frame(spark: SparkSession, rows: int, files: int) -> DataFrame:
    return spark.range(0, rows, 1, files).selectExpr(
        "id",
        "CAST(id * 7919 % 1000003 AS int) AS customer_id",
        "CAST(id % 97 AS int) AS qty",
        "CAST(CAST(id * 31 % 10000000 AS decimal(12, 0)) / 100 AS decimal(12, 2)) AS amount",
        "CAST(CAST(id * 17 % 100000 AS decimal(10, 0)) / 10000 AS decimal(10, 4)) AS tax",
        f"timestamp_micros({_BEGIN_US} + id * {_STEP_US}) AS created_at",
        "concat('sku-', lpad(CAST(id % 50021 AS string), 8, '0')) AS sku",
        "concat('order note ', md5(CAST(id AS string))) AS note",
    )
