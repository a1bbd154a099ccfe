"""`pakka indoubt`: what it prints, what it refuses, and its exit codes, after real drivers that were killed or frozen.

What it settles, at every crash point, is tested in tests/faults/test_in_doubt.py.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pakka.contract.doubt import Doubt
from pakka.sinks._publish import Publisher
from pakka.testing.crash import Drill
from tests.faults.site import Site

PIPELINE = """\
pipeline: refunds
source:
  rate: {rows_per_epoch: 10}
sinks:
  refunds: {parquet: {path: site/out/refunds}}
  audit: {sqlite: {path: site/out/audit.db, table: refund_audit}}
dead_letters: {parquet: {path: site/out/dead}}
state: sqlite:///state.db
spool: site/spool
checkpoint: site/checkpoint
"""
DECIDED, UNDECIDED = Drill("decide.after", epoch=1), Drill("decide.before", epoch=1)


@pytest.fixture
def site(current_directory) -> Iterator[Site]:
    """A pipeline of three slots and three sinks, whose file is in the current directory."""
    Path("refunds.yaml").write_text(PIPELINE)
    site = Site(current_directory / "site", f"sqlite:///{current_directory}/state.db")
    yield site
    site.close()


def told(pakka, *words: str) -> dict:
    result = pakka("indoubt", *words, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def words(text: str) -> list[list[str]]:
    """Lines of a table, by cell."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_alone_it_shows_its_help(pakka):
    result = pakka("indoubt")
    assert (result.exit_code, result.stdout) == (0, pakka("indoubt", "--help").stdout)


def test_what_is_decided_is_listed_with_what_becomes_of_it(pakka, site):
    site.crash(DECIDED)
    result = pakka("indoubt", "list", "refunds.yaml")
    assert result.exit_code == 0
    head, *rows = words(result.stdout)
    assert head == [
        *("pipeline", "sink", "epoch", "fence", "slot", "attempt", "rows", "age", "locks", "fate", "id", "because")
    ]
    assert len(rows) == 9
    assert rows[0] == [
        *("refunds", "audit", "1", "1", "0", "4", "38", rows[0][7], "-", "commit"),
        *("pakka.refunds.audit.1.1.0.4", "decided by fence 1"),
    ]
    assert re.fullmatch(r"pipeline `refunds`: 9 records in doubt, the oldest for \d+ s\n", result.stderr), result.stderr


def test_programs_get_count_and_age_in_all_and_by_sink(pakka, site):
    driver = site.crash(UNDECIDED)
    found = told(pakka, "list", "refunds.yaml")
    assert (found["pipeline"], found["fence"], found["count"], found["unentered"]) == ("refunds", 1, 6, [0])
    assert (found["owner"]["pid"], found["owner"]["is_alive"]) == (driver.pid, False)
    # One slot is empty, and an empty slot leaves nothing behind in these sinks.
    assert {n: sink["count"] for n, sink in found["sinks"].items()} == {"audit": 2, "dead_letters": 2, "refunds": 2}
    assert found["oldest_s"] == max(sink["oldest_s"] for sink in found["sinks"].values())
    first = found["in_doubt"][0]
    assert first | {"age_s": 0} == {
        "sink": "audit",
        "pipeline": "refunds",
        "epoch": 1,
        "fence": 1,
        "slot": 0,
        "attempt": 4,
        "id": "pakka.refunds.audit.1.1.0.4",
        "age_s": 0,
        "rows": None,
        "locks": [],
        "fate": "abort",
        "because": first["because"],
    }
    assert first["because"].startswith(f"no decision names it, and its driver, process {driver.pid} on ")
    assert (found["foreign"], found["troubles"]) == ([], [])


def test_a_pipeline_may_be_named_and_all_files_here_are_taken_without_a_name(pakka, site):
    site.crash(DECIDED)
    Path("notes.yaml").write_text("not: a pipeline\n")
    Path("other.yml").write_text(PIPELINE.replace("pipeline: refunds", "pipeline: orders").replace("site/", "other/"))
    refunds = told(pakka, "list", "refunds")
    assert refunds["count"] == 9
    both = told(pakka, "list")
    assert [(one["pipeline"], one["count"]) for one in both] == [("orders", 0), ("refunds", 9)]


