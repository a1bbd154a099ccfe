"""`pakka status`: what the state store knows."""

import json
import os
import re
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pakka.cli.render import duration, per_minute
from pakka.contract.lag import Lag
from pakka.contract.state import Decision, Owner
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.event import Aborted, Committed, Delivered, Noticed, Retried, Started
from pakka.model.id import Slot
from pakka.model.latency import Latency
from pakka.model.prepared import Prepared
from pakka.observe import endpoint
from pakka.observe.endpoint import serve
from pakka.observe.figures import SOURCE, Figures, sink_part
from pakka.state import open_store

STATE = "sqlite:///.pakka/state.db"
NOON = 1_763_208_000.0  # 2025-11-15 12:00:00 UTC


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr("pakka.cli.status.time.time", lambda: NOON + 190)


def decision(pipeline: str, number: int, fence: int) -> Decision:
    epoch = Epoch(pipeline, number, Origin("query", number, f"digest-{number}"))
    prepared = tuple(
        Prepared(Slot(pipeline, sink, number, fence, 0, 0), rows, "00")
        for sink, rows in {"refunds": 950, "dead_letters": 40}.items()
    )
    return Decision(epoch, fence, prepared, Count(1000, 950, 40, 10, {"not_null(merchant)": 40}), NOON + number)


@pytest.fixture
def store():
    """A pipeline `refunds` with three epochs, the last of them open, and one `orders` that has only begun."""
    with closing(open_store(STATE)) as store:
        fence = store.take_fence("refunds", Owner("host-1", 4711, NOON - 60)).fence
        for number in range(3):
            store.decide(decision("refunds", number, fence))
        store.take_fence("orders", Owner("host-2", 12, NOON))
        yield store


def test_all_pipelines_are_listed(pakka, store):
    result = pakka("status")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == """\
pipeline  committed  newest   rows in  dead  dropped  in doubt  fence  owner             lag
orders            -  -              0     0        0         -      1  host-2, pid 12    -
refunds           1  decided    2,000    80       20         2      1  host-1, pid 4711  3 min
"""
    )


def test_one_pipeline_is_told_in_full(pakka, store):
    result = pakka("status", "refunds")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == """\
pipeline                  refunds
committed                 up to epoch 1
in doubt                  epoch 2: decided 3 min ago, 2 records, not yet known here to be in every sink
rows in                   2,000: 1,900 good, 80 dead, 20 dropped
broke not_null(merchant)  80
fence                     1
owner                     host-1, pid 4711, since 2025-11-15 11:59:00Z
lag                       3 min

epoch  phase      rows in  dead_letters  refunds  dropped  decided
    2  decided      1,000            40      950       10  2025-11-15 12:00:02Z
    1  committed    1,000            40      950       10  2025-11-15 12:00:01Z
    0  committed    1,000            40      950       10  2025-11-15 12:00:00Z
"""
    )


def test_a_pipeline_that_has_only_begun_is_told(pakka, store):
    assert (
        pakka("status", "orders").stdout
        == """\
pipeline   orders
committed  nothing yet
in doubt   nothing
rows in    0: 0 good, 0 dead, 0 dropped
fence      1
owner      host-2, pid 12, since 2025-11-15 12:00:00Z
lag        -
"""
    )


def test_a_reset_that_waits_for_its_run_is_told(pakka, store):
    store.reset("orders", 3)
    assert pakka("status", "orders").stdout.endswith("reset      the next checkpoint is accepted, whatever it is\n")


def test_only_the_newest_ten_epochs_are_shown(pakka, store):
    for number in range(3, 20):
        store.decide(decision("refunds", number, 1))
    shown = json.loads(pakka("status", "refunds", "--json").stdout)["epochs"]
    assert [epoch["epoch"] for epoch in shown] == list(range(19, 9, -1))


