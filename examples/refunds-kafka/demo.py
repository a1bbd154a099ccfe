"""The refunds story from Kafka to Kafka: a driver killed inside Kafka's own transaction, and a count of what came out.

    make demo-kafka      make demo-kafka ARGS="--rows 20000 --verbose"

It starts a broker of its own. Every figure of the table at the end is counted by count.py with a consumer of its own, not taken
from pakka.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent / "refunds"), str(ROOT / "tools" / "kafka")]

import broker  # noqa: E402
import count  # noqa: E402
import send  # noqa: E402
import settlements  # noqa: E402
import stage  # noqa: E402
from rich.console import Console  # noqa: E402
from stage import say, talk  # noqa: E402

from pakka.testing.crash import Drill  # noqa: E402

PIPELINE = HERE / "refunds.yaml"
CONNECTOR = ROOT / ".venv" / "share" / "spark-kafka"
TOPICS = {send.TOPIC: send.PARTITIONS, count.EMITTED: 4, count.AUDIT: 1, count.DEAD: 1}
KILL_IN_EPOCH = 2


def main() -> int:
    parser = argparse.ArgumentParser(description="Deliver refunds from Kafka to Kafka, be killed, and count.")
    given = stage.arguments(parser, 100_000, settlements.FILES, ROOT / ".demo-kafka")
    if broker.find_jars() is None or not CONNECTOR.is_dir():
        sys.exit("there is no Kafka broker here, or no connector for Spark; `make setup-kafka` fetches both")
    began = time.monotonic()
    stage.make_room(given.dir)
    with talk.status("starting a Kafka broker"):
        running = broker.running_kafka()
        kafka = running.__enter__()
    try:
        return _story(given, kafka.bootstrap, began)
    finally:
        running.__exit__(None, None, None)


def _story(given: argparse.Namespace, servers: str, began: float) -> int:
    inputs = given.dir / "settlements"
    with talk.status(f"sending {given.rows:,} settlements to Kafka"):
        settlements.make(inputs, given.rows)
        send.make_topics(servers, TOPICS)
        send.send(servers, inputs)
    talk.print(f"sent {given.rows:,} settlements to Kafka at {servers}, about 1 in 200 of them broken\n")
    variables = {"KAFKA_SERVERS": servers, "SPARK_KAFKA_JARS": str(CONNECTOR)}

    # Refunds and dead letters are two sinks, each with a transaction of its own. When this strikes, all records of the epoch are in Kafka, and
    # those of the sink that came second in a transaction that nobody will end.
    drill = Drill("commit.kafka.ending", epoch=KILL_IN_EPOCH, nth=2)
    talk.print(
        f"[bold]first run[/]    pakka run {PIPELINE.name}, to be killed inside the transaction of epoch {KILL_IN_EPOCH}"
    )
    code = stage.run(given, PIPELINE, {**variables, **drill.environment()})
    if code != -signal.SIGKILL:
        return stage.fail(given.dir, f"the first run was to be killed by SIGKILL, and ended with exit code {code}")
    say("killed", f"[red]by SIGKILL[/], in the middle of the commit of epoch {KILL_IN_EPOCH}")
    say("in Kafka", _at_the_kill(servers))

    talk.print(f"\n[bold]second run[/]   pakka run {PIPELINE.name}")
    code = stage.run(given, PIPELINE, variables)
    if code != 0:
        return stage.fail(given.dir, f"the second run was to finish, and ended with exit code {code}")

    talk.print()
    with talk.status("counting what is in Kafka"):
        counted = count.count(servers, inputs)
    _show(counted)
    talk.print(f"[dim]counted by a read_committed consumer of its own; {time.monotonic() - began:.0f} s in all[/]")
    return stage.finish(given, counted.wrong())


def _at_the_kill(servers: str) -> str:
    """What readers find at this very moment."""
    seen = {
        level: sum(1 for topic in TOPICS if topic != count.SETTLEMENTS for _ in count.records(servers, topic, level))
        for level in ("read_committed", "read_uncommitted")
    }
    return (
        f"{seen['read_uncommitted']:,} records, and {seen['read_committed']:,} of them for a read_committed reader: the others are in a "
        "transaction that is still open"
    )


def _show(counted: count.Counted) -> None:
    table = stage.outputs_table(counted.rows_in, counted.outputs)
    right = counted.group == counted.ends
    reached, end = (f"{sum(offsets.values()):,}" for offsets in (counted.group, counted.ends))
    table.add_row(f"offsets of group {count.GROUP}", end, reached, "", "", style="" if right else "red")
    table.add_row("kills survived", "", "1", "", "")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing of the demo is running any more")
