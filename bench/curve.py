"""The curve in docs/guides/kafka-batch-size.md: what an epoch of so many records costs in time, and how many a second it carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import page
from bench.answer import Answer, Figure, Spread

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "kafka-batch-size.md"
GROUP = "kafka-batch-size"
"""What its places are called, one for each size."""
_HEAD = [
    "| records an epoch | the transaction alone | a whole epoch in Spark | so many a second |",
    "| ---: | --- | --- | --- |",
]


def write(path: Path, size: str, answers: Sequence[Answer], machine: Mapping[str, str]) -> None:
    """Draw the curve from the answers to `kafka-produce` and `kafka-protocol`. All other words stay as they are."""
    rows = list(_rows({figure.what: figure for answer in answers for figure in answer.figures}))
    loads = [load for answer in answers for load in answer.load]
    under = f"{page.on_what(machine)} Load {min(loads):.1f} to {max(loads):.1f}." if loads else page.on_what(machine)
    page.put(path, GROUP, size, "\n".join(["", *_HEAD, *rows, "", under, ""]))


def _rows(figures: Mapping[str, Figure]) -> Iterator[str]:
    from bench.questions.kafka_produce import TRANSACTIONS, transaction_of
    from bench.questions.kafka_protocol import EPOCH_ROWS, in_spark

    for count in sorted({n for of in (TRANSACTIONS, EPOCH_ROWS) for counts in of.values() for n in counts}):
        alone, whole = figures.get(transaction_of(count)), figures.get(f"{in_spark(count)}, pakka")
        if alone is not None or whole is not None:
            yield f"| {count:,} | {_cell(alone)} | {_cell(whole)} | {_cell(whole and _rate(whole, count))} |"


def _rate(whole: Figure, count: int) -> Figure:
    """Epochs one after another, with no pause."""
    of = whole.spread
    spread = Spread(*(count / ms * 1e3 for ms in (of.median, of.high, of.low)))
    return Figure(whole.what, spread, "rows/s")


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    spread = page.spread_of(figure)
    return f"{figure.number(figure.spread.median)}{f' ({spread})' if spread else ''}"