def test_programs_get_all_of_it(pakka, store):
    orders, refunds = json.loads(pakka("status", "--json").stdout)
    assert orders["owner"] == {"host": "host-2", "pid": 12, "since": NOON, "metrics": ""}
    assert refunds | {"epochs": refunds["epochs"][:1]} == {
        "pipeline": "refunds",
        "committed": 1,
        "phase": "decided",
        "in_doubt": [2],
        "in_doubt_records": 2,
        "in_doubt_s": 188.0,
        "fence": 1,
        "owner": {"host": "host-1", "pid": 4711, "since": NOON - 60, "metrics": ""},
        "rows_in": 2000,
        "good": 1900,
        "dead": 80,
        "dropped": 20,
        "broken": {"not_null(merchant)": 80},
        "lag_s": 188.0,
        "rows_per_s": 1000.0,
        "is_reset": False,
        "epochs": [
            {
                "epoch": 2,
                "phase": "decided",
                "fence": 1,
                "rows_in": 1000,
                "dead": 40,
                "dropped": 10,
                "sinks": {"refunds": 950, "dead_letters": 40},
                "at": NOON + 2,
            }
        ],
    }
    assert json.loads(pakka("status", "refunds", "--json").stdout) == {**refunds, "live": None}


def test_the_reference_names_all_that_programs_get(pakka, driver):
    told = json.loads(pakka("status", "refunds", "--json").stdout)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    (part,) = re.findall(r"^With `--json`: a list of pipelines.*?\n\n", page, re.MULTILINE | re.DOTALL)
    for names in (told, told["owner"], told["epochs"][0], told["live"]):
        assert [name for name in names if f"`{name}`" not in part] == []


def test_a_misspelt_pipeline_is_told_the_nearest(pakka, store):
    result = pakka("status", "refund")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: state store ")
    assert result.stderr.endswith(" knows no pipeline `refund`\n\nhint: did you mean `refunds`?\n")


def test_a_state_store_that_is_not_there_is_not_made(pakka, current_directory):
    result = pakka("status")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no state at ")
    assert list(current_directory.iterdir()) == []


def test_the_state_store_of_a_pipeline_file_is_used(pakka, refunds):
    refunds.write_text(refunds.read_text() + "state: sqlite:///elsewhere.db\n")
    with closing(open_store("sqlite:///elsewhere.db")) as store:
        store.take_fence("elsewhere", Owner("host", 1, NOON))
    told = json.loads(pakka("status", "--file", "refunds.yaml", "--json").stdout)
    assert [one["pipeline"] for one in told] == ["elsewhere"]


def test_a_state_store_may_be_named(pakka, store):
    assert pakka("status", "--state", STATE).stdout == pakka("status").stdout


def test_two_state_stores_are_one_too_many(pakka, refunds):
    result = pakka("status", "--state", STATE, "--file", "refunds.yaml")
    assert result.exit_code == 2
    assert result.stderr == "error: --state and --file both name a state store\n\nhint: use one of them\n"


def test_an_empty_state_store_is_no_error(pakka):
    open_store(STATE).close()
    with closing(open_store(STATE)) as store:
        store.take_fence("gone", Owner("host", 1, NOON))
        store.forget("gone")
    result = pakka("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "the state store knows no pipeline yet\n"
    assert json.loads(pakka("status", "--json").stdout) == []


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_a_lag_is_told_as_people_tell_it(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0, "0"), (1 / 43_200, "less than 0.01"), (0.3157, "0.32"), (9.96, "10"), (63.2, "63"), (12_345.6, "12,346")],
)
def test_a_rate_has_few_digits_and_no_exponent(rate, shown):
    assert per_minute(rate) == shown


@pytest.fixture
def driver(store, monkeypatch):
    """A driver of `refunds` on this machine that serves its metrics; what it tells is up to the test."""
    monkeypatch.setattr(endpoint, "_PATIENCE_S", 60.0)
    figures = Figures("refunds", ["refunds", "dead_letters"], lambda: NOON)
    with serve(figures, "127.0.0.1", 0) as url:
        fence = store.take_fence("refunds", Owner(socket.gethostname(), os.getpid(), NOON, url)).fence
        figures.take(Started("refunds", fence, 1, 0, 0))
        yield figures


def delivered(epoch: int) -> Delivered:
    latency = Latency({0: 1000}, 2.5)
    return Delivered("refunds", epoch, True, 1000, {"refunds": 950}, 40, 10, 0.5, 0.04, latency=latency)


