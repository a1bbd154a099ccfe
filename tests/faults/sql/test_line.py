"""The line is cut at the statements that matter: before they reach the server, or after, before it could answer."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.sql.setups import IMPATIENT
from tests.faults.watched import DONE, FAILED, UNKNOWN

pytestmark = pytest.mark.faults

MIDDLE = 1
FATES = {"done": True, "lost": False}
"""What became of the statement whose answer never came."""
# Where the driver stands when the order to cut is given, and the statement at which it is carried out.
FINISHES = [
    ("prepared", "commit.apply", "finish"),
    ("spooled", "commit.apply", "commit"),
    ("upsert", "commit.apply", "commit"),
]
CASES = [(*case, fate) for case in FINISHES for fate in FATES]


@pytest.fixture
def proxied(make_sql_site, state, base, proxy):
    """A site whose sinks reach the server through the proxy, while judge and reader go straight to it."""

    def make(layout, **spec):
        return make_sql_site(state, layout, base.through(proxy.port), tries=3, **spec)

    return make


@one_store
@pytest.mark.parametrize(("layout", "point", "statement", "fate"), CASES)
def test_a_commit_without_an_answer_is_asked_again_and_done_once(proxied, proxy, base, layout, point, statement, fate):
    site = proxied(layout)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    proxy.cut_at(base.system.words[statement], is_delivered=FATES[fate])
    child.wake()
    assert site.ends(child) == DONE, child.said
    assert proxy.cuts == 1
    site.check()


@one_store
@pytest.mark.parametrize(("layout", "point", "statement", "fate"), CASES)
def test_a_commit_without_an_answer_and_a_server_out_of_reach_is_unknown_and_settled_by_the_next_run(
    proxied, proxy, base, layout, point, statement, fate
):
    site = proxied(layout)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    proxy.cut_at(base.system.words[statement], is_delivered=FATES[fate])
    proxy.refuse()
    child.wake()
    code = site.ends(child, (FAILED, UNKNOWN))
    assert proxy.cuts == 1
    # A line that is still open may have told that it was done; then only the next epoch has failed.
    assert f"epoch {MIDDLE} is decided" in child.said or (fate, code) == ("done", FAILED)
    site.check_whole_epochs()
    proxy.refuse(False)
    site.finish()


@one_store
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("layout", ["prepared", "keyed"])
def test_a_prepare_without_an_answer_is_undone_and_the_slot_runs_again(proxied, proxy, base, layout, fate):
    site = proxied(layout)
    child = site.freeze(Drill("task.sql.loaded", epoch=MIDDLE), attempts=2)
    proxy.cut_at(base.system.words["prepare"], is_delivered=FATES[fate])
    child.wake()
    assert site.ends(child) == DONE, child.said
    assert proxy.cuts == 1
    site.check()


@one_store
@pytest.mark.parametrize("fate", FATES)
def test_a_prepare_without_an_answer_and_without_another_try_aborts_the_epoch(proxied, proxy, base, fate):
    """What may be prepared cannot be undone either: the server is out of reach. The next run finds it."""
    site = proxied("prepared")
    child = site.freeze(Drill("task.sql.loaded", epoch=MIDDLE))
    proxy.cut_at(base.system.words["prepare"], is_delivered=FATES[fate])
    proxy.refuse()
    child.wake()
    site.ends(child, (FAILED,))
    assert "nothing of it is visible" in child.said
    site.check_whole_epochs()
    proxy.refuse(False)
    site.finish()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize(
    ("layout", "point"), [("prepared", "commit.apply"), ("spooled", "commit.apply"), ("prepared", "task.batch")]
)
def test_a_line_that_goes_silent_is_given_up_and_settled_by_the_next_run(proxied, proxy, layout, point):
    site = proxied(layout, setup=IMPATIENT)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    proxy.hold()
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    proxy.cut()
    proxy.release()
    site.check_whole_epochs()
    site.finish(setup="")
