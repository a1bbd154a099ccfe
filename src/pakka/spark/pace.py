"""How many rows cross to Python at once: as many as make some 2 MB, which was measured to be cheapest.

A million rows of 1 KB cost 3.04 s of the processors and 1.81 s of the clock in batches of 10,000 rows, and 2.59 s and 1.53 s in batches of
1,000; rows of 100 bytes are best at 10,000. Spark's own bound on bytes is measured after every row, which costs more than it
gives, so how wide rows are is learnt from the epochs before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

ROWS_MAX = 10_000
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SETTINGS = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1), _ROWS: str(ROWS_MAX)}
"""With what a session of ours begins. Where either is another, someone has chosen it, and it stays."""
_BATCH_BYTES = 2 << 20
_TELLING_ROWS = 100
"""Fewer may be odd ones, and batches of a few rows are dear: 400,000 narrow rows took 0.5 s in batches of 64, and 5.4 s one by one."""


class Pace:
    """The rows a batch of one query's next epoch. They follow from the bytes a row of the last one."""

    def __init__(self) -> None:
        self.rows = ROWS_MAX
        self._rows_seen = 0
        self._bytes_seen = 0
        self._session: JavaObject | None = None
        self._rows_set: int | None = None
        """What that session has; None if it is not ours to change."""

    def learn(self, rows: int, size: int) -> None:
        """Of an epoch of so many rows, which crossed in so many bytes. Small epochs are added up."""
        self._rows_seen += rows
        self._bytes_seen += size
        if self._rows_seen >= _TELLING_ROWS:
            self.rows = _rows_of(self._rows_seen, self._bytes_seen)
            self._rows_seen = self._bytes_seen = 0

    def keep(self, spark: SparkSession) -> None:
        """From the next epoch on: Spark tells its tasks the settings of a session when an epoch begins, and what is set later in
        it they do not see. The session is the one that Spark clones for each start of a query, and keeps for all its epochs.
        """
        session: Any = spark._jsparkSession
        if self._session is None or self._session != session:
            # Most rows are narrow, and every question to the JVM takes its time.
            if self.rows == ROWS_MAX:
                return
            self._session = session
            self._rows_set = ROWS_MAX if _is_ours(spark) else None
        if self._rows_set is not None and self._rows_set != self.rows:
            spark.conf.set(_ROWS, str(self.rows))
            self._rows_set = self.rows


def _rows_of(rows: int, size: int) -> int:
    """A power of two, so that rows which are a little wider change nothing."""
    fitting = _BATCH_BYTES * rows // max(size, 1)
    return ROWS_MAX if fitting >= ROWS_MAX else 1 << max(fitting.bit_length() - 1, 0)


def _is_ours(spark: SparkSession) -> bool:
    """Whether it is the clone of a session with our values. What the user holds himself is left as it is: that session is what a
    callback sees whose rows were joined to a frame of his.
    """
    users: Any = SparkSession._instantiatedSession
    if users is not None and users._jsparkSession == spark._jsparkSession:
        return False
    return all(spark.conf.get(key, None) == value for key, value in SETTINGS.items())
