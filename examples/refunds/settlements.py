"""Make settlements as JSON files, a few of them broken: what a payment provider drops into a directory.

python examples/refunds/settlements.py data/settlements --rows 200000
"""

import argparse
import random
from pathlib import Path

FILES = 20
BROKEN_PER_MILLE = 5
AMOUNT_MAX = 100_000_000


def make(directory: Path, rows: int, seed: int = 7) -> None:
    """Write `rows` lines into `FILES` files. The same seed makes the same lines."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    broken = {n: chance.randrange(len(_BROKEN)) for n in range(rows) if chance.randrange(1000) < BROKEN_PER_MILLE}
    for file in range(FILES):
        first, last = rows * file // FILES, rows * (file + 1) // FILES
        lines = [_BROKEN[broken[n]](n) if n in broken else _good(n) for n in range(first, last)]
        (directory / f"settlements-{file:03}.json").write_text("".join(line + "\n" for line in lines))


def _line(n: int, merchant: str, amount: str) -> str:
    at = f"2026-03-{1 + n % 28:02}T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z"
    return f'{{"settlement_id":"S{n:08}","merchant":{merchant},"amount_paise":{amount},"ts":"{at}"}}'


def _good(n: int) -> str:
    return _line(n, f'"M{n * 7919 % 5000:04}"', str(1 + n * 104_729 % AMOUNT_MAX))


_BROKEN = [
    lambda n: _good(n)[:-20],  # cut off, as by a full disk
    lambda n: _line(n, f'"M{n % 5000:04}"', '"12 rupees"'),  # a type that changed
    lambda n: _line(n, "null", "4200"),
    lambda n: _line(n, '"M0042"', str(-n)),
    lambda n: _line(n, '"M0042"', str(AMOUNT_MAX + 1)),
    lambda n: _line(n, "null", "0"),  # breaks two rules, and is one dead letter
]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make settlements as JSON files, a few of them broken.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    given = parser.parse_args()
    make(given.directory, given.rows)
