"""Any streaming or batch DataFrame that the user already has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pakka.model.guarantee import Part
from pakka.model.rule import OnFail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FrameSource:
    """A DataFrame made by the user's own code. Whether it can be read again, only the user knows."""

    frame: Any
    is_replayable: bool = False
    """True: after a crash the same offsets give the same rows. Kafka, files and tables do; sockets do not."""

    def replayable(self) -> Part:
        if self.is_replayable:
            return Part("source", True, "the user says that the same offsets give the same rows again")
        mend = "say `is_replayable=True` if it reads files, tables or Kafka"
        return Part("source", False, "it is not known whether this DataFrame can be read again after a crash", mend)

    def describe(self) -> str:
        return "a streaming DataFrame" if self.frame.isStreaming else "a batch DataFrame"

    @property
    def corrupt_column(self) -> str | None:
        return None

    @property
    def on_corrupt(self) -> OnFail:
        return OnFail.FAIL

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        frame: DataFrame = self.frame
        return frame
