"""Does the driver that holds a fence still run, as far as this machine can tell?

There is no lease to look at (docs/decisions/0008): this is for a person's eyes, and nothing of the protocol rests on it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pakka.contract.state import Owner

_SLACK_S = 5.0
"""Boot time and process start are known in full seconds only, and clocks are corrected."""


def is_alive(owner: Owner) -> bool | None:
    """None: it runs on another machine, if it does."""
    if owner.host != socket.gethostname() or owner.pid <= 0:
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and somebody else's
    began = _began(owner.pid)
    # A process that is younger than the fence has only got the number of the one that took it.
    return began is None or began <= owner.since + _SLACK_S


def _began(pid: int, proc: Path = Path("/proc")) -> float | None:
    """When a process was started; infinity for one that has ended and was not yet buried; None if it cannot be known."""
    try:
        # The name before it stands in parentheses and may hold anything.
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = next(line.split()[1] for line in (proc / "stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    if fields[0] in ("Z", "X"):
        return float("inf")
    return int(boot) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
