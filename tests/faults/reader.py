"""A reader that looks at one output all the time, as a dashboard or a report would, and notes every part of an epoch it sees.

It runs in a process of its own and knows nothing of pakka.
"""

import json
import time
from pathlib import Path

from tests.faults.judge import BY_DUCKDB, READERS, Judge
from tests.faults.workload import Workload


def watch(root: str, sink: str, batches: int, rows: int, stop: str) -> int:
    """Look until `stop` is there; then say how often, how many different pictures, and what was wrong with any of them.

    Each look leaves a note beside `stop`, for those who want to know that one has been taken.
    """
    judge = Judge(Path(root), "", Workload(batches=batches, rows=rows), (sink,))
    looks, pictures, findings = 0, set(), set()
    while True:
        is_last = Path(stop).exists()
        counts = judge.counts(sink, BY_DUCKDB if sink in BY_DUCKDB and looks % 2 else READERS)
        looks += 1
        Path(f"{stop}.{sink}").touch()
        pictures.add(tuple(sorted(counts.items())))
        findings |= set(judge.partial_of(sink, counts))
        if is_last:
            break
        time.sleep(0.001)
    print(
        json.dumps({"looks": looks, "pictures": sorted(map(str, pictures)), "findings": sorted(findings)}), flush=True
    )
    return 0
