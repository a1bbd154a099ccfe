"""From an epoch's rows as the source has them to the rows that are judged: `process`, and around it the malformed.

`process` sees one epoch at a time. So any Spark SQL is allowed in it, an epoch that runs again gives the same rows, and
the checkpoint does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.functions import col, lit

from pakka.contract.pipeline import Pipeline
from pakka.errors import ConfigError
from pakka.spark.plan import RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VIEW = "source"


@dataclass(frozen=True, slots=True)
class Processing:
    """What happens to an epoch's rows before they are judged."""

    pipeline: Pipeline
    corrupt_column: str | None
    """The source's column with the raw text of malformed records; None if there is none."""

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Malformed records go around `process`, with their raw text in a column of their own.

        The source is parsed once for each of the two ways; keeping its rows for the second would cost more.
        """
        raw = self.corrupt_column
        if raw is None:
            return self._process(frame)
        if self.pipeline.process is None:
            return frame.withColumnRenamed(raw, RAW)
        processed = self._process(frame.where(col(raw).isNull()).drop(raw))
        nulls = [lit(None).cast(f.dataType).alias(f.name) for f in processed.schema.fields]
        malformed = frame.where(col(raw).isNotNull()).select(*nulls, col(raw).alias(RAW))
        return processed.withColumn(RAW, lit(None).cast("string")).unionByName(malformed)

    def _process(self, frame: DataFrame) -> DataFrame:
        process = self.pipeline.process
        if process is None:
            return frame
        if not isinstance(process, str):
            return process(frame)
        frame.createOrReplaceTempView(_VIEW)
        try:
            return frame.sparkSession.sql(process)
        except AnalysisException as error:
            raise ConfigError(
                f"pipeline `{self.pipeline.name}`: process: {str(error).strip().splitlines()[0]}",
                hint=f"the view `{_VIEW}` has the columns {', '.join(frame.columns)}",
            ) from error
