"""What an audit says: a verdict for each guarantee with the evidence for it, and the settings that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from pakka.contract.audit import ContractGuarantee, Finding, Severity
from pakka.model.guarantee import Level, SinkGuarantee


class Verdict(Enum):
    """What became of a guarantee."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_APPLICABLE = "NOT APPLICABLE"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was done to the sink, and what was seen. `holds` is None where it could not be done."""

    done: str
    seen: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A guarantee, the evidence for or against it, and what follows if it is not kept."""

    guarantee: ContractGuarantee
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        if any(e.holds is False for e in self.evidence):
            return Verdict.FAIL
        return Verdict.PASS if any(e.holds for e in self.evidence) else Verdict.NOT_APPLICABLE

    @property
    def failure(self) -> str:
        """What a user of the sink has to expect; empty if the guarantee is kept."""
        return FAILURES[self.guarantee] if self.verdict is Verdict.FAIL else ""

    @property
    def mend(self) -> str:
        """The layer that would mend it; empty if the guarantee is kept."""
        return MENDS[self.guarantee] if self.verdict is Verdict.FAIL else ""


FAILURES: Mapping[ContractGuarantee, str] = {
    ContractGuarantee.ISOLATION: "readers act on rows of an epoch that is not committed, or only half of it, and that may yet "
    "be aborted and run again with the same rows",
    ContractGuarantee.SEPARATION: "a crash between prepare and commit loses the epoch's rows, or leaves rows that nobody decided",
    ContractGuarantee.IDEMPOTENCE: "after a crash or a lost answer the epoch is committed again, and its rows are there twice; or "
    "what was aborted stays",
    ContractGuarantee.REJECTION: "a driver that was frozen or cut off wakes up and writes its epoch beside that of the driver which "
    "has taken over: rows are there twice",
}

MENDS: Mapping[ContractGuarantee, str] = {
    ContractGuarantee.ISOLATION: "keep rows in pakka's spool until the decision and apply them in one transaction "
    "(`pakka.sinks.spooled`); without transactions, write to a staging table and switch a view",
    ContractGuarantee.SEPARATION: "prepare into something durable that another process can finish: pakka's spool, a prepared "
    "transaction, or staged files",
    ContractGuarantee.IDEMPOTENCE: "a ledger row in the transaction of the rows; else a de-duplication table, MERGE keys, or an "
    "idempotency key that the receiver remembers",
    ContractGuarantee.REJECTION: "check the fence in the transaction of the rows (a fence row that is locked, a conditional put); "
    "else middleware in front of the receiver that remembers fence and idempotency key",
}


@dataclass(frozen=True, slots=True)
class Report:
    """All that an audit has found out."""

    target: str
    kind: str
    promise: SinkGuarantee
    answers: tuple[Answer, ...]
    findings: tuple[Finding, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def failed(self) -> Sequence[str]:
        """Names of guarantees and settings that failed."""
        guarantees = [str(a.guarantee) for a in self.answers if a.verdict is Verdict.FAIL]
        return guarantees + [f.name for f in self.findings if f.severity is Severity.BREAKS]

    @property
    def unseen(self) -> Sequence[str]:
        """Names of guarantees that could not be asked for."""
        return [str(a.guarantee) for a in self.answers if a.verdict is Verdict.NOT_APPLICABLE]

    @property
    def is_exactly_once(self) -> bool:
        """All four were seen to hold, no setting takes one away, and the sink itself promises it.

        There is no word for what is less: whether rows may come twice or be lost depends on what failed.
        """
        return not self.failed and not self.unseen and self.promise.level is Level.EXACTLY_ONCE

    @property
    def verdict(self) -> str:
        """The report in a few words."""
        return f"was {'' if self.is_exactly_once else 'not '}seen to be exactly-once"

    def to_json(self) -> dict[str, Any]:
        answers = [
            {
                "guarantee": str(a.guarantee),
                "verdict": str(a.verdict),
                "evidence": [asdict(e) for e in a.evidence],
                "failure": a.failure,
                "mend": a.mend,
            }
            for a in self.answers
        ]
        findings = [_as_json(f) for f in self.findings]
        return {
            "target": self.target,
            "kind": self.kind,
            "promise": {
                "level": str(self.promise.level),
                "way": self.promise.way.value,
                "because": self.promise.because,
            },
            "is_exactly_once": self.is_exactly_once,
            "failed": list(self.failed),
            "guarantees": answers,
            "settings": findings,
            "versions": dict(self.versions),
            "took_s": round(self.took_s, 3),
        }


@dataclass(frozen=True, slots=True)
class Lint:
    """What is known of the other side: programs that read what pakka writes, or that write beside it. Nothing is done to them."""

    target: str
    kind: str
    findings: tuple[Finding, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def answers(self) -> tuple[Answer, ...]:
        """None: a guarantee is asked of a sink."""
        return ()

    @property
    def failed(self) -> Sequence[str]:
        """Names of settings that failed."""
        return [f.name for f in self.findings if f.severity is Severity.BREAKS]

    @property
    def verdict(self) -> str:
        """The report in a few words."""
        return f"{'is' if self.failed else 'was not seen to be'} set up against exactly-once"

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "kind": self.kind,
            "failed": list(self.failed),
            "settings": [_as_json(f) for f in self.findings],
            "versions": dict(self.versions),
            "took_s": round(self.took_s, 3),
        }


def _as_json(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "severity": str(finding.severity)}
