"""`python -m bench` lists the questions, `python -m bench QUESTION` answers one, and `--write` puts the answer on the page; `core`, `sql` and `kafka` ask several, `all` asks all."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

from bench import curve, machine, page
from bench.answer import Answer
from bench.scratch import ROOT

CORE_QUESTIONS = {
    "parquet": "rows/s of the parquet sink against Spark's own streaming file sink",
    "overhead": "what an epoch costs above foreachBatch(pass)",
    "fanout": "one sink against sink + dead letters + second sink in the same epoch",
    "state": "decide, settle and recover after 100,000 epochs against after 100",
    "memory": "driver memory over 10,000 epochs",
    "slots": "decision and commit of an epoch of 10,000 slots",
    "protocol": "exactly-once against the same sink without the protocol",
}
SQL_QUESTIONS = {
    "postgres": "rows/s of the PostgreSQL sink against Spark's JDBC writer, and against psql",
    "mariadb": "rows/s of the MySQL sink on MariaDB against Spark's JDBC writer",
    "upsert": "an upsert into a large table against JDBC and INSERT ... ON CONFLICT by hand",
    "sql-protocol": "exactly-once on PostgreSQL against the same COPY without prepare, fence and ledger",
    "sql-memory": "memory of driver and workers over many epochs into PostgreSQL",
}
KAFKA_QUESTIONS = {
    "kafka-append": "records/s of the Kafka sink against Spark's own, and against a plain confluent-kafka loop",
    "kafka-protocol": "exactly-once on Kafka against the same producer without spool, transaction, ledger and offsets",
    "kafka-produce": "records/s into Kafka against a plain confluent-kafka loop, and what a transaction costs",
    "kafka-shards": "an epoch in shards, each sent by a process of its own, against the driver in one transaction",
}
QUESTIONS = CORE_QUESTIONS | SQL_QUESTIONS | KAFKA_QUESTIONS
GROUPS = {"core": CORE_QUESTIONS, "sql": SQL_QUESTIONS, "kafka": KAFKA_QUESTIONS}
SIZES = ("tiny", "small", "full")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("question", nargs="?", choices=[*QUESTIONS, *GROUPS, "all"], help="none lists them")
    parser.add_argument("--size", choices=SIZES, default="small", help="tiny shows that it runs, and measures nothing")
    parser.add_argument("--json", action="store_true", help="each answer as a line of JSON on stdout")
    parser.add_argument("--profile", action="store_true", help="parquet, overhead: also show where the time goes")
    parser.add_argument(
        "--write", action="store_true", help=f"write each answer to {page.PAGE.relative_to(ROOT)} at once"
    )
    options = parser.parse_args(arguments)
    if options.write and options.size == "tiny":
        parser.error("--write: the page has no place for what measures nothing")
    if options.question is None:
        for name, words in QUESTIONS.items():
            print(f"{name:14} {words}")
        return 0
    if options.question in QUESTIONS:
        answer = ask(options.question, options.size, options.profile)
        print(json.dumps(answer.to_json()) if options.json else page.render(answer, machine.describe()))
        if options.write and not answer.figures:
            print(f"{options.question}: nothing was measured, so the page stays as it is", file=sys.stderr)
            return 1
        if options.write:
            page.write(page.PAGE, answer, machine.describe())
            curve.write(curve.PAGE, answer, machine.describe())
        return 0
    questions = [q for group, of in GROUPS.items() if options.question in (group, "all") for q in of]
    return ask_each(questions, options)


def ask(question: str, size: str, is_profiled: bool = False) -> Answer:
    """Answer one question in this process."""
    module = importlib.import_module(f"bench.questions.{question.replace('-', '_')}")
    load, began = os.getloadavg()[0], time.monotonic()
    work = module.profile if is_profiled and hasattr(module, "profile") else module.answer
    answer: Answer = work(size)
    return replace(answer, took_s=time.monotonic() - began, load=(load, os.getloadavg()[0]))


def ask_each(questions: Iterable[str], options: argparse.Namespace) -> int:
    """Have each question answered by a process of its own: none inherits another's memory, threads or warm JVM."""
    switches = [f"--{name}" for name in ("json", "profile", "write") if getattr(options, name)]
    failed = []
    for question in questions:
        print(f"{question}: {QUESTIONS[question]} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "bench", question, "--size", options.size, *switches]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(question)
    if failed:
        print(f"no answer to: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