def test_nothing_in_doubt_is_told_on_stderr(pakka, site):
    site.run()
    result = pakka("indoubt", "list", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "pipeline `refunds`: nothing is in doubt\n"
    result = pakka("indoubt", "resolve", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "pipeline `refunds`: nothing is in doubt; nothing was changed\n"


def test_an_epoch_that_the_state_store_does_not_know_of_yet_is_told(pakka, site):
    site.crash(Drill("commit.after", epoch=1))
    result = pakka("indoubt", "list", "refunds.yaml")
    assert result.stderr == (
        "pipeline `refunds`: nothing is in doubt\n"
        "pipeline `refunds`: epoch 1 is in every sink; the state store learns of it with the next epoch\n"
    )
    assert pakka("indoubt", "resolve", "refunds.yaml").stdout == "entered epoch 1 in the state store as committed\n"
    assert told(pakka, "list", "refunds.yaml")["unentered"] == []


DEEDS = """\
commit 3 records, 77 rows of epoch 1 to sink `audit`: decided
commit 3 records, 13 rows of epoch 1 to sink `dead_letters`: decided
commit 3 records, 77 rows of epoch 1 to sink `refunds`: decided
enter epoch 1 in the state store as committed
"""


def test_a_dry_run_says_what_is_done_without_it(pakka, site):
    site.crash(DECIDED)
    before = site.snapshot()
    result = pakka("indoubt", "resolve", "refunds.yaml", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, DEEDS)
    assert result.stderr == "nothing was changed; this is what `pakka indoubt resolve` does without --dry-run\n"
    assert site.snapshot() == before
    result = pakka("indoubt", "resolve", "refunds.yaml")
    assert result.exit_code == 0
    assert result.stdout == DEEDS.replace("commit ", "committed ").replace("enter ", "entered ")
    assert result.stderr == "pipeline `refunds`: committed 9, aborted 0, under fence 2\n"
    site.finish()


def test_what_nobody_decided_is_aborted(pakka, site):
    site.crash(UNDECIDED)
    result = pakka("indoubt", "resolve", "refunds")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "aborted 2 records of epoch 1 in sink `audit`: no decision names them",
        "aborted 2 records of epoch 1 in sink `dead_letters`: no decision names them",
        "aborted 2 records of epoch 1 in sink `refunds`: no decision names them",
        "entered epoch 0 in the state store as committed",
    ]
    assert result.stderr == "pipeline `refunds`: committed 0, aborted 6, under fence 2\n"
    site.finish()


def test_programs_get_the_deeds(pakka, site):
    site.crash(DECIDED)
    planned, done = told(pakka, "resolve", "refunds.yaml", "--dry-run"), told(pakka, "resolve", "refunds.yaml")
    assert (planned["fence"], planned["is_done"], done["fence"], done["is_done"]) == (None, False, 2, True)
    assert (done["committed"], done["aborted"], done["lost"]) == (9, 0, 0)
    assert planned["deeds"] == done["deeds"]
    assert done["deeds"][0] == {"do": "commit", "epoch": 1, "sink": "audit", "records": 3, "rows": 77}
    assert done["deeds"][-1] == {"do": "enter", "epoch": 1, "sink": None, "records": 0, "rows": None}


def test_a_driver_that_runs_is_taken_over_from_only_with_yes(pakka, site):
    live = site.freeze(UNDECIDED)
    assert {case["fate"] for case in told(pakka, "list", "refunds.yaml")["in_doubt"]} == {"in flight"}
    result = pakka("indoubt", "resolve", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.match(rf"error: pipeline `refunds`: its driver, process {live.pid} on \S+, runs; ", result.stderr)
    assert result.stderr.endswith("stop it first, or take over from it with --yes\n")
    assert pakka("indoubt", "resolve", "refunds.yaml", "--dry-run").exit_code == 0
    assert pakka("indoubt", "resolve", "refunds.yaml", "--yes").exit_code == 0
    live.wake()
    assert live.wait() == 4, live.said
    site.finish()


def test_a_record_that_is_lost_is_told_with_exit_code_1(pakka, site):
    site.crash(DECIDED)
    (lost,) = (site.root / "spool" / "refunds.audit").glob("fence-1/*.1.1.0.4/rows.arrow")
    lost.unlink()
    result = pakka("indoubt", "resolve", "refunds.yaml")
    assert result.exit_code == 1
    assert (
        "lost 3 records, 77 rows of epoch 1 in sink `audit`: decided, and no longer to be committed\n" in result.stdout
    )
    assert "error: pipeline `refunds`: epoch 1 is decided, and sink `audit` has lost 3 records of it" in result.stderr
    site.finish()


def test_without_its_state_store_the_sinks_are_listed_and_nothing_is_resolved(pakka, site):
    site.crash(DECIDED)
    for path in Path().glob("state.db*"):
        path.unlink()
    before = site.outputs()
    result = pakka("indoubt", "list", "refunds.yaml", "--json")
    assert result.exit_code == 2
    assert {case["fate"] for case in json.loads(result.stdout)["in_doubt"]} == {"unknown"}
    assert json.loads(result.stderr)["message"].startswith("there is no state at ")
    for words in (("--dry-run",), (), ("--yes",)):
        result = pakka("indoubt", "resolve", "refunds.yaml", *words)
        assert (result.exit_code, result.stdout) == (2, "")
    assert site.outputs() == before
    assert not Path("state.db").exists()


def test_a_sink_that_cannot_be_asked_is_named_after_the_others(pakka, site):
    site.crash(DECIDED)
    for path in Path("site/out").glob("audit.db*"):
        path.unlink()
    Path("site/out/audit.db").write_bytes(b"this is no database" * 100)
    result = pakka("indoubt", "list", "refunds.yaml")
    assert result.exit_code == 1
    assert {row[1] for row in words(result.stdout)[1:]} == {"refunds", "dead_letters"}
    assert "error: sink `refunds.audit`" in result.stderr
    assert pakka("indoubt", "resolve", "refunds.yaml").exit_code == 1


def test_what_others_have_prepared_is_told_apart(pakka, site, monkeypatch):
    foreign = [Doubt("payroll-17\x1b[2J", None, age_s=7200.0), Doubt("pakka.orders.rows.1.1.0.1/5.6", None)]
    monkeypatch.setattr(Publisher, "in_doubt", lambda _: foreign)
    site.run()
    result = pakka("indoubt", "list", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    said = [line.rpartition("sink `")[2].partition("`: ")[2] for line in result.stderr.splitlines()[1:]]
    assert said == [
        "`pakka.orders.rows.1.1.0.1/5.6` is of another pipeline, and never touched",
        "`payroll-17?[2J` is not pakka's, and never touched, for 2 h",
    ]
    assert [one["whose"] for one in told(pakka, "list", "refunds.yaml")["foreign"]] == [
        "of another pipeline",
        "not pakka's",
    ]


def test_what_a_file_takes_from_the_environment_is_hidden_also_of_several_files(pakka, site, monkeypatch):
    site.run()
    for name in ("orders", "payments"):
        monkeypatch.setenv(name.upper(), f"s3cret-{name}")
        sink = f'{{parquet: {{path: "${{env:{name.upper()}}}/out"}}}}'
        head = PIPELINE.partition("sinks:")[0].replace("pipeline: refunds", f"pipeline: {name}")
        Path(f"{name}.yaml").write_text(f"{head}sinks:\n  refunds: {sink}\nstate: sqlite:///state.db\n")
        Path(f"s3cret-{name}").write_text("a file where a directory should be")
    result = pakka("indoubt", "list")
    assert result.exit_code == 1
    assert "s3cret" not in result.stdout + result.stderr
    assert "sink `orders.refunds`" in result.stderr
    assert "note: sink `payments.refunds`" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list",), "there is no pipeline file in the current directory"),
        (("list", "refunds"), "there is no refunds.yaml in the current directory, and the pipeline file is needed"),
        (("resolve", "refunds.yaml"), "there is no file refunds.yaml"),
        (("resolve",), "Missing argument 'PIPELINE'"),
        (("guess", "refunds"), "No such command 'guess'"),
    ],
)
def test_wrong_use_is_told(pakka, words, message):
    result = pakka("indoubt", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
