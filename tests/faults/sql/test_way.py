"""The way of a SQL sink changes between two runs, as a person or `auto` changes it, and the first one was killed."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.sql.outputs import PREPARED, SPOOLED
from tests.faults.watched import FAILED

pytestmark = pytest.mark.faults

MIDDLE = 1
WAYS = {options["way"]: f"tests.faults.sql.outputs:{options['way']}" for options in (PREPARED, SPOOLED)}
ONE_WAY = {way: f"tests.faults.sql.twins:one_way_{way}" for way in WAYS}
CHANGES = pytest.mark.parametrize(("former", "later"), [("prepared", "spooled"), ("spooled", "prepared")])


@pytest.fixture
def site(make_sql_site, state):
    # Of the two ways, the reader of this one expects less: an epoch comes into sight slot by slot.
    return make_sql_site(state, "prepared", tries=2)


@one_store
@CHANGES
@pytest.mark.parametrize("point", ["task.batch", "task.prepared", "prepared", "decide.before"])
def test_what_is_not_decided_is_undone_the_other_way(site, former, later, point):
    site.crash(Drill(point, epoch=MIDDLE), sinks=WAYS[former])
    site.check_whole_epochs()
    site.finish(sinks=WAYS[later])


@one_store
@CHANGES
@pytest.mark.parametrize("point", ["recover.fenced", "recover.raised", "recover.committed", "recover.settled"])
def test_a_driver_killed_while_it_undoes_it_is_followed_by_one_of_either_way(site, former, later, point):
    site.crash(Drill("decide.before", epoch=MIDDLE), sinks=WAYS[former])
    site.crash(Drill(point), sinks=WAYS[later])
    site.crash(Drill(point), sinks=WAYS[former])
    site.finish(sinks=WAYS[later])


def held(site):
    """All but the fence, which every driver raises."""
    return {name: rows for name, rows in site.judge.tables().items() if name != "pakka_fence"}


@one_store
@CHANGES
@pytest.mark.parametrize("point", ["decide.after", "commit.applied"])
def test_what_is_decided_is_left_to_its_own_way(site, former, later, point):
    """Visible or not: the other way changes nothing of it, and says what to do."""
    is_committed = (former, point) == ("spooled", "commit.applied")
    site.crash(Drill(point, epoch=MIDDLE), sinks=WAYS[former])
    tables = held(site)
    if not is_committed:
        child = site.run(FAILED, sinks=WAYS[later])
        assert f"set `way: {former}`" in child.said
        assert held(site) == tables
        site.run(sinks=WAYS[former])
    site.finish(sinks=WAYS[later])


@one_store
def test_a_committer_that_knows_its_own_way_alone_is_caught_by_what_it_leaves(site):
    site.crash(Drill("decide.before", epoch=MIDDLE), sinks=WAYS["spooled"])
    site.run(sinks=ONE_WAY["prepared"])
    assert any("spool" in finding for finding in site.judge.final())


@one_store
def test_a_committer_that_knows_its_own_way_alone_is_caught_by_what_is_in_its_way(site):
    site.crash(Drill("decide.before", epoch=MIDDLE), sinks=WAYS["prepared"])
    site.run(FAILED, sinks=ONE_WAY["spooled"])
    assert site.prepared(3)
