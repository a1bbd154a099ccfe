"""What can be said of a sink after a case: nothing, that it broke the contract, or that the case does not apply."""

from __future__ import annotations

import unittest


class Broken(AssertionError):
    """The sink broke its contract; the message says what was promised and what was seen."""


class NotApplicable(unittest.SkipTest):
    """The case asks for something this sink never claimed to have. pytest and unittest both show it as skipped."""


def require(holds: bool, otherwise: str) -> None:
    """Go on if it holds; else the sink is broken, and `otherwise` says how."""
    if not holds:
        raise Broken(otherwise)
