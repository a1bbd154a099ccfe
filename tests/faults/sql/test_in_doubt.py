"""`pakka indoubt` at a real server: what it lists, what it would do, what it does, and what it never touches."""

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from pakka.cli import main
from pakka.testing.crash import Drill
from tests.faults.sql.ground import FOREIGN, Ground
from tests.faults.sql.outputs import SqlOutlet
from tests.faults.sql.site import SqlSite
from tests.faults.sql.system import SYSTEMS
from tests.faults.watched import FENCED
from tests.fixtures import mysql, postgres
from tests.fixtures.postgres import PostgresServer

pytestmark = pytest.mark.faults

MIDDLE = 1
DECIDED, UNDECIDED = Drill("decide.after", epoch=MIDDLE), Drill("decide.before", epoch=MIDDLE)
PIPELINE = """\
pipeline: refunds
source:
  rate: {{rows_per_epoch: 10}}
sinks:
  refunds: {{{kind}: {{url: "${{env:SHOP}}", table: refunds, way: prepared}}}}
  audit: {{{kind}: {{url: "${{env:SHOP}}", table: audit, way: spooled}}}}
  balances: {{{kind}: {{url: "${{env:SHOP}}", table: balances, mode: upsert, key: [account]}}}}
dead_letters: {{parquet: {{path: "{site}/out/dead"}}}}
state: "{state}"
spool: "{site}/spool"
checkpoint: "{site}/checkpoint"
"""
ALL_DECIDED = """\
commit 3 records, 77 rows of epoch 1 to sink `audit`: decided
commit 3 records, 77 rows of epoch 1 to sink `balances`: decided
commit 3 records, 13 rows of epoch 1 to sink `dead_letters`: decided
commit 3 records, 77 rows of epoch 1 to sink `refunds`: decided
enter epoch 1 in the state store as committed
"""
NONE_DECIDED = """\
abort 2 records of epoch 1 in sink `audit`: no decision names them
abort 2 records of epoch 1 in sink `balances`: no decision names them
abort 2 records of epoch 1 in sink `dead_letters`: no decision names them
abort 3 records of epoch 1 in sink `refunds`: no decision names them
enter epoch 0 in the state store as committed
"""


@pytest.fixture
def site(base, make_sql_site, ground, monkeypatch):
    """Every kind of sink in one epoch, and transactions of others beside it."""
    site = make_sql_site(f"sqlite:///{ground}/state.db")
    site.foreign = base.prepare_foreign()
    kind = {"postgres": "postgres", "mariadb": "mysql"}[base.system.name]
    (ground / "refunds.yaml").write_text(PIPELINE.format(kind=kind, site=site.root, state=site.spec.state))
    monkeypatch.setenv("SHOP", base.url)
    monkeypatch.chdir(ground)
    return site


def pakka(*words: str, verb: str = "indoubt"):
    result = CliRunner().invoke(main, [verb, *words])
    assert mysql.PASSWORD not in result.output
    return result


def told(*words: str) -> dict:
    result = pakka(*words, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def done(deeds: str) -> str:
    """What was planned, in the past tense."""
    return deeds.replace("commit ", "committed ").replace("abort ", "aborted ").replace("enter ", "entered ")


def ids_of(base, site) -> list[str]:
    """What the server lists that is ours, as pakka writes it."""
    found = site.prepared(3)
    return found if base.system.name == "postgres" else [re.sub(r"^'(.*)','(.*)',1$", r"\1,\2", xid) for xid in found]


@pytest.mark.parametrize(("drill", "fate"), [(DECIDED, "commit"), (UNDECIDED, "abort")])
def test_what_is_prepared_on_the_server_is_listed_with_its_fate(base, site, drill, fate):
    site.crash(drill)
    before = site.snapshot()
    found = told("list", "refunds.yaml")
    assert {case["fate"] for case in found["in_doubt"]} == {fate}
    mine = [case for case in found["in_doubt"] if case["sink"] == "refunds"]
    assert sorted(case["id"] for case in mine) == sorted(ids_of(base, site))
    assert [(case["epoch"], case["fence"], case["slot"]) for case in mine] == [(1, 1, slot) for slot in range(3)]
    assert all(case["age_s"] is not None for case in mine)
    assert {lock.split()[0].rpartition(".")[2] for lock in mine[0]["locks"]} >= {"refunds", "pakka_ledger"}
    assert all(case["locks"] for case in mine)
    # A decision names the rows. Of what is not decided MariaDB lets its ledger row be seen, and PostgreSQL does not.
    is_told = fate == "commit" or base.system.name == "mariadb"
    assert [case["rows"] for case in mine] == ([38, 39, 0] if is_told else [None] * 3)
    assert site.snapshot() == before


def test_what_others_have_prepared_is_listed_as_theirs(site):
    site.crash(UNDECIDED)
    result = pakka("list", "refunds.yaml")
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if "nightly" in line or "pakka.other" in line] == []
    assert result.stderr.count("never touched") == len(FOREIGN)
    assert "`nightly-batch-42" in result.stderr


