"""What do dead letters and a second sink in the same epoch cost, against one sink?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import engine, rows, scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.engine import Run
from bench.measure import in_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = {"tiny": 2_000, "small": 2_000_000, "full": 10_000_000}
FILES = {"tiny": 8, "small": 16, "full": 16}
ROUNDS = {"tiny": 1, "small": 3, "full": 7}
WARM_UPS = {"tiny": 0, "small": 2, "full": 2}
RULE = "qty <> 13"
"""One of 97 quantities, so that about one row in a hundred is dead."""


def answer(size: str) -> Answer:
    spark = engine.open_spark()
    frame = engine.read_files(spark, rows.parquet_files(spark, ROWS[size], FILES[size]))
    with scratch.directory("fanout") as place:
        sides = {
            "one sink": _run(frame, place),
            "sink + dead letters": _run(frame, place, is_judged=True),
            "sink + second sink": _run(frame, place, second=("id", "sku", "created_at")),
            "sink + dead letters + second sink": _run(frame, place, is_judged=True, second=("id", "sku", "created_at")),
            "sink + dead letters + second sink of all columns": _run(frame, place, is_judged=True, second=("*",)),
        }
        runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    notes = (
        f"{ROWS[size]:,} rows of 8 columns, {engine.FILES_PER_EPOCH} of {FILES[size]} files an epoch, all sinks parquet; the rule is `{RULE}`, "
        "about 1 % dead; the second sink takes 3 columns of 8, except where all are said.",
    )
    return Answer("fanout", size, tuple(_figures(runs)), notes, ROUNDS[size])


def _figures(runs: dict[str, list[Run]]) -> list[Figure]:
    one = [r.wall_s for r in runs["one sink"]]
    figures = []
    for name, side in runs.items():
        if name != "one sink":
            goal = None if "all columns" in name else Goal(1.25)
            figures.append(Figure(f"{name}, against one", Spread.ratio([r.wall_s for r in side], one), "x", goal))
    for name, side in runs.items():
        figures.append(Figure(f"{name}, wall time", Spread.of([r.wall_s for r in side]), "s"))
        figures.append(Figure(f"{name}, processor time", Spread.of([r.cpu_s for r in side]), "s"))
    return figures


def _run(frame: DataFrame, place: Path, *, is_judged: bool = False, second: tuple[str, ...] = ()) -> Callable[[], Run]:
    import pakka
    from pakka.sinks.files import ParquetSink

    def run() -> Run:
        to: dict[str, Any] = {"out": ParquetSink(str(place / "run" / "out"))}
        if second:
            to["second"] = pakka.Output(ParquetSink(str(place / "run" / "second")), select=second)
        deliver = pakka.deliver(
            to,
            "bench",
            state=f"sqlite:///{place}/run/state.db",
            spool=str(place / "run" / "spool"),
            quality=[pakka.Rule.expr(RULE)] if is_judged else (),
            dead_letters=ParquetSink(str(place / "run" / "dead")) if is_judged else None,
        )
        writer = frame.writeStream.option("checkpointLocation", str(place / "run" / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        return engine.run_all(place / "run", lambda _: writer.foreachBatch(deliver).start(), deliver.close)

    return run
