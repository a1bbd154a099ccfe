"""The shipped example from Kafka to Kafka, scraped while it goes on: every figure that somebody watches a closed loop by."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pakka.observe import endpoint
from pakka.observe.endpoint import Samples, fetch
from tests.fixtures.kafka import Topics, need_kafka, running_kafka
from tests.integration.conftest import CONNECTOR, need_connector
from tests.integration.kafka_kit import Clients

PAKKA = str(Path(sys.executable).with_name("pakka"))
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "refunds-kafka" / "refunds.yaml"
HOUR_S, DAY_S = 3600.0, 86400.0
# A quantile is off by at most a thirty-second part of itself.
OFF = 1 / 32

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def settlements(first: int, count: int) -> list[dict]:
    made = "2026-03-01T10:00:00Z"
    return [
        {"settlement_id": f"S{n:08}", "merchant": f"M{n}", "amount_paise": 100 + n, "ts": made}
        for n in range(first, first + count)
    ]


def ago_ms(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


@contextmanager
def running(here: Path, servers: str) -> Iterator[subprocess.Popen]:
    """The example as it is shipped, but that it goes on for ever."""
    (here / "refunds.yaml").write_text(EXAMPLE.read_text() + "trigger: {interval: 500ms}\n")
    environment = {**os.environ, "KAFKA_SERVERS": servers, "SPARK_KAFKA_JARS": str(CONNECTOR)}
    command = [PAKKA, "run", "refunds.yaml", "--json", "--metrics-port", "0"]
    with subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read_until_delivered(process: subprocess.Popen, rows: int) -> str:
    """Where the metrics are, once so many rows are in every sink."""
    url, seen = "", 0
    for line in process.stdout:
        event = json.loads(line)
        url = url or event.get("metrics", "")
        seen += event["rows_in"] if event["event"] == "delivered" else 0
        if seen >= rows:
            return url
    raise AssertionError(f"the run ended after {seen} rows")


def scrape_after_a_look(url: str) -> Samples:
    """Somebody looks every 15 s. How far behind the source is needs a decided epoch, and one under way is in doubt by right."""
    give_up = time.monotonic() + 120
    while True:
        found = fetch(url, "refunds")
        assert found is not None, "nobody serves the metrics"
        doubts = found.get("pakka_in_doubt_records", {}).values()
        if found.get("pakka_lag_records") and not any(doubts):
            return found
        assert time.monotonic() < give_up, f"nobody has looked, or all looks met an epoch: {found}"
        time.sleep(0.2)


def by(found: Samples, metric: str, label: str, **only: str) -> dict[str, float]:
    each = [(dict(labels), value) for labels, value in found[metric].items()]
    return {labels[label]: value for labels, value in each if only.items() <= labels.items()}


def test_every_figure_of_the_closed_loop_is_served_and_right(tmp_path, monkeypatch):
    need_kafka()
    need_connector()
    monkeypatch.setattr(endpoint, "_PATIENCE_S", 60.0)
    with running_kafka() as kafka:
        topic = Topics(kafka.bootstrap, prefix="").create("settlements", partitions=4)
        clients = Clients(kafka.bootstrap)
        # Of a hundred settlements, 95 are an hour old and 5 a day.
        clients.send(topic, settlements(0, 95), partition=0, timestamp=ago_ms(HOUR_S))
        clients.send(topic, settlements(95, 5), partition=1, timestamp=ago_ms(DAY_S))
        opened_at = time.monotonic()
        # By their own time these are two hours old. How long their transaction is open, its coordinator says.
        old = ago_ms(2 * HOUR_S)
        with clients.transaction(topic, settlements(200, 7), partition=2, timestamp=old) as hanging:
            with running(tmp_path, kafka.bootstrap) as process:
                url = read_until_delivered(process, 200)
                found = scrape_after_a_look(url)
                open_s = time.monotonic() - opened_at
                status = told_by_status(tmp_path)
                process.send_signal(signal.SIGINT)
                process.stdout.read()
                assert process.wait(timeout=120) == 0
            hanging.abort_transaction(30)
    check_commits_and_doubts(found)
    check_latency(found)
    check_lag(found, open_s)
    check_status(status)


def told_by_status(here: Path) -> dict:
    done = subprocess.run(
        [PAKKA, "status", "refunds", "--json"], cwd=here, capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)["live"]


def check_commits_and_doubts(found: Samples) -> None:
    sinks = {"refunds", "dead_letters"}
    epochs = found["pakka_epochs_delivered_total"][()]
    assert epochs >= 1
    assert by(found, "pakka_commits_total", "sink") == dict.fromkeys(sinks, epochs)
    for aborts in ("pakka_records_aborted_total", "pakka_replays_aborted_total"):
        assert by(found, aborts, "sink") == dict.fromkeys(sinks, 0)
    # All is delivered, and nothing more comes.
    for doubts in ("pakka_in_doubt_records", "pakka_in_doubt_oldest_seconds"):
        assert by(found, doubts, "sink") == dict.fromkeys(sinks, 0)


def check_latency(found: Samples) -> None:
    """Two rows are made of each settlement, and each has its time."""
    assert found["pakka_record_latency_seconds_count"][()] == 200
    took = {float(edge): n for edge, n in by(found, "pakka_record_latency_seconds_bucket", "le").items()}
    assert (took[1800], took[14400], took[DAY_S], took[float("inf")]) == (0, 190, 190, 200)
    quantiles = by(found, "pakka_record_latency_quantile_seconds", "quantile")
    assert HOUR_S * (1 - OFF) <= quantiles["0.5"] < HOUR_S * 1.2
    assert DAY_S * (1 - OFF) <= quantiles["0.99"] < DAY_S * 1.1


def check_lag(found: Samples, open_s: float) -> None:
    source = {"part": "source", "topic": "settlements"}
    assert by(found, "pakka_lag_records", "partition", **source) == dict.fromkeys("0123", 0)
    assert by(found, "pakka_lso_lag_records", "partition", **source) == {"0": 0, "1": 0, "2": 7, "3": 0}
    oldest = by(found, "pakka_open_transaction_oldest_seconds", "partition", **source)
    assert {partition for partition, age_s in oldest.items() if age_s} == {"2"}
    assert 0 < oldest["2"] <= open_s
    assert by(found, "pakka_looks_failed_total", "part")["source"] == 0


def check_status(live: dict) -> None:
    assert live["commits"]["refunds"]["per_s"] > 0
    assert live["aborts"]["refunds"]["count"] == 0
    assert live["latency_s"]["0.5"] >= HOUR_S * (1 - OFF)
    assert [(lag["topic"], lag["partition"], lag["records"]) for lag in live["lso_lag"] if lag["records"]] == [
        ("settlements", 2, 7)
    ]
    assert live["oldest_open_transaction_s"] > 0
    assert live["in_doubt"]["refunds"]["count"] == 0
