"""The metrics of a real run, scraped over HTTP while it goes on."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pakka.observe import endpoint
from pakka.observe.endpoint import fetch

PAKKA = str(Path(sys.executable).with_name("pakka"))

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOR_EVER = """\
pipeline: ticks
source: {rate: {rows_per_epoch: 50}}
process: SELECT value, current_timestamp() - INTERVAL 1 HOUR AS made FROM source
record_time: made
quality: [{range: {column: value, min: 5}}]
sinks:
  ticks: {sqlite: {path: ticks.db, table: ticks}}
  copies: {parquet: {path: out/copies}, select: [value]}
dead_letters: {parquet: {path: out/dead}}
trigger: {interval: 200ms}
"""


def run_until(process: subprocess.Popen, epoch: int) -> list[dict]:
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "delivered" and events[-1]["epoch"] >= epoch:
            return events
    raise AssertionError(f"the run ended before epoch {epoch}: {events[-3:]}")


def test_a_run_is_scraped_while_it_goes_on(pakka, current_directory, monkeypatch):
    monkeypatch.setattr(endpoint, "_PATIENCE_S", 60.0)
    (current_directory / "ticks.yaml").write_text(FOR_EVER)
    command = [PAKKA, "run", "ticks.yaml", "--json", "--metrics-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            events = run_until(process, 2)
            url = events[0]["metrics"]
            found = fetch(url, "ticks")
            status = json.loads(pakka("status", "ticks", "--json").stdout)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(timeout=60) == 0
        finally:
            if process.poll() is None:
                process.kill()
    check_figures(found)
    assert fetch(url, "ticks") is None
    assert (status["owner"]["metrics"], status["live"]["state"]) == (url, "running")
    assert 3600 * 0.9 < status["live"]["latency_s"]["0.5"] < 3600 * 1.2
    assert {e["event"] for e in events} == {"serving", "started", "committed", "delivered"}


def check_figures(found: dict) -> None:
    epochs = found["pakka_epochs_delivered_total"][()]
    rows = found["pakka_rows_in_total"][()]
    assert epochs >= 3
    assert (rows, found["pakka_rows_dead_total"][()]) == (50 * epochs, 5)
    out = {dict(labels)["sink"]: n for labels, n in found["pakka_rows_out_total"].items()}
    assert out == {"ticks": rows - 5, "copies": rows - 5, "dead_letters": 5}
    assert found["pakka_committed_epoch"][()] == epochs - 1
    assert found["pakka_epoch_seconds_count"][()] == epochs
    assert min(found["pakka_commits_total"].values()) >= epochs
    assert found["pakka_state"][(("state", "running"),)] == 1
    # Every row has a record time, an hour before its epoch.
    assert found["pakka_record_latency_seconds_count"][()] == rows
    took = {dict(labels)["le"]: n for labels, n in found["pakka_record_latency_seconds_bucket"].items()}
    assert (took["1800.0"], took["14400.0"]) == (0, rows)
    assert set(found["pakka_in_doubt_records"]) == {(("sink", sink),) for sink in out}
