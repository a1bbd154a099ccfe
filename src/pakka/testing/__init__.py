"""The public kit for testing sinks and drilling pipelines.

The names below are imported when they are used: an executor that is armed for a drill imports this package too, and has no
use for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pakka.testing.contract import Harness, SinkContract, Waiver

__all__ = ["Harness", "SinkContract", "Waiver"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("pakka.testing.contract"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
