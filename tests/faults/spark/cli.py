"""`pakka`, with one sink more: slips, which commits slot by slot as no embedded one does. With PAKKA_IMPATIENT it looks at its source
every half second, and tells after two seconds of what holds it back.

::

    python -m tests.faults.spark.cli run refunds.yaml --json
"""

import os

from pakka import registry
from pakka.cli import main

registry.SINKS["slips"] = "tests.faults.slips:SlipSink"
registry.SINKS["unrecorded"] = "tests.faults.spark.loop:UnrecordedSink"

if os.environ.get("PAKKA_IMPATIENT"):
    from pakka.sources import _kafka_lookout
    from pakka.spark import lookout

    lookout.PATROL_EVERY_S, _kafka_lookout.STALLED_AFTER_S = 0.5, 2.0

if __name__ == "__main__":
    main()
