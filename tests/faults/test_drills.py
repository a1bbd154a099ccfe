"""A drill strikes exactly where it is named: nothing after that place is done before the process is woken, or ever."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

pytestmark = pytest.mark.faults

REACH_AND_GO_ON = """
import sys, threading
from pathlib import Path
from pakka import points
from pakka.testing import crash

crash.arm(crash.Drill("decide.before", do="stop"))

def go():
    points.reach("decide.before", 0)
    Path(sys.argv[1]).touch()

thread = threading.Thread(target=go)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("time", range(10))
def test_a_stopped_thread_does_nothing_more_until_it_is_woken(tmp_path, time):
    """Spark's callback is not the main thread. A stop that went round by the main thread let it go on for a while."""
    after = tmp_path / "after"
    child = subprocess.Popen([sys.executable, "-c", REACH_AND_GO_ON, str(after)])
    try:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert not after.exists()
        child.send_signal(signal.SIGCONT)
        assert child.wait(timeout=30) == 0
        assert after.exists()
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        child.wait()
