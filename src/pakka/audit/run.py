"""One audit, from the sink to the report."""

from __future__ import annotations

import platform
import sqlite3
import time
from dataclasses import replace

import pyarrow as pa

from pakka import __version__
from pakka.audit.cast import Cast
from pakka.audit.host import Start, spawn
from pakka.audit.interrogate import interrogate
from pakka.audit.report import Report
from pakka.audit.scratch import ground_of
from pakka.contract.audit import Finding, Probing
from pakka.contract.sink import Sink, chosen, uses_spool
from pakka.coordinator.watch import look
from pakka.durability import Spool


def audit(sink: Sink, kind: str, spool: str | None = None, slots: int | None = None, start: Start = spawn) -> Report:
    """Interrogate a sink in a scratch area of its own system, and read its settings. Nothing is left behind.

    `spool` and `slots` are those of the sink's pipeline, and `start` the way in which the audit's other processes come to be.
    """
    began = time.monotonic()
    # Before anything is opened: see `pakka.audit.host`.
    with Cast(start, sink) as cast:
        sink = chosen(sink, slots)
        with ground_of(sink, spool) as ground:
            # Settings are read while the scratch area stands: now the system is as it is when a pipeline runs.
            answers, findings = interrogate(ground, cast), findings_of(sink)
        if spool is not None and uses_spool(sink):
            findings += [replace(look("the spool", p), name=f"{p.name} of the spool") for p in Spool(spool).probes()]
    return Report(
        sink.target(),
        kind,
        sink.guarantee(),
        answers,
        tuple(findings),
        versions(),
        time.monotonic() - began,
    )


def findings_of(sink: Sink) -> list[Finding]:
    """Every setting of a sink that says which ones matter."""
    return [look(sink.target(), probe) for probe in sink.probes()] if isinstance(sink, Probing) else []


def versions() -> dict[str, str]:
    """What took part in an audit on this side."""
    return {
        "pakka": __version__,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "sqlite": sqlite3.sqlite_version,
    }