def test_a_driver_that_serves_metrics_is_asked_how_it_stands(pakka, driver):
    driver.take(Retried("refunds", 3, "refunds", True, "line cut", 0.1))
    driver.take(Noticed("refunds", "expired", "sent again", sink="refunds"))
    driver.take(Noticed("refunds", "aborted", "given up", sink="refunds"))
    driver.take(delivered(3))
    driver.see_doubts({"refunds": (2, 190.0), "dead_letters": (0, 0.0)}, [])
    driver.see_lags({SOURCE: [Lag("settlements", 0, 120, 8, 300.0), Lag("settlements", 1, 3, 0, 0.0)]}, [])
    lines = pakka("status", "refunds").stdout.splitlines()
    assert lines[8:17] == [
        "driver                    running",
        "speed                     1,000 rows/s over the epochs below",
        "commit                    p50 40 ms, p99 40 ms",
        "record to commit          p50 2.5 s, p99 2.5 s",
        "aborts                    refunds 1, 0.32 a minute",
        "expired                   refunds 1 slot, sent again",
        "asked again               refunds 1, 1 without an answer",
        "prepared in refunds       2 records, the oldest for 3 min",
        "behind                    123 records",
    ]
    assert (
        lines[17]
        == "held back                 8 records by open transactions: 8 in partition 0 of settlements for 5 min"
    )


def test_what_has_not_happened_is_not_told(pakka, driver):
    told = pakka("status", "refunds").stdout
    assert "driver                    running\nspeed" in told
    assert not any(word in told for word in ("commit  ", "asked again", "prepared in", "behind", "held back"))


def test_programs_get_the_live_figures(pakka, driver):
    driver.take(delivered(3))
    for epoch in range(4):
        driver.take(Committed("refunds", epoch, "refunds", 950, 1, False, 0.04))
    driver.take(Aborted("refunds", 4, "a task failed", {"dead_letters": 2}))
    lags = {SOURCE: [Lag("settlements", 0, 120, 8, 300.0)], sink_part("refunds"): [Lag("out", 12, None, 0, 0.0)]}
    driver.see_lags(lags, [])
    live = json.loads(pakka("status", "refunds", "--json").stdout)["live"]
    source = {"part": "source", "sink": "", "topic": "settlements", "partition": 0, "records": 8, "open_s": 300.0}
    sink = {"part": "sink", "sink": "refunds", "topic": "out", "partition": 12, "records": 0, "open_s": 0.0}
    assert live == {
        "state": "running",
        "commit_s": {"0.5": 0.04, "0.99": 0.04},
        "latency_s": {"0.5": 2.5, "0.99": 2.5},
        "commits": {"refunds": {"count": 4, "per_s": 0.021053}, "dead_letters": {"count": 0, "per_s": 0.0}},
        "aborts": {"refunds": {"count": 0, "per_s": 0.0}, "dead_letters": {"count": 2, "per_s": 0.010526}},
        "expired": {"refunds": 0, "dead_letters": 0},
        "retries": {"refunds": 0, "dead_letters": 0},
        "unknown_outcomes": {"refunds": 0, "dead_letters": 0},
        "in_doubt": {},
        "lag_records": 120,
        "lso_lag_records": 8,
        "lso_lag": [sink, source],
        "oldest_open_transaction_s": 300.0,
    }


def test_a_driver_that_has_ended_or_was_replaced_has_no_live_figures(pakka, store, driver):
    def live():
        return json.loads(pakka("status", "refunds", "--json").stdout)["live"]

    assert live() is not None
    url = store.read("refunds").owner.metrics
    store.take_fence("refunds", Owner(socket.gethostname(), 1, NOON, url))
    assert live() is None, "the one who answers holds an older fence"
    store.take_fence("refunds", Owner("elsewhere", 1, NOON, url))
    assert live() is None, "its own address means another machine there"
    store.take_fence("refunds", Owner(socket.gethostname(), 1, NOON, "http://127.0.0.1:1/metrics"))
    assert live() is None
    store.take_fence("refunds", Owner(socket.gethostname(), 1, NOON, "file:///etc/hostname"))
    assert live() is None


def test_who_looks_on_need_not_have_the_library(pakka, driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith("pakka.observe")]:
        monkeypatch.delitem(sys.modules, name)
    result = pakka("status", "refunds", "--json")
    assert (result.exit_code, json.loads(result.stdout)["live"]) == (0, None)
