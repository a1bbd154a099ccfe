"""The contract of a sink as a table of cases, for every sink that pakka ships and for yours; see docs/guides/testing-a-sink.md.

- `Harness`: how the suite gets at one sink; what an author writes.
- `SinkContract`: the cases as a test class; `Waiver`: a case that a sink honestly does not pass.
- `CASES`: the table itself. A `Case` runs without pytest: `CASES["commit_twice_leaves_one_copy"].run(harness)`.
"""

from pakka.testing.contract.golden import Golden
from pakka.testing.contract.harness import Cut, Harness, LineCut
from pakka.testing.contract.record import record
from pakka.testing.contract.suite import SinkContract, Waiver
from pakka.testing.contract.table import CASES, Beside, Case, Promise
from pakka.testing.contract.verdict import Broken, NotApplicable

__all__ = [
    "CASES",
    "Beside",
    "Broken",
    "Case",
    "Cut",
    "Golden",
    "Harness",
    "LineCut",
    "NotApplicable",
    "Promise",
    "SinkContract",
    "Waiver",
    "record",
]
