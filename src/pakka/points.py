"""Crash points: the named places at which a drill may strike.

`reach` costs one comparison when no drill is armed. What may strike, and the table of all names, is data in
`pakka.testing.crash`; a process is armed by the environment variable `PAKKA_DRILL`, so that executors are armed too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

Strike = Callable[[str, int], None]

_strike: Strike | None = None


def reach(point: str, epoch: int = -1) -> None:
    """Say that `point` was reached while working on `epoch`. Does nothing unless a drill is armed."""
    if _strike is not None:
        _strike(point, epoch)


def arm(strike: Strike | None) -> None:
    """Call `strike` at every point from now on; None disarms."""
    global _strike
    _strike = strike


if "PAKKA_DRILL" in os.environ:
    importlib.import_module("pakka.testing.crash").arm_from_environment()
