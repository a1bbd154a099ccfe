"""`pakka status`: what the state store knows."""

import json
from contextlib import closing

import pytest

from pakka.cli.render import duration
from pakka.contract.state import Decision, Owner
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.id import Slot
from pakka.model.prepared import Prepared
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
    assert orders["owner"] == {"host": "host-2", "pid": 12, "since": NOON}
    assert refunds | {"epochs": refunds["epochs"][:1]} == {
        "pipeline": "refunds",
        "committed": 1,
        "phase": "decided",
        "in_doubt": [2],
        "in_doubt_records": 2,
        "in_doubt_s": 188.0,
        "fence": 1,
        "owner": {"host": "host-1", "pid": 4711, "since": NOON - 60},
        "rows_in": 2000,
        "good": 1900,
        "dead": 80,
        "dropped": 20,
        "broken": {"not_null(merchant)": 80},
        "lag_s": 188.0,
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
    assert json.loads(pakka("status", "refunds", "--json").stdout) == refunds


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
