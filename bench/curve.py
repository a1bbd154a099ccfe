"""The curve in docs/guides/kafka-batch-size.md: what an epoch of so many records costs in time, and how many a second it carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import page
from bench.answer import Answer, Figure, Spread

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "kafka-batch-size.md"


def write(path: Path, answer: Answer, machine: Mapping[str, str]) -> None:
    """Draw the part of the curve that this question answers, if it does and was asked at full size. All other words stay as they are."""
    if answer.question not in _PARTS or answer.size != "full":
        return
    figures = {figure.what: figure for figure in answer.figures}
    head, rows = _PARTS[answer.question]
    table = [f"| {head} |", f"| {' | '.join(['---:'] + ['---'] * head.count('|'))} |", *rows(figures)]
    under = f"{page.on_what(machine)} Load {answer.load[0]:.1f} before, {answer.load[1]:.1f} after."
    page.put(path, f"{answer.question} {answer.size}", "\n".join(["", *table, "", under, ""]))


def _alone(figures: Mapping[str, Figure]) -> Iterator[str]:
    from bench.questions.kafka_produce import TRANSACTIONS, transaction_of

    for count in sorted({n for counts in TRANSACTIONS.values() for n in counts}):
        if (alone := figures.get(transaction_of(count))) is not None:
            yield f"| {count:,} | {_cell(alone)} |"


def _whole(figures: Mapping[str, Figure]) -> Iterator[str]:
    from bench.questions.kafka_protocol import EPOCH_ROWS, in_spark

    for count in sorted({n for counts in EPOCH_ROWS.values() for n in counts}):
        if (whole := figures.get(f"{in_spark(count)}, pakka")) is not None:
            yield f"| {count:,} | {_cell(whole)} | {_cell(_rate(whole, count))} |"


_PARTS: dict[str, tuple[str, Callable[[Mapping[str, Figure]], Iterator[str]]]] = {
    "kafka-produce": ("records | the transaction alone", _alone),
    "kafka-protocol": ("records | a whole epoch in Spark | so many a second", _whole),
}


def _rate(whole: Figure, count: int) -> Figure:
    """Epochs one after another, with no pause."""
    of = whole.spread
    spread = Spread(*(count / ms * 1e3 for ms in (of.median, of.high, of.low)))
    return Figure(whole.what, spread, "rows/s")


def _cell(figure: Figure) -> str:
    spread = page.spread_of(figure)
    return f"{figure.number(figure.spread.median)}{f' ({spread})' if spread else ''}"
