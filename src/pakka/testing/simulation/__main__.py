"""`python -m pakka.testing.simulation`: run many seeds, or show one."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from pakka.testing.simulation.report import Tally, failure_lines
from pakka.testing.simulation.run import simulate

_FAILURES_MOST = 3
"""One broken rule fails many seeds; more than a few tell nothing new."""


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Run what the command line says. 1: a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m pakka.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="only this one, with its history")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _show(given.seed, write)
    return _run(given.first, given.seeds, write)


def command_of(seed: int) -> str:
    """The one command that repeats a seed."""
    return f"make simulate SEED={seed}"


def _show(seed: int, write: Callable[[str], object]) -> int:
    result = simulate(seed)
    if result.failure is not None:
        write("\n".join(failure_lines(result, command_of(seed), is_whole=True)) + "\n")
        return 1
    write("\n".join([*result.lines(), f"seed {seed}: every rule held"]) + "\n")
    return 0


def _run(first: int, seeds: int, write: Callable[[str], object]) -> int:
    tally = Tally()
    began = told = time.monotonic()
    for seed in range(first, first + seeds):
        result = simulate(seed)
        tally.add(result)
        now = time.monotonic()
        if now - told > 1:
            told = now
            sys.stderr.write(f"\r{tally.progress(seeds, now - began)} ")
        if result.failure is not None:
            write("\n".join(failure_lines(result, command_of(seed))) + "\n\n")
            if len(tally.failures) == _FAILURES_MOST:
                break
    sys.stderr.write(f"\r{tally.progress(seeds, time.monotonic() - began)} \n")
    write("\n".join(tally.lines(time.monotonic() - began)) + "\n")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
