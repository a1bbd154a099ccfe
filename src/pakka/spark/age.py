"""How old the rows of a slot are, counted in its task: a few passes over one column, and nothing that grows with the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pakka.model.latency import BASE, BITS, BUCKETS


class Ages:
    """Counts rows by their age at the epoch's time."""

    def __init__(self, at_us: int) -> None:
        self.at_us = at_us
        self.counts = np.zeros(BUCKETS, dtype=np.int64)

    def take(self, times: pa.Array) -> None:
        """Count the rows of a batch by their record time. One without it is not counted."""
        if times.null_count:
            times = times.drop_null()
        if not len(times):
            return
        made_us = times.view(pa.int64()).to_numpy(zero_copy_only=False)
        # A float's exponent and highest bits are its logarithm, rounded down: far cheaper than computing one.
        ages = np.maximum(self.at_us - made_us, 1).astype(np.float64)
        buckets = (ages.view(np.int64) >> BITS) - BASE
        self.counts += np.bincount(np.clip(buckets, 0, BUCKETS - 1), minlength=BUCKETS)

    def counted(self) -> dict[int, int]:
        """Rows by bucket, for those that have any."""
        return {int(bucket): int(self.counts[bucket]) for bucket in np.flatnonzero(self.counts)}
