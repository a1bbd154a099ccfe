"""`python -m tests.audit.slow TARGET`: an audit that stands still in the middle of a commit, to be interrupted there."""

import os
import signal
import sys
import time
from pathlib import Path

from pakka import registry
from pakka.cli import main
from pakka.sinks.sqlite import SqliteApplier, SqliteSink

MARK = "PAKKA_TEST_MARK"


class SlowSink(SqliteSink):
    """The SQLite sink, whose commits say that they have begun, and then take their time."""

    def open_applier(self, binding):
        return SlowApplier(self, binding)


class SlowApplier(SqliteApplier):
    def apply(self, token, batches):
        Path(os.environ[MARK]).touch()
        time.sleep(60)
        return super().apply(token, batches)


if __name__ == "__main__":
    # Whoever runs the tests in the background has them ignore Ctrl-C, and their children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    registry.SINKS["sqlite"] = "tests.audit.slow:SlowSink"
    main(["audit", sys.argv[1]])
