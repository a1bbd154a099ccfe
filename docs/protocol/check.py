"""Check the protocol with TLC: the true one must hold at every size, and every broken one must be found out.

`make model` runs all of it; `make model ARGS="no-ledger --trace"` runs what is named and shows TLC's counterexample;
`make model ARGS=--write` puts the results into README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAR = HERE.parents[1] / ".venv" / "share" / "tla" / "tla2tools.jar"

INVARIANTS = (
    "NothingUndecidedIsVisible",
    "NothingIsVisibleTwice",
    "NothingDecidedIsAborted",
    "NoOlderFenceHasAnEffect",
    "AcknowledgedIsVisibleOnce",
    "AggregatedEpochsAreWhole",
    "RecoveryLeavesNoLitter",
    "NobodyIsRefusedInVain",
    "OneDecisionIsOpen",
)
LIVENESS = "EveryEpochArrives"

BEGIN = "<!-- results: made by `make model ARGS=--write` -->"
END = "<!-- end of results -->"


@dataclass(frozen=True)
class Size:
    """How much of the world is looked at. All interleavings within these bounds are."""

    drivers: int
    slots: int
    epochs: int
    extra_attempts: int
    store_losses: int = 0
    is_live: bool = False
    """Also check that every epoch arrives in the end, which costs several times as much."""
    spared: tuple[str, ...] = ()
    """Promises that do not hold here. README.md says why, and what follows."""
    is_long: bool = False
    """Takes minutes: run only if it is named, or for README.md."""

    def __str__(self) -> str:
        counts = [
            (self.drivers, "driver", "drivers"),
            (self.slots, "slot", "slots"),
            (self.epochs, "epoch", "epochs"),
            (self.extra_attempts, "extra attempt", "extra attempts"),
            (self.store_losses, "loss of the state store", "losses of the state store"),
        ]
        return ", ".join(f"{count} {one if count == 1 else several}" for count, one, several in counts if count)


SIZES = {
    "small": Size(2, 1, 2, 0, is_live=True),
    "slots": Size(2, 2, 2, 0, is_live=True),
    "attempts": Size(2, 2, 2, 1),
    "drivers": Size(3, 1, 2, 0),
    "loss": Size(2, 2, 1, 0, store_losses=1),
    "loss-epochs": Size(2, 1, 2, 0, store_losses=1, spared=("NobodyIsRefusedInVain",)),
    "loss-drivers": Size(
        3, 1, 1, 0, store_losses=1, spared=("NobodyIsRefusedInVain", "NothingDecidedIsAborted"), is_long=True
    ),
}
BROKEN_SIZE = Size(2, 2, 2, 0)
# Some steps are only missed when an attempt is late, or when the state store is lost.
BROKEN_SIZES = {
    "no-sweep": Size(1, 1, 1, 1, is_live=True),
    "no-owner-check": Size(2, 2, 1, 0, store_losses=1),
    "held-before-raise": Size(2, 2, 1, 0, store_losses=1),
}

# What each broken protocol does, and which promise it breaks first. Protocol.tla has them under the same names.
BROKEN = {
    "no-raise": ("the fence is not raised in the sinks", "NoOlderFenceHasAnEffect"),
    "no-fence-in-store": ("the state store does not check the fence of a decision", "NothingDecidedIsAborted"),
    "state-before-fence": ("decisions are read before the fence is taken", "NothingDecidedIsAborted"),
    "checkpoint-before-fence": ("the checkpoint is read before the fence is taken", "NobodyIsRefusedInVain"),
    "settle-before-raise": ("recovery settles, then raises the fence", "RecoveryLeavesNoLitter"),
    "no-commit-in-recovery": ("recovery does not commit what is decided", "RecoveryLeavesNoLitter"),
    "no-abort-in-recovery": ("recovery does not abort what is undecided", "RecoveryLeavesNoLitter"),
    "raise-once": ("a sink that cannot raise the fence yet is not asked again", "RecoveryLeavesNoLitter"),
    "no-owner-check": (
        "recovery settles without asking the state store again who owns the pipeline",
        "NothingDecidedIsAborted",
    ),
    "held-before-raise": (
        "what sinks hold of an epoch is read before the fence is raised in them",
        "NothingIsVisibleTwice",
    ),
    "replay-unasked": ("a replayed epoch is run again without a look at what is committed", "NobodyIsRefusedInVain"),
    "slots-uncounted": ("the epoch is decided with the slots that happen to have reported", "AggregatedEpochsAreWhole"),
    "commit-before-decide": ("sinks commit, then the decision is written", "NothingUndecidedIsVisible"),
    "abort-on-unknown": ("no answer to the decision is taken for a no", "NothingDecidedIsAborted"),
    "abort-after-decide": ("no answer to a commit is taken for a no", "NothingDecidedIsAborted"),
    "unknown-is-success": ("no answer to a commit is taken for a yes", "AcknowledgedIsVisibleOnce"),
    "no-ledger": ("a sink that is asked again commits again", "NothingIsVisibleTwice"),
    "epoch-in-parts": ("the aggregated sink shows an epoch slot by slot", "AggregatedEpochsAreWhole"),
    "abort-any-fence": ("an abort also takes what a newer driver has prepared", "NothingDecidedIsAborted"),
    "acknowledge-before-commit": ("Spark is told before the sinks have committed", "AcknowledgedIsVisibleOnce"),
    "no-sweep": ("nothing is swept between two starts", LIVENESS),
}


@dataclass(frozen=True)
class Case:
    """One run of the checker."""

    name: str
    size: Size
    broken: str = "none"
    expected: str = ""
    """The promise that must be found broken; empty: all must hold."""

    @property
    def is_quick(self) -> bool:
        """Done within seconds, in which Java's better compiler and a second thread only get in the way."""
        return bool(self.expected) or self.size.drivers * self.size.slots <= 2


