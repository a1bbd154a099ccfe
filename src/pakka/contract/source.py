"""What a source must do: be read as a stream, and say whether it can be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pakka.model.guarantee import Part
from pakka.model.rule import OnFail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Source(Protocol):
    """Where rows come from. Making one does no I/O."""

    def replayable(self) -> Part:
        """Can the same offsets be read again after a crash, and why?"""

    def describe(self) -> str:
        """Where the rows come from, in words a user knows, with no secret."""

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        """The stream, or a batch DataFrame. `notes` is a directory for what the source must remember between runs.

        A malformed record comes as a row whose `corrupt_column` holds the raw text; if `is_strict`, there is no such
        column, and it fails the task that reads it.
        """

    @property
    def corrupt_column(self) -> str | None:
        """The column that holds a malformed record's raw text; None if this source has none such."""

    @property
    def on_corrupt(self) -> OnFail:
        """What becomes of a malformed record."""
