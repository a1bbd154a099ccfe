"""The end of a transaction is on its way when the driver, or the broker, is killed: whoever comes next finds out what became of it."""

import itertools

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import KILLED
from tests.faults.extent import one_store
from tests.fixtures.kafka import END_TXN, request_mark

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
ENDS = {
    "an epoch": ("one", Drill("commit.kafka.ending", epoch=MIDDLE)),
    "the first slot": ("prepared", Drill("commit.apply", epoch=MIDDLE)),
    "a later slot": ("prepared", Drill("commit.apply", epoch=MIDDLE, nth=2)),
    "an epoch in part": ("prepared", Drill("commit.kafka.ending", epoch=MIDDLE)),
    "an epoch of slots": ("prepared", Drill("commit.kafka.ending", epoch=MIDDLE, nth=2)),
}
"""What ends, and where a driver stands before it asks for it: the epoch of `spooled`; slots of `prepared`, and its entries in the ledger."""
LATE = {"when the next driver begins": "recover.fenced", "in the next driver's transaction": "commit.apply"}
"""When a request arrives whose sender is dead: where the next driver stands."""


def send_an_end(site, proxy, drill):
    """A driver that has asked for the end of its transaction, and waits; and the request, which is on its way."""
    child = site.freeze(drill)
    caught = proxy.catch(request_mark(END_TXN, 4))
    child.wake()
    caught.wait()
    return child, caught


def kill(child):
    child.kill()
    assert child.wait() == KILLED, child.said


@one_store
@pytest.mark.parametrize("fate", ["lost", "done", *LATE])
@pytest.mark.parametrize("end", ENDS)
def test_a_driver_killed_while_the_end_is_on_its_way_is_followed_by_one_who_finds_out(
    make_mortal_site, proxy, state, end, fate
):
    """The request is lost; is done, and nobody hears of it; arrives when the next driver is at work, and ends nothing of it."""
    layout, drill = ENDS[end]
    site = make_mortal_site(state, layout)
    child, caught = send_an_end(site, proxy, drill)
    if fate == "done":
        caught.deliver()
    kill(child)
    site.check_whole_epochs()
    if fate in LATE:
        heir = site.freeze(Drill(LATE[fate]))
        caught.deliver()
        site.check_whole_epochs()
        heir.wake()
        assert heir.wait() == 0, heir.said
    caught.lose()
    site.finish()


@one_store
@pytest.mark.parametrize("victims", ["broker", "broker and driver"])
@pytest.mark.parametrize(
    ("end", "fate"),
    [*itertools.product(["an epoch", "a later slot", "an epoch of slots"], ["lost", "in the middle", "done"])],
)
def test_a_broker_killed_while_the_end_is_on_its_way_leaves_each_record_once(
    mortal, make_mortal_site, proxy, state, end, fate, victims
):
    """Before it has the request; as soon as it has it, whatever it has done of it by then; when it has answered, and nobody has heard."""
    layout, drill = ENDS[end]
    site = make_mortal_site(state, layout)
    child, caught = send_an_end(site, proxy, drill)
    mortal.onlooker.close()
    if fate != "lost":
        caught.deliver(is_answered=fate == "done")
    mortal.kill()
    if victims == "broker and driver":
        kill(child)
    caught.lose()
    mortal.server.restart()
    if victims == "broker":
        site.ends(child)
        assert "Traceback" not in child.said
    site.check_whole_epochs()
    site.finish()
