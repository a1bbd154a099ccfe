"""`pakka run`, over a stand-in for Spark that plays the events of a run."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from pakka.errors import FencedError
from pakka.model.event import Delivered, Started, Stopped
from pakka.model.id import Binding
from pakka.observe import endpoint
from pakka.observe.endpoint import fetch
from pakka.observe.sampler import Sampler
from pakka.sinks.kafka import KafkaSink
from tests.cli.conftest import PIPELINE

EVENTS = [
    Started("refunds", 2, -1, 0, 0),
    Delivered("refunds", 0, True, 1000, {"refunds": 990, "dead_letters": 10}, 10, 0, 0.5, 0.02),
    Stopped("refunds", 1, 1000, "done"),
]


@pytest.fixture
def spark(monkeypatch):
    """Stands for `pakka.spark.run`: plays EVENTS, and keeps what it was called with."""
    module = types.ModuleType("pakka.spark.run")
    module.calls = []

    def run(pipeline, *, listen, stop, verbose=False, metrics=""):
        module.calls.append((pipeline, stop, verbose, threading.current_thread(), metrics))
        for event in EVENTS:
            listen(event)
            module.on_event(event)
        return EVENTS[-1]

    module.run = run
    module.on_event = lambda event: None
    monkeypatch.setitem(sys.modules, "pakka.spark.run", module)
    return module


def test_a_run_tells_how_it_stands_on_stderr(pakka, refunds, spark):
    result = pakka("run", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (
        re.sub(r"commits \S+/min", "commits RATE/min", result.stderr)
        == """\
