"""What the settings probes of sources and sinks share: one look at a server serves a whole round of them, and a time is told one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pakka.contract.audit import Finding, Severity

FINE, WARNS, BREAKS = Severity.FINE, Severity.WARNS, Severity.BREAKS

F = TypeVar("F")


class Round(Generic[F]):
    """Facts that several probes judge, read with one connection and not with one a probe.

    Each probe takes them once. A probe that looks a second time begins a new round, so that nobody is told of yesterday.
    """

    def __init__(self, read: Callable[[], F]) -> None:
        self._read = read
        self._facts: F | None = None
        self._served: set[str] = set()

    def facts(self, probe: str) -> F:
        """The facts for the probe of this name."""
        if self._facts is None or probe in self._served:
            self._facts = self._read()
            self._served.clear()
        self._served.add(probe)
        return self._facts


def age(seconds: float) -> str:
    """How long ago, as a person says it."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def worst(findings: Iterable[Finding]) -> Finding:
    """The one that matters most."""
    return max(findings, key=lambda finding: (FINE, WARNS, BREAKS).index(finding.severity))
