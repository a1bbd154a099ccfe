"""An audit in the forms that other programs read: JUnit for builds, Markdown for pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as xml

from pakka.audit.report import Answer, Lint, Report, Verdict
from pakka.contract.audit import Finding, Severity

# What XML has no way to write, and an error of a sink may hold.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report | Lint) -> str:
    """A test suite with a case for each guarantee and each setting."""
    cases = [*(_guarantee_case(a) for a in report.answers), *(_setting_case(f) for f in report.findings)]
    suite = xml.Element(
        "testsuite",
        name=f"pakka audit {report.target}",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{report.took_s:.3f}",
    )
    suite.extend(cases)
    xml.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + _UNWRITABLE.sub("?", xml.tostring(suite, encoding="unicode"))


def _guarantee_case(answer: Answer) -> xml.Element:
    case = xml.Element("testcase", classname="pakka.audit.guarantee", name=str(answer.guarantee))
    if answer.verdict is Verdict.FAIL:
        failure = xml.SubElement(case, "failure", message=answer.failure)
        failure.text = "\n".join([*evidence_lines(answer), f"mend: {answer.mend}"])
    elif answer.verdict is Verdict.NOT_APPLICABLE:
        xml.SubElement(case, "skipped", message="; ".join(e.seen for e in answer.evidence))
    else:
        xml.SubElement(case, "system-out").text = "\n".join(evidence_lines(answer))
    return case


def _setting_case(finding: Finding) -> xml.Element:
    case = xml.Element("testcase", classname="pakka.audit.setting", name=finding.name)
    told = f"{finding.value}: {finding.why}"
    if finding.severity is Severity.BREAKS:
        xml.SubElement(case, "failure", message=told).text = f"mend: {finding.fix}"
    else:
        xml.SubElement(case, "system-out").text = f"{finding.severity}: {told}"
    return case


def markdown(report: Report | Lint) -> str:
    """Two tables: the guarantees with their evidence, and the settings."""
    lines = [f"## {report.target}", "", f"It {report.verdict}."]
    if report.answers:
        head = ["guarantee", "verdict", "what was done", "what was seen"]
        told = [[str(a.guarantee), str(a.verdict), e.done, e.seen] for a in report.answers for e in a.evidence]
        lines += ["", *table(head, told)]
    lines += [line for a in report.answers if a.failure for line in ("", *_consequence(a))]
    if report.findings:
        head = ["setting", "found", "severity", "why it matters", "what mends it"]
        rows = [[f.name, f.value, str(f.severity), f.why, f"`{f.fix}`" if f.fix else ""] for f in report.findings]
        lines += ["", *table(head, rows)]
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    return "\n".join([*lines, "", f"With {versions}."])


def _consequence(answer: Answer) -> Iterator[str]:
    yield f"Without {answer.guarantee}: {answer.failure}."
    yield f"What mends it: {answer.mend}."


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def evidence_lines(answer: Answer) -> Iterator[str]:
    """One line a case: whether it held, what was done, what was seen."""
    for evidence in answer.evidence:
        mark = {True: "held", False: "failed", None: "not applicable"}[evidence.holds]
        yield f"{mark}: {evidence.done}: {evidence.seen}"