refunds  starting Spark
refunds: fence 2; nothing was delivered before
refunds  epoch 0  2,000 rows/s  lag 0 s  commits RATE/min, p99 20 ms  dead 10  in 1,000  out refunds 990
refunds: done after 1 epoch: 1,000 rows in; out refunds 990; 10 dead, 0 dropped
"""
    )


@pytest.mark.postgres
def test_a_run_is_judged_by_the_way_that_its_sinks_have_chosen(pakka, refunds, spark, postgres_url, monkeypatch):
    """The server prepares 64 transactions, so the sink spools: that is as good."""
    monkeypatch.setenv("SHOP", postgres_url)
    sink = 'postgres: {url: "${env:SHOP}", table: refunds}'
    refunds.write_text(PIPELINE.replace("memory: {space: refunds}", sink) + "slots: 65\n")
    for verb in ("check", "run"):
        result = pakka(verb, "refunds.yaml", "--require", "exactly-once")
        assert (result.exit_code, "warning" in result.stderr) == (0, False), result.stderr
    ((pipeline, *_),) = spark.calls
    assert pipeline == pipeline.chosen()
    assert pipeline.outputs["refunds"].sink.way == "spooled"


def test_programs_get_one_event_a_line(pakka, refunds, spark):
    result = pakka("run", "refunds.yaml", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            "event": "started",
            "pipeline": "refunds",
            "fence": 2,
            "committed": -1,
            "finished": 0,
            "aborted": 0,
            "undone": {},
        },
        {
            "event": "delivered",
            "pipeline": "refunds",
            "epoch": 0,
            "is_new": True,
            "rows_in": 1000,
            "rows_out": {"refunds": 990, "dead_letters": 10},
            "dead": 10,
            "dropped": 0,
            "epoch_s": 0.5,
            "commit_s": 0.02,
            "prepare_s": 0.0,
            "decide_s": 0.0,
            "swept": {},
            "latency": None,
        },
        {"event": "stopped", "pipeline": "refunds", "epochs": 1, "rows_in": 1000, "reason": "done"},
    ]


def test_a_setting_that_breaks_the_guarantee_is_told_before_the_start(pakka, refunds, spark, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libeatmydata.so")
    told = pakka("run", "refunds.yaml").stderr.splitlines()[0]
    assert told.startswith("warning: fsync of the state store: it is libeatmydata: ")
    refused = pakka("run", "refunds.yaml", "--require", "exactly-once")
    assert refused.exit_code == 1
    assert "exactly-once is required: fsync of the state store" in refused.stderr
    assert len(spark.calls) == 1


def test_a_quiet_run_says_nothing(pakka, refunds, spark):
    result = pakka("run", "refunds.yaml", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_spark_is_told_what_the_user_wants(pakka, refunds, spark):
    pakka("run", "refunds.yaml")
    pakka("run", "refunds.yaml", "--verbose")
    assert [(call[0].name, call[2]) for call in spark.calls] == [("refunds", False), ("refunds", True)]


def test_spark_runs_beside_the_main_thread(pakka, refunds, spark):
    """pyspark would replace the handler of SIGINT if it were started on the main thread."""
    pakka("run", "refunds.yaml")
    assert spark.calls[0][3] is not threading.main_thread()


def test_an_error_of_the_run_is_the_error_of_the_command(pakka, refunds, spark):
    def run(pipeline, *, listen, stop, verbose, metrics):
        raise FencedError.of("pipeline `refunds`", "refunds", 7, 8)

    spark.run = run
    result = pakka("run", "refunds.yaml")
    assert result.exit_code == 4
    assert result.stderr.endswith(
        "error: pipeline `refunds`: fence 7 lost to fence 8; nothing was changed by fence 7\n\n"
        "hint: another driver is running; stop this one, or see the owner with `pakka status refunds`\n"
    )


class Silent:
    """A look at the last transaction of a Kafka sink that nobody answers."""

    def wait(self, patience_s):
        return None


def leave_unseen(event):
    """What a Kafka sink does at the end of a run, if its brokers are away."""
    if isinstance(event, Delivered):
        applier = KafkaSink("127.0.0.1:1", topic="one").open_applier(Binding("refunds", "out", ""))
        applier._look = Silent()
        applier.close()


UNSEEN = "sink `refunds.out`: whether the last transaction of `pakka.refunds.out` is visible in all of its partitions was not seen: "


def test_what_a_sink_says_beside_its_answers_is_told(pakka, refunds, spark):
    spark.on_event = leave_unseen
    result = pakka("run", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    told = [line for line in result.stderr.splitlines() if "was not seen" in line]
    assert len(told) == 1
    assert told[0].startswith(f"refunds: {UNSEEN}the brokers did not answer; the next run sees to it")


def test_programs_get_what_a_sink_says_as_an_event(pakka, refunds, spark):
    spark.on_event = leave_unseen
    result = pakka("run", "refunds.yaml", "--json")
    (event,) = [e for e in map(json.loads, result.stdout.splitlines()) if e["event"] == "noticed"]
    assert event["message"].startswith(UNSEEN)
    assert (event["pipeline"], event["about"], event["sink"]) == ("refunds", "unsettled", "out")
    assert result.stderr == ""


def test_what_a_sink_says_to_nobody_goes_to_stderr():
    """As from Python, where nobody listens and no logs are set up."""
    code = (
        "from pakka.sinks.kafka import KafkaSink; from pakka.notice import notice; notice('sink `a.b`', 'mended', 'told now');"
        "import logging; logging.getLogger('librdkafka').warning('a broker is away')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (result.stdout, result.stderr) == ("", "sink `a.b`: told now\n")


def test_metrics_are_served_while_the_run_goes_on_and_no_longer(pakka, refunds, spark, monkeypatch):
    monkeypatch.setattr(endpoint, "_PATIENCE_S", 60.0)
    seen = []
    spark.on_event = lambda _: seen.append(fetch(spark.calls[0][4], "refunds"))
    result = pakka("run", "refunds.yaml", "--metrics-port", "0")
    url = spark.calls[0][4]
    assert result.exit_code == 0
    assert result.stderr.startswith(f"refunds: metrics at {url}\nrefunds  starting Spark\n")
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]*/metrics", url)
    assert [samples["pakka_rows_in_total"][()] for samples in seen] == [0, 1000, 1000]
    running = ("state", "running"), ("state", "stopped")
    assert [[samples["pakka_state"][(s,)] for s in running] for samples in seen] == [[1, 0], [1, 0], [0, 1]]
    assert fetch(url, "refunds") is None


def test_programs_are_told_where_the_metrics_are(pakka, refunds, spark):
    result = pakka("run", "refunds.yaml", "--metrics-port", "0", "--json")
    assert json.loads(result.stdout.splitlines()[0]) == {
        "event": "serving",
        "pipeline": "refunds",
        "metrics": spark.calls[0][4],
    }
    assert result.stderr == ""


def test_a_run_without_the_option_serves_nothing(pakka, refunds, spark):
    pakka("run", "refunds.yaml")
    assert spark.calls[0][4] == ""


def test_metrics_need_their_library(pakka, refunds, spark, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith("pakka.observe")]:
        monkeypatch.delitem(sys.modules, name)
    result = pakka("run", "refunds.yaml", "--metrics-port", "0")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --metrics-port needs the library `prometheus_client`, which is not installed\n\n"
        "hint: pip install 'pakka[metrics]'\n"
    )
    assert spark.calls == []


def test_a_port_that_is_taken_starts_nothing(pakka, refunds, spark):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = pakka("run", "refunds.yaml", "--metrics-port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "nothing was started\n\nhint: choose another port, or `--metrics-port 0`" in result.stderr
    assert spark.calls == []


def test_a_requirement_that_is_not_met_starts_nothing(pakka, refunds, spark):
    refunds.write_text(PIPELINE + "dead_letters: {console: }\n")
    result = pakka("run", "refunds.yaml", "--require", "exactly-once")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: pipeline `refunds` is at-least-once, and exactly-once is required: ")
    assert spark.calls == []


def test_a_wrong_file_starts_nothing(pakka, refunds, spark):
    refunds.write_text(PIPELINE + "slot: 3\n")
    assert pakka("run", "refunds.yaml").exit_code == 2
    assert spark.calls == []


def test_the_handlers_of_signals_are_put_back(pakka, refunds, spark):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    pakka("run", "refunds.yaml")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# A run in a process of its own, which ends when it is asked to and the test has said `go`, or never.
CHILD = """
import sys, time, types
from pakka.model.event import Delivered, Started, Stopped

