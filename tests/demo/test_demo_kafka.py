"""`make demo-kafka`, small: it is killed inside Kafka's transaction, recovers, and its own count says that all is there once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.test_demo import figures
from tests.fixtures.kafka import need_kafka, running_kafka
from tests.integration.conftest import need_connector

ROOT = Path(__file__).resolve().parents[2]
ROWS = 30_000

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.in_turn("demo", "kafka"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> "subprocess.CompletedProcess[str]":
    need_kafka()
    need_connector()
    directory = tmp_path_factory.mktemp("demo") / "work"
    command = [
        sys.executable,
        str(ROOT / "examples/refunds-kafka/demo.py"),
        "--dir",
        str(directory),
        "--rows",
        str(ROWS),
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PAKKA_DRILL"} | {"COLUMNS": "120"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def test_every_record_is_there_once_after_a_kill_inside_a_transaction_of_kafka(told):
    table = figures(told.stdout)
    assert table["rows in"] == [ROWS]
    for output in ("refunds emitted", "refund audit", "dead letters"):
        expected, there, lost, twice = table[output]
        assert (there, lost, twice) == (expected, 0, 0)
    assert table["offsets of group refunds"] == [ROWS, ROWS]


def test_the_open_transaction_and_the_recovery_are_told(told):
    words = " ".join(told.stderr.split())
    there, committed = re.search(
        r"in Kafka ([\d,]+) records, and ([\d,]+) of them for a read_committed reader", words
    ).groups()
    assert int(there.replace(",", "")) > int(committed.replace(",", ""))
    assert "killed by SIGKILL, in the middle of the commit of epoch 2" in words
    assert "fence 2 recovered: 1 decided epoch finished" in words
    assert "epoch 2 is in every sink; Spark is told so, nothing is written" in words


def test_the_example_can_be_followed_by_hand(tmp_path):
    """The lines of its header, on a broker that has no topic yet."""
    need_kafka()
    need_connector()
    example = ROOT / "examples/refunds-kafka"
    with running_kafka() as kafka:
        jars = str(ROOT / ".venv/share/spark-kafka")
        environment = {**os.environ, "KAFKA_SERVERS": kafka.bootstrap, "SPARK_KAFKA_JARS": jars}
        for words in (
            [sys.executable, str(example / "send.py"), "--rows", "1000"],
            [str(Path(sys.executable).with_name("pakka")), "run", str(example / "refunds.yaml")],
        ):
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"  record to commit p50 [\d,.]+ s, p99 [\d,.]+ s  ", done.stderr)
    # Every settlement is a refund and a line for the audit, and one that cannot be read is a dead letter.
    assert re.search(r"done after \d+ epochs?: 1,99\d rows in; out refunds 1,\d+; \d+ dead, 0 dropped", done.stderr)
