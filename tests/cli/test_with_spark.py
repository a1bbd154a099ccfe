"""What `pakka init` promises, and a clean stop, with Spark itself."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import dataset

PAKKA = str(Path(sys.executable).with_name("pakka"))

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOR_EVER = """\
pipeline: ticks
source: {rate: {rows_per_epoch: 50}}
sinks: {ticks: {sqlite: {path: ticks.db, table: ticks}}}
trigger: {interval: 200ms}
"""


@pytest.mark.in_turn("guide", "example")
def test_the_example_runs_as_it_is(pakka, current_directory):
    pakka("init")
    run = subprocess.run(
        [PAKKA, "run", "refunds.yaml", "--json"], capture_output=True, text=True, timeout=280, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    stopped = json.loads(run.stdout.splitlines()[-1])
    assert (stopped["event"], stopped["epochs"], stopped["reason"]) == ("stopped", 3, "done")
    refunds = dataset.dataset("out/refunds", format="parquet").to_table()["refund_id"].to_pylist()
    dead = dataset.dataset("out/dead", format="parquet").count_rows()
    with closing(sqlite3.connect("out/audit.db")) as db:
        audit = [i for (i,) in db.execute("SELECT refund_id FROM refund_audit")]
    assert len(refunds) + dead == 2400
    assert dead > 0
    assert len(set(refunds)) == len(refunds)
    assert sorted(audit) == sorted(refunds)
    told = json.loads(pakka("status", "refunds", "--json").stdout)
    assert (told["committed"], told["rows_in"], told["dead"], told["in_doubt"]) == (2, 2400, dead, [])


def test_a_run_that_goes_on_for_ever_ends_between_two_epochs_when_asked(current_directory):
    (current_directory / "ticks.yaml").write_text(FOR_EVER)
    with subprocess.Popen([PAKKA, "run", "ticks.yaml", "--json"], stdout=subprocess.PIPE, text=True) as process:
        events = []
        try:
            for line in process.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "delivered" and events[-1]["epoch"] == 1:
                    process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            if process.poll() is None:
                process.kill()
    delivered = [event for event in events if event["event"] == "delivered"]
    assert (events[-1]["event"], events[-1]["reason"]) == ("stopped", "asked")
    with closing(sqlite3.connect("ticks.db")) as db:
        values = [i for (i,) in db.execute("SELECT value FROM ticks ORDER BY value")]
    assert values == list(range(50 * len(delivered)))