def run(pipeline, *, listen, stop, verbose, metrics):
    listen(Started("refunds", 1, -1, 0, 0))
    stop.wait(50)
    while {hangs}:
        time.sleep(0.05)
    listen(Delivered("refunds", 0, True, 10, {{"refunds": 10}}, 0, 0, 0.1, 0.01))
    listen(Stopped("refunds", 1, 10, "asked"))

module = types.ModuleType("pakka.spark.run")
module.run = run
sys.modules["pakka.spark.run"] = module
from pakka.cli import main
main(["run", "refunds.yaml"])
"""


@pytest.fixture
def child(refunds):
    """Start a run; `hangs` is a Python condition during which it does not end."""
    children = []

    def start(hangs: str = "False", **streams) -> subprocess.Popen:
        code = "from pathlib import Path\n" + CHILD.format(hangs=hangs)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        children.append(subprocess.Popen([sys.executable, "-c", code], text=True, **options))
        return children[-1]

    yield start
    for process in children:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_until(process: subprocess.Popen, words: str) -> str:
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, f"the run ended after: {said}"
        said += line
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_between_two_epochs(child, number):
    process = child()
    read_until(process, "fence 1")
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    # The answer to the signal comes from a thread of its own, and may be the last line.
    assert "refunds: stopped as asked after 1 epoch: 10 rows in; out refunds 10; 0 dead, 0 dropped\n" in said


def test_a_second_signal_is_told_to_wait(child, current_directory):
    process = child(hangs="not Path('go').exists()")
    read_until(process, "fence 1")
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping after the epoch under way\n")
    process.send_signal(signal.SIGINT)
    said = read_until(process, "still waiting")
    assert said == "still waiting for that epoch; a third signal ends the process at once, and the next run recovers\n"
    (current_directory / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_third_signal_ends_the_process(child):
    process = child(hangs="True")
    read_until(process, "fence 1")
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping after")
    process.send_signal(signal.SIGINT)
    read_until(process, "still waiting")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


def test_a_terminal_sees_a_line_that_is_drawn_over(child):
    ours, theirs = pty.openpty()
    process = child(
        hangs="not Path('go').exists()", stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    )
    os.close(theirs)
    seen = b""
    while b"waiting for the first epoch" not in seen:
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGTERM)
    while b"stopping" not in seen:
        seen += os.read(ours, 4096)
    Path("go").touch()
    while b"stopped as asked after 1 epoch" not in seen:
        seen += os.read(ours, 4096)
    assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b"\x1b[2K" in seen


def test_a_terminal_sees_what_is_in_doubt(refunds):
    """No metrics are served, and all the same somebody looks."""
    looks = (
        "from pakka.observe.sampler import Sampler\n"
        "Sampler.look = lambda self: self.figures.see_doubts({{'refunds': (3, 190.0)}}, [])\n"
    )
    ours, theirs = pty.openpty()
    code = (looks + CHILD).format(hangs="True")
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=theirs, env=env)
    os.close(theirs)
    try:
        seen = b""
        while b"waiting for the first epoch  in doubt 3 for 3 min" not in seen:
            seen += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_lines_that_are_not_drawn_over_show_what_is_in_doubt_too(pakka, refunds, spark, monkeypatch):
    has_looked = threading.Event()

    def look(sampler):
        sampler.figures.see_doubts({"refunds": (3, 190.0)}, [])
        has_looked.set()

    monkeypatch.setattr(Sampler, "look", look)
    spark.on_event = lambda _: has_looked.wait(60)
    told = pakka("run", "refunds.yaml").stderr
    assert "refunds  epoch 0  in doubt 3 for 3 min  2,000 rows/s" in told


@pytest.mark.parametrize(
    ("options", "is_looked"),
    [
        ([], True),
        (["--verbose"], True),
        (["--quiet"], False),
        (["--json"], False),
        (["--json", "--metrics-port", "0"], True),
        (["--quiet", "--metrics-port", "0"], True),
    ],
)
def test_nobody_looks_where_nobody_would_see_it(pakka, refunds, spark, monkeypatch, options, is_looked):
    started = []

    def start(sampler):
        started.append(sampler)

    monkeypatch.setattr(Sampler, "start", start)
    assert pakka("run", "refunds.yaml", *options).exit_code == 0
    assert len(started) == is_looked


def test_the_screen_keeps_its_voice_while_spark_turns_stderr_over_to_a_log(refunds, current_directory):
    code = CHILD.format(hangs="False").replace(
        'listen(Started("refunds", 1, -1, 0, 0))',
        'import os; log = os.open("log", os.O_CREAT | os.O_WRONLY); os.dup2(log, 2)\n'
        '    listen(Started("refunds", 1, -1, 0, 0)); stop.set()',
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "refunds: fence 1; nothing was delivered before" in result.stderr
    assert (current_directory / "log").read_text() == ""
