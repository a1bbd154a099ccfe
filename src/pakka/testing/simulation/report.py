"""What a person reads of many seeds, and of one that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pakka.testing.crash import POINTS
from pakka.testing.simulation.plan import Fault
from pakka.testing.simulation.run import Result

_REAL = ("task.file.", "task.sql.", "task.kafka.", "commit.kafka.", "commit.move", "commit.published")
REACHABLE = tuple(point for point in POINTS if not point.startswith(_REAL))
"""The crash points of the coordinator, of tasks and of sinks in general; the others are inside real sinks."""

_TAIL = 60


@dataclass
class Tally:
    """The sum of many seeds."""

    seeds: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.counts.update(result.counts)
        if result.failure is not None:
            self.failures.append(result)

    def progress(self, seeds: int, elapsed_s: float) -> str:
        """The line that is written over and over while seeds run."""
        pace = self.seeds / max(elapsed_s, 1e-9) * 60
        faults = sum(self.counts[f.value] for f in Fault)
        return f"{self.seeds}/{seeds} seeds, {pace:.0f} a minute, {faults} faults, {len(self.failures)} failed"

    def lines(self, elapsed_s: float) -> list[str]:
        """What was done to the protocol, and what it did."""
        counts = self.counts
        pace = self.seeds / max(elapsed_s, 1e-9) * 60
        lines = [
            f"{self.seeds} seeds, {pace:.0f} a minute; {self.steps} steps, {len(self.failures)} failed",
            "",
            "faults",
        ]
        lines += [f"  {counts[f.value]:>8}  {f.value}" for f in Fault]
        lines += ["", "crashes at each point"]
        lines += [f"  {counts[f'crash at {p}']:>8}  {p}, reached {counts[f'reach {p}']} times" for p in REACHABLE]
        lines += ["", "how drivers ended"]
        ends = sorted(name for name in counts if name.startswith("driver: "))
        lines += [f"  {counts[name]:>8}  {name.removeprefix('driver: ')}" for name in ends]
        known = {f.value for f in Fault} | set(ends)
        rest = [n for n in sorted(counts) if n not in known and not n.startswith(("crash at", "reach "))]
        return [*lines, "", "what was seen", *(f"  {counts[name]:>8}  {name}" for name in rest)]


def failure_lines(result: Result, command: str, is_whole: bool = False) -> list[str]:
    """A broken rule, the command that shows it again, and how it came to it."""
    assert result.failure is not None
    history = result.lines()
    shown = history if is_whole else history[-_TAIL:]
    left_out = len(history) - len(shown)
    return [
        f"seed {result.seed}: broken: {result.failure.rule}",
        f"  {result.failure.what}",
        f"  sinks: {', '.join(f'{name} ({kind})' for name, kind in result.plan.sinks)}; rows: {result.plan.rows}",
        f"  again: {command}",
        *([f"  ... {left_out} lines before"] if left_out else []),
        *(f"  {line}" for line in shown),
    ]