@dataclass(frozen=True)
class Result:
    """What the checker found."""

    violated: str
    """The name of a broken promise, "" if all hold, "?" if the checker itself failed."""
    generated: int
    distinct: int
    seconds: float
    output: str


def cases() -> dict[str, Case]:
    """Every case by name: the true protocol at each size, then the broken ones."""
    found = {name: Case(name, size) for name, size in SIZES.items()}
    for name, (_, expected) in BROKEN.items():
        found[name] = Case(name, BROKEN_SIZES.get(name, BROKEN_SIZE), name, expected)
    return found


def missing() -> str:
    """What is not here that the checker needs, and how to get it; empty if all is here."""
    if _java() is None:
        return "no Java on this machine; `make setup` says how to get it"
    if not JAR.exists():
        return "no TLC on this machine; `make setup-model` fetches it"
    return ""


def check(case: Case, timeout_s: float = 900) -> Result:
    """Run TLC on one case, in a directory of its own."""
    java = _java()
    assert java is not None, missing()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pakka-model-") as scratch:
        shutil.copy(HERE / "Protocol.tla", scratch)
        Path(scratch, "Protocol.cfg").write_text(_config(case), encoding="utf-8")
        tuning = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if case.is_quick else ["-XX:+UseParallelGC"]
        command = [java, *tuning, "-Xmx3g", f"-Djava.io.tmpdir={scratch}", "-cp", str(JAR), "tlc2.TLC"]
        command += ["-workers", "1" if case.is_quick else "2", "-deadlock", "-metadir", scratch, "Protocol"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=timeout_s, check=False)
    return _result(done.stdout + done.stderr, time.monotonic() - began)


def _config(case: Case) -> str:
    size = case.size
    lines = [
        "SPECIFICATION Spec",
        "CONSTANTS",
        f"  LastEpoch = {size.epochs - 1}",
        f"  SlotCount = {size.slots}",
        f"  DriverCount = {size.drivers}",
        f"  ExtraAttempts = {size.extra_attempts}",
        f"  StoreLosses = {size.store_losses}",
        f'  Broken = "{case.broken}"',
        "INVARIANTS",
        *(f"  {name}" for name in INVARIANTS if name not in size.spared),
    ]
    return "\n".join(lines + ([f"PROPERTY {LIVENESS}"] if size.is_live else [])) + "\n"


def _result(output: str, seconds: float) -> Result:
    invariant = re.search(r"Invariant (\w+) is violated", output)
    if invariant is not None:
        violated = invariant[1]
    elif "Temporal properties were violated" in output:
        violated = LIVENESS
    else:
        violated = "" if "No error has been found" in output else "?"
    counted = re.findall(r"^(\d+) states generated, (\d+) distinct states found", output, re.MULTILINE)
    generated, distinct = map(int, counted[-1]) if counted else (0, 0)
    return Result(violated, generated, distinct, seconds, output)


def _java() -> str | None:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def _row(case: Case, result: Result) -> str:
    what = BROKEN[case.name][0] if case.expected else str(case.size)
    spared = " and ".join(f"`{name}`" for name in case.size.spared)
    held = "holds" + (f", but for {spared}" if spared else "") + (", and ends well" if case.size.is_live else "")
    found = f"`{result.violated}` is broken" if result.violated else held
    cells = [f"`{case.name}`", what, found, f"{result.distinct:,}", f"{result.seconds:.0f} s"]
    return f"| {' | '.join(cells)} |"


def _check_all(chosen: list[Case], shows_trace: bool) -> Iterator[tuple[bool, str]]:
    """Each case in turn: is it as it must be, and its row for the table."""
    for case in chosen:
        result = check(case)
        is_right = result.violated == case.expected
        if shows_trace or not is_right:
            sys.stderr.write(result.output)
        if not is_right:
            sys.stderr.write(f"model: `{case.name}` gave `{result.violated}` where `{case.expected}` was expected\n")
        yield is_right, _row(case, result)


def _write(rows: list[str]) -> None:
    """Put the table into README.md, where the last one was."""
    page = HERE / "README.md"
    table = "\n".join([BEGIN, *rows, END])
    text, found = re.subn(f"{BEGIN}.*{END}", lambda _: table, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert found == 1, f"README.md needs one place between `{BEGIN}` and `{END}`"
    page.write_text(text, encoding="utf-8")


def main() -> int:
    """Run the named cases, or all of them. Returns 1 if one is not as it must be, 2 if the checker is not here."""
    parser = argparse.ArgumentParser(description="Check the protocol with TLC.")
    parser.add_argument(
        "names", nargs="*", metavar="CASE", help=f"one of {', '.join(cases())}; those that take minutes only if named"
    )
    parser.add_argument(
        "--trace", action="store_true", help="show what TLC printed, with the steps to the broken promise"
    )
    parser.add_argument("--write", action="store_true", help="put the results of all cases into README.md")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(cases()))
    if unknown:
        parser.error(f"no case `{unknown[0]}`; there are {', '.join(cases())}")
    if asked.write and asked.names:
        parser.error("`--write` needs all cases, so none may be named")
    if missing():
        sys.stderr.write(f"model: {missing()}\n")
        return 2
    rows = ["| case | what | found | states | time |", "| --- | --- | --- | --- | --- |"]
    sys.stdout.write("\n".join(rows) + "\n")
    fine = True
    quick = [name for name, case in cases().items() if asked.write or not case.size.is_long]
    for is_right, row in _check_all([cases()[n] for n in asked.names or quick], asked.trace):
        fine &= is_right
        rows.append(row)
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    if fine and asked.write:
        _write(rows)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
