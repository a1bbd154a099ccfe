"""Numbered rows at a set size an epoch: for tests, drills and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pakka.model.guarantee import Part
from pakka.model.rule import OnFail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RateSource:
    """Rows `timestamp, value`, with values counted from 0; the same again after a crash."""

    rows_per_epoch: int = 100
    """Rows an epoch."""
    slots: int = 2
    """Partitions that they come in."""

    def replayable(self) -> Part:
        return Part("source", True, "rows are counted from the offset, so an epoch is the same each time it runs")

    def describe(self) -> str:
        return f"{self.rows_per_epoch} numbered rows an epoch"

    @property
    def corrupt_column(self) -> str | None:
        return None

    @property
    def on_corrupt(self) -> OnFail:
        return OnFail.FAIL

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows_per_epoch)
        return reader.option("numPartitions", self.slots).load()
