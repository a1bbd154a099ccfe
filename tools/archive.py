"""Archive the classes that Spark and Kafka load, so that the JVMs of the tests start in half the time. Done once for a .venv.

It is a speed-up and nothing else: a JVM that finds no archive, or one of another Java, starts as ever.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.kafka import broker

SPARK = Path(sys.prefix) / "share" / "spark" / "classes.jsa"


def main() -> None:
    _make(SPARK, _run_spark)
    if broker.find_jars() is not None:
        _make(broker.ARCHIVE, _run_kafka)


def _make(archive: Path, run: Callable[[list[str], Path], None]) -> None:
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f"{archive.name}.{os.getpid()}")
    # Most of what it has to say is of classes that it leaves out.
    quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
    with tempfile.TemporaryDirectory() as scratch:
        run(["-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={partial}", *quiet], Path(scratch))
    if partial.exists():
        # Moved in one step: one that is half there would be taken for whole by the next call.
        partial.rename(archive)
    outcome = "is made" if archive.exists() else "could not be made; tests take longer"
    sys.stderr.write(f"setup-archive: {archive.parent.name}/{archive.name} {outcome}\n")


def _run_kafka(options: list[str], scratch: Path) -> None:
    """A transaction in small."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    kafka = broker.Kafka(scratch, is_quick=False)
    kafka.create()
    (node,) = kafka.nodes
    node.java = [node.java[0], *options, *node.java[1:]]
    try:
        kafka.start()
        where = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        admin = AdminClient(where)
        admin.create_topics([NewTopic("archive", 1, 1)])["archive"].result(60)
        producer = Producer({**where, "transactional.id": "archive"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("archive", b"x")
        producer.commit_transaction(60)
        node.stop()  # by which it writes the archive
    finally:
        kafka.kill()


def _run_spark(options: list[str], scratch: Path) -> None:
    """A stream in small: whatever classes it loads are archived when the JVM ends."""
    from pyspark.sql import DataFrame

    from pakka.spark.session import open_session

    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

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