@pytest.mark.parametrize(
    ("drill", "deeds", "counts"),
    [(DECIDED, ALL_DECIDED, "committed 12, aborted 0"), (UNDECIDED, NONE_DECIDED, "committed 0, aborted 9")],
)
def test_a_dry_run_changes_nothing_and_resolving_does_what_it_said(site, drill, deeds, counts):
    site.crash(drill)
    before = site.snapshot()
    result = pakka("resolve", "refunds.yaml", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, deeds)
    assert site.snapshot() == before
    result = pakka("resolve", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (0, done(deeds))
    assert result.stderr == f"pipeline `refunds`: {counts}, under fence 2\n"
    assert site.prepared() == []
    assert told("list", "refunds.yaml")["count"] == 0
    # The judge misses any transaction of others that is gone.
    site.finish()


def test_a_driver_that_runs_is_taken_over_from_only_with_yes(site):
    live = site.freeze(UNDECIDED)
    result = pakka("resolve", "refunds.yaml")
    assert result.exit_code == 1
    assert f"its driver, process {live.pid} on" in result.stderr
    assert len(site.prepared()) == 3
    result = pakka("resolve", "refunds.yaml", "--yes")
    assert (result.exit_code, result.stdout) == (0, done(NONE_DECIDED))
    live.wake()
    site.ends(live, (FENCED,))
    assert site.prepared() == []
    site.finish()


def test_a_decided_slot_that_was_rolled_back_by_hand_is_told_as_lost(base, site):
    site.crash(DECIDED)
    base.end_prepared("ROLLBACK", site.prepared(3)[:1])
    result = pakka("resolve", "refunds.yaml")
    assert result.exit_code == 1
    assert "error: pipeline `refunds`: epoch 1 is decided, and sink `refunds` has lost 1 record of it" in result.stderr
    site.finish()


AUTO = """\
pipeline: refunds
source:
  rate: {{rows_per_epoch: 10}}
sinks:
  refunds: {{postgres: {{url: "${{env:SHOP}}", table: refunds}}}}
state: "{state}"
spool: "{site}/spool"
checkpoint: "{site}/checkpoint"
{slots}
"""


@pytest.fixture(scope="module")
def bare_server() -> Iterator[PostgresServer]:
    """A server that prepares no transaction."""
    with postgres.running_server(postgres.need_binaries(), max_prepared_transactions="0") as server:
        yield server


@pytest.fixture(params=[("bare_server", ""), ("postgres_server", "slots: 65")], ids=["none allowed", "64 allowed"])
def auto(request, ground, monkeypatch):
    """A pipeline that leaves the way to its server, which takes the spool: a driver that does so, and the file."""
    fixture, slots = request.param
    base = Ground(SYSTEMS["postgres"], request.getfixturevalue(fixture))
    state = f"sqlite:///{ground}/state.db"
    site = SqlSite(ground / "site", state, SqlOutlet("spooled", "postgres", base.url, base.url))
    (ground / "refunds.yaml").write_text(AUTO.format(site=site.root, state=state, slots=slots))
    monkeypatch.setenv("SHOP", base.url)
    monkeypatch.chdir(ground)
    yield site
    site.close()
    base.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("drill", "deeds"),
    [
        (DECIDED, ["commit 3 records, 77 rows of epoch 1 to sink `refunds`: decided", "enter epoch 1"]),
        (UNDECIDED, ["abort 2 records of epoch 1 in sink `refunds`: no decision names them", "enter epoch 0"]),
    ],
)
def test_a_sink_that_chose_the_spool_is_looked_at_as_its_run_has_it(auto, drill, deeds):
    auto.crash(drill)
    found = told("list", "refunds.yaml")
    assert {case["fate"] for case in found["in_doubt"]} == {deeds[0].split()[0]}
    assert len(found["in_doubt"]) == int(deeds[0].split()[1])
    result = pakka("resolve", "refunds.yaml")
    assert result.exit_code == 0, result.stderr
    assert [
        line for line, deed in zip(result.stdout.splitlines(), deeds, strict=True) if not line.startswith(done(deed))
    ] == []
    assert told("list", "refunds.yaml")["count"] == 0
    auto.finish()


@pytest.mark.postgres
def test_a_reset_finishes_what_is_spooled_where_the_sink_chose_the_spool(auto):
    auto.crash(DECIDED)
    result = pakka("refunds", "--sink", "refunds", "--yes", verb="reset")
    assert (result.exit_code, result.stderr) == (0, "done\n")
    assert told("list", "refunds.yaml")["count"] == 0
    auto.finish()
