"""`pakka`, with one sink more: slips, which commits slot by slot as no embedded one does.

::

    python -m tests.faults.spark.cli run refunds.yaml --json
"""

from pakka import registry
from pakka.cli import main

registry.SINKS["slips"] = "tests.faults.slips:SlipSink"
registry.SINKS["unrecorded"] = "tests.faults.spark.loop:UnrecordedSink"

if __name__ == "__main__":
    main()
