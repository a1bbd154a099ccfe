"""The line is cut at the end of a transaction: before the request reaches the broker, or after, before it could answer."""

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.kafka.setups import IMPATIENT
from tests.faults.watched import DONE, FAILED, UNKNOWN
from tests.fixtures.kafka import END_TXN, request_mark

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
FATES = {"done": True, "lost": False}
"""What became of the request whose answer never came."""


@one_store
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("layout", ["one", "mix"])
def test_an_end_without_an_answer_is_asked_for_again_and_done_once(make_mortal_site, proxy, state, layout, fate):
    site = make_mortal_site(state, layout)
    child = site.freeze(Drill("commit.kafka.ending", epoch=MIDDLE))
    cuts = proxy.cuts
    proxy.cut_at(request_mark(END_TXN, 4), is_delivered=FATES[fate])
    child.wake()
    assert site.ends(child) == DONE, child.said
    assert proxy.cuts == cuts + 1
    site.check()


@pytest.mark.every_case
@one_store
@pytest.mark.parametrize("fate", FATES)
def test_an_end_without_an_answer_and_a_broker_out_of_reach_is_unknown_and_settled_by_the_ledger(
    make_mortal_site, proxy, state, fate
):
    site = make_mortal_site(state, setup=IMPATIENT, tries=2)
    child = site.freeze(Drill("commit.kafka.ending", epoch=MIDDLE))
    cuts = proxy.cuts
    proxy.cut_at(request_mark(END_TXN, 4), is_delivered=FATES[fate])
    proxy.refuse()
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    assert proxy.cuts == cuts + 1
    assert f"epoch {MIDDLE} is decided" in child.said
    site.check_whole_epochs()
    # What was done is done, whatever the driver could know of it; what was lost, nobody has seen.
    seen = {batch for _, batch, *_ in site.judge.read("refunds")}
    assert seen == ({0, MIDDLE} if fate == "done" else {0})
    proxy.refuse(False)
    site.finish(setup="", tries=4)


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize(
    "point", ["commit.kafka.begun", "commit.kafka.sending", "commit.kafka.offsets", "commit.kafka.ending"]
)
def test_every_line_cut_at_once_ends_with_each_record_once(make_mortal_site, proxy, state, point):
    site = make_mortal_site(state)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    proxy.cut()
    child.wake()
    assert site.ends(child) == DONE, child.said
    site.check()


@pytest.mark.certify_only
@one_store
@pytest.mark.parametrize("point", ["commit.kafka.sending", "commit.kafka.ending"])
def test_a_line_that_goes_silent_is_given_up_and_settled_by_the_next_run(make_mortal_site, proxy, state, point):
    site = make_mortal_site(state, settings={"transaction.timeout.ms": 4000}, setup=IMPATIENT, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    proxy.hold()
    try:
        child.wake()
        site.ends(child, (FAILED, UNKNOWN))
        proxy.cut()
    finally:
        proxy.release()
    site.check_whole_epochs()
    site.finish(setup="", tries=4)
