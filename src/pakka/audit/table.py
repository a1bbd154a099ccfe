"""The compliance table: audits every sink that pakka ships, and writes what was seen.

Sinks that are known to be bad stand in it too. Nothing in the page is typed: a test audits all of them again and compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args, get_type_hints

from pakka import registry
from pakka.audit.render import table
from pakka.audit.report import FAILURES, MENDS, Report, Verdict
from pakka.audit.run import audit, versions
from pakka.contract.audit import ContractGuarantee
from pakka.contract.sink import Sink
from pakka.registry import Role
from pakka.testing.known_bad import FakeReceiver, NaiveWebhookSink

MADE = "Made on "
"""How the one line begins that differs from day to day and from machine to machine."""

_HEAD = """\
# Sinks, audited

Every line of this page comes from `pakka audit`, run against the sink itself: nothing is typed by hand. `make compliance` makes it again.
What is done to a sink for each guarantee stands in [the guide](../guides/audit.md).
"""
_BAD = """\
The webhook is a sink as people write it: it posts each row without an idempotency key, against a web server that stands in for the receiver.
What is refused is told before anything is done to it.
"""

Refusals = Mapping[str, tuple[str, str]]
"""By its name, what is said of something that an audit refuses to touch, and the hint."""


def reports(servers: Mapping[str, str]) -> list[tuple[str, Report]]:
    """Audit every sink there is, each on ground of its own. `servers` are URLs by the names of the sinks that need one."""
    with tempfile.TemporaryDirectory(prefix="pakka-compliance-") as place, closing(FakeReceiver()) as receiver:
        sinks: list[tuple[str, Sink]] = []
        for name in registry.SINKS:
            sinks += _by_way(name, servers[name]) if name in servers else [(name, _made(name, Path(place)))]
        sinks.append(("naive HTTP webhook", NaiveWebhookSink(receiver.url)))
        return [(name, audit(sink, name)) for name, sink in sinks]


def _by_way(name: str, url: str) -> Iterator[tuple[str, Sink]]:
    """The sink once in each of the ways that it can be told."""
    made = registry.find(Role.SINK, name)
    ways = get_args(get_type_hints(made)["way"])
    for way in sorted(way for way in ways if way != "auto"):
        yield f"{name}, {way}", replace(made.from_url(url), way=way)


def _made(name: str, place: Path) -> Sink:
    made = registry.find(Role.SINK, name)
    options = {"path": str(place / name), "table": "refunds"}
    sink: Sink = made(**{key: value for key, value in options.items() if key in made.__dataclass_fields__})
    return sink


def page(audited: Sequence[tuple[str, Report]], refused: Refusals, today: str) -> str:
    """The whole page."""
    servers = {
        name.partition(",")[0]: finding.value
        for name, report in audited
        for finding in report.findings
        if finding.name == "server version"
    }
    made_with = ", ".join(f"{name} {number}" for name, number in {**versions(), **servers}.items())
    head = ["sink", "way", *map(str, ContractGuarantee), "exactly-once"]
    rows = [
        [
            name,
            report.promise.way.value,
            *(str(a.verdict) for a in report.answers),
            "yes" if report.is_exactly_once else "NO",
        ]
        for name, report in audited
    ]
    rows += [[name, "refused", *("-" for _ in ContractGuarantee), "NO"] for name in refused]
    lines = [
        _HEAD,
        f"{MADE}{today} with {made_with}.",
        "",
        *table(head, rows),
        "",
        _BAD,
        "## What failed, and what mends it",
    ]
    for name, report in audited:
        lines += _failures(name, report)
    for name, (message, hint) in refused.items():
        lines += [f"\n### {name}\n", f"- refused: {message}.", f"- what mends it: {hint}."]
    return "\n".join([*lines, ""])


def _failures(name: str, report: Report) -> Iterator[str]:
    failed = [a for a in report.answers if a.verdict is Verdict.FAIL]
    if not failed:
        return
    yield f"\n### {name}\n"
    for answer in failed:
        yield f"- **{answer.guarantee}**"
        for evidence in answer.evidence:
            if evidence.holds is False:
                yield f"  - {evidence.done}: {evidence.seen}."
        yield f"  - what follows: {FAILURES[answer.guarantee]}."
        yield f"  - what mends it: {MENDS[answer.guarantee]}."
    if report.promise.mend:
        yield f"- {report.promise.mend}."


def write(to: Path, servers: Mapping[str, str], refused: Refusals) -> None:
    """Make the page anew."""
    to.write_text(page(reports(servers), refused, f"{datetime.now(UTC):%Y-%m-%d}"), encoding="utf-8")
