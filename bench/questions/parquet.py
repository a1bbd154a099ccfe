"""Is the parquet sink as fast as Spark's own streaming file sink, which is at-least-once to most readers and never syncs?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench import engine, rows, scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.engine import Run
from bench.measure import in_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = {"tiny": 2_000, "small": 2_000_000, "full": 10_000_000}
FILES = {"tiny": 8, "small": 16, "full": 16}
ROUNDS = {"tiny": 1, "small": 5, "full": 7}
WARM_UPS = {"tiny": 0, "small": 3, "full": 2}
CODEC: Literal["snappy"] = "snappy"


def answer(size: str) -> Answer:
    spark = engine.open_spark()
    frame = engine.read_files(spark, rows.parquet_files(spark, ROWS[size], FILES[size]))
    with scratch.directory("parquet") as place:
        sides = {"pakka": _pakka(frame, place / "pakka"), "Spark": _spark(frame, place / "spark")}
        runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
        outputs = {"pakka": _output(place / "pakka" / "out"), "Spark": _output(place / "spark" / "out")}
    for name, (count, _, _) in outputs.items():
        if count != ROWS[size]:
            raise AssertionError(f"{name} wrote {count} rows of {ROWS[size]}")
    notes = (
        f"{ROWS[size]:,} rows of 8 columns from {FILES[size]} Parquet files, {engine.FILES_PER_EPOCH} an epoch, availableNow, one session; "
        f"both write {CODEC}, which is the default of both ({spark.conf.get('spark.sql.parquet.compression.codec')} in this Spark).",
        "Wall time from the start of the query to its end; pakka's recovery and the closing of its state are in it.",
        "; ".join(f"{n} wrote {c:,} rows, {b / 1e6:,.1f} MB in {f} files" for n, (c, b, f) in outputs.items()) + ".",
        "pakka syncs every file before it decides. Spark does not; with what its disk still had to take counted as well, "
        "see the line `both until durable`.",
    )
    return Answer("parquet", size, tuple(_figures(runs)), notes, ROUNDS[size])


def _figures(runs: dict[str, list[Run]]) -> list[Figure]:
    ours, theirs = runs["pakka"], runs["Spark"]
    figures = [
        Figure(
            "rows/s, pakka against Spark's streaming file sink",
            Spread.ratio(_rates(ours, lambda r: r.wall_s), _rates(theirs, lambda r: r.wall_s)),
            "x",
            Goal(0.95, is_floor=True),
        ),
        Figure("the same, counting epochs only", Spread.ratio(_rates(ours, _epochs_s), _rates(theirs, _epochs_s)), "x"),
        Figure(
            "the same, both until durable",
            Spread.ratio(_rates(ours, _durable_s), _rates(theirs, _durable_s)),
            "x",
        ),
        Figure("processor time, pakka against Spark", Spread.ratio(_cpu(ours), _cpu(theirs)), "x"),
    ]
    for name, side in runs.items():
        figures.append(Figure(f"{name}", Spread.of(_rates(side, lambda r: r.wall_s)), "rows/s"))
        figures.append(Figure(f"{name}, wall time", Spread.of([r.wall_s for r in side]), "s"))
        figures.append(Figure(f"{name}, processor time", Spread.of(_cpu(side)), "s"))
    return figures


def _rates(runs: list[Run], seconds: Callable[[Run], float]) -> list[float]:
    return [r.rows / seconds(r) for r in runs]


def _cpu(runs: list[Run]) -> list[float]:
    return [r.cpu_s for r in runs]


def _epochs_s(run: Run) -> float:
    return float(sum(e["durationMs"]["triggerExecution"] for e in run.epochs)) / 1e3


def _durable_s(run: Run) -> float:
    return run.wall_s + run.sync_s


def _pakka(frame: DataFrame, place: Path) -> Callable[[], Run]:
    import pakka
    from pakka.sinks.files import ParquetSink

    def run() -> Run:
        sink = ParquetSink(str(place / "out"), compression=CODEC)
        deliver = pakka.deliver([sink], "bench", state=f"sqlite:///{place}/state.db", spool=str(place / "spool"))
        writer = frame.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        return engine.run_all(place, lambda _: writer.foreachBatch(deliver).start(), deliver.close)

    return run


def _spark(frame: DataFrame, place: Path) -> Callable[[], Run]:
    def run() -> Run:
        writer = frame.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        writer = writer.format("parquet").option("path", str(place / "out")).option("compression", CODEC)
        return engine.run_all(place, lambda _: writer.start())

    return run


def _output(path: Path) -> tuple[int, int, int]:
    """Rows, bytes and files of an output, as a reader finds them."""
    import pyarrow.parquet as pq

    files = list(path.rglob("*.parquet"))
    return sum(pq.read_metadata(f).num_rows for f in files), sum(f.stat().st_size for f in files), len(files)


def profile(size: str) -> Answer:
    """Where the time of an epoch goes: the same stream, with one thing more in each variant."""
    from bench import variants

    spark = engine.open_spark()
    frame = engine.read_files(spark, rows.parquet_files(spark, ROWS[size], FILES[size]))
    with scratch.directory("profile") as place:
        sides = {name: _variant(frame, place, make) for name, make in variants.VARIANTS.items()}
        sides |= {"pakka, whole": _pakka(frame, place / "pakka"), "Spark's file sink": _spark(frame, place / "spark")}
        runs = in_turns(sides, ROUNDS[size], WARM_UPS[size])
    figures = [Figure(f"{name}, wall time", Spread.of([r.wall_s for r in side]), "s") for name, side in runs.items()]
    figures += [Figure(f"{name}, processor time", Spread.of(_cpu(side)), "s") for name, side in runs.items()]
    return Answer("parquet", size, tuple(figures), ("Each variant does all that the one above it does.",), ROUNDS[size])


def _variant(frame: DataFrame, place: Path, make: Callable[[Path], engine.OnBatch]) -> Callable[[], Run]:
    def run() -> Run:
        writer = frame.writeStream.option("checkpointLocation", str(place / "variant" / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        return engine.run_all(place / "variant", lambda clean: writer.foreachBatch(make(clean)).start())

    return run
