"""Archive the classes that Spark loads, so that the JVMs of the tests start in half the time. Done once for a .venv.

It is a speed-up and nothing else: a JVM that finds no archive, or one of another Java, starts as ever.
"""

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "share" / "spark" / "classes.jsa"


def main() -> None:
    if ARCHIVE.exists():
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    partial = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    # Most of what it has to say is of classes that it leaves out.
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={partial} {quiet}"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as scratch:
        _load_classes(Path(scratch))
    if partial.exists():
        # Moved in one step: one that is half there would be taken for whole by the next call.
        partial.rename(ARCHIVE)
    sys.stderr.write(
        f"setup-archive: {ARCHIVE.name} {'is made' if ARCHIVE.exists() else 'could not be made; tests take longer'}\n"
    )


def _load_classes(scratch: Path) -> None:
    """A stream in small: whatever classes it loads are archived when the JVM ends."""
    from pyspark.sql import DataFrame

    from pakka.spark.session import open_session

    def deliver(batch: DataFrame, _: int) -> None:
        hashed = batch.selectExpr("a", "b", "xxhash64(a, b) AS h", "to_json(struct(a, b)) AS j")
        hashed.coalesce(2).mapInArrow(lambda batches: batches, hashed.schema).collect()

    (scratch / "in").mkdir()
    (scratch / "in" / "a.json").write_text('{"a": 1, "b": "x"}\n')
    spark = open_session("archive", {"spark.master": "local[2]"}, scratch / "spark.log")
    rows = spark.readStream.schema("a BIGINT, b STRING").json(str(scratch / "in"))
    checkpoint = str(scratch / "checkpoint")
    stream = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    stream.foreachBatch(deliver).start().awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    main()
