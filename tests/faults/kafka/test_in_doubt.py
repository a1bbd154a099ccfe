"""A driver dies over Kafka, and a person comes to the desk: `pakka indoubt` tells what it left, and settles it from the decision.

What it prints is tested in tests/cli/test_indoubt.py, and what it settles in other sinks at every crash point in tests/faults/test_in_doubt.py.
"""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pakka.cli import main
from pakka.testing.crash import Drill
from tests.faults.kafka.site import KafkaSite

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1


def write_file(site: KafkaSite) -> str:
    """The pipeline of a site as a user has it."""
    outlet, sinks = site.outlet, {}
    for name, options in outlet.options.items():
        own = {"servers": outlet.servers, "topic": outlet.topics.get(name), "ledger": outlet.prefix.removesuffix(".")}
        sinks[name] = (
            {"kafka": {**own, **options}} if options else {"parquet": {"path": str(site.root / "out" / "dead")}}
        )
    pipeline = {
        "pipeline": "refunds",
        "source": {"rate": {"rows_per_epoch": 10}},
        "sinks": {name: sink for name, sink in sinks.items() if name != "dead_letters"},
        **{name: sink for name, sink in sinks.items() if name == "dead_letters"},
        "state": site.spec.state,
        "spool": str(site.root / "spool"),
        "checkpoint": str(site.root / "checkpoint"),
    }
    path = site.root.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(pipeline))
    return str(path)


def indoubt(verb: str, file: str, *more: str) -> Any:
    result = CliRunner().invoke(main, ["indoubt", verb, file, *more, "--json"])
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def visible(site: KafkaSite) -> dict[str, int]:
    """The rows of the epoch that are to be seen, by sink."""
    return {sink: sum(row[1] == MIDDLE for row in site.judge.read(sink)) for sink in site.judge.sinks}


@pytest.mark.parametrize(("point", "fate"), [("decide.before", "abort"), ("decide.after", "commit")])
@pytest.mark.parametrize("layout", ["mix", "ways"])
def test_what_a_killed_driver_left_in_kafka_is_told_and_settled_from_the_decision(
    make_kafka_site, ground, layout, point, fate
):
    site = make_kafka_site(f"sqlite:///{ground}/state.db", layout)
    file = write_file(site)
    none = dict.fromkeys(site.judge.sinks, 0)
    whole = {sink: sum(row[1] == MIDDLE for row in site.judge.wanted(sink)) for sink in none}
    site.crash(Drill(point, epoch=MIDDLE))
    before = site.snapshot()
    found = indoubt("list", file)
    assert {case["fate"] for case in found["in_doubt"]} == {fate}
    assert {case["sink"] for case in found["in_doubt"]} == {"refunds", "audit", "dead_letters"}
    assert {case["epoch"] for case in found["in_doubt"]} == {MIDDLE}
    assert found["troubles"] == []
    indoubt("resolve", file, "--dry-run")
    assert site.snapshot() == before
    assert visible(site) == none

    indoubt("resolve", file)
    assert visible(site) == (whole if fate == "commit" else none)
    assert site.judge.in_doubt() == [], "a transaction is open"
    assert indoubt("list", file)["count"] == 0
    site.check_whole_epochs()
    site.finish()
