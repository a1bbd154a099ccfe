"""Transactions that are open for too long: the broker aborts ours, and those of others keep readers back."""

import time

import pytest
from confluent_kafka import Producer

from pakka.model.id import Binding
from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.kafka.outputs import EXPIRED
from tests.faults.watched import DONE

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

MIDDLE = 1
SHORT = {"transaction.timeout.ms": 4000}
INSIDE = ["commit.kafka.sending", "commit.apply", "commit.kafka.offsets", "commit.kafka.ending"]


def outlast_expiry(site, point):
    """Frozen until the broker has aborted what was open, and woken."""
    child = site.freeze(Drill(point, epoch=MIDDLE))
    site.wait_until_expired()
    child.wake()
    assert site.ends(child) == DONE, child.said
    site.check()


@one_store
@pytest.mark.parametrize("point", INSIDE)
def test_a_transaction_that_expires_while_its_driver_is_frozen_is_replayed(make_kafka_site, state, point):
    outlast_expiry(make_kafka_site(state, settings=SHORT), point)


@one_store
@pytest.mark.parametrize("point", INSIDE)
def test_a_transaction_that_expires_with_its_driver_dead_is_replayed_by_the_next_one(make_kafka_site, state, point):
    site = make_kafka_site(state, settings=SHORT)
    site.crash(Drill(point, epoch=MIDDLE))
    site.wait_until_expired()
    site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize("point", ["prepared", "decide.after", "commit.slot", "commit.apply"])
def test_slots_that_expire_after_they_were_prepared_are_sent_again_from_their_copy(make_kafka_site, state, point):
    outlast_expiry(make_kafka_site(state, "prepared", settings=SHORT), point)


@one_store
@pytest.mark.parametrize(
    ("point", "nth"),
    # A crash point that nothing else strikes.
    [
        pytest.param(EXPIRED, 1, marks=pytest.mark.every_case),
        (EXPIRED, 2),
        ("commit.applied", 1),
        ("commit.applied", 2),
    ],
)
def test_a_driver_killed_when_it_has_sent_an_expired_slot_again_sends_it_once(make_kafka_site, state, point, nth):
    """Before the transaction of it has ended, and after."""
    site = make_kafka_site(state, "prepared", settings=SHORT)
    site.crash(Drill("decide.after", epoch=MIDDLE))
    site.wait_until_expired()
    site.survive(Drill(point, epoch=MIDDLE, nth=nth))


# By layout, how many transactions are open: of `prepared` one for each slot that has rows.
OUTAGES = [("one", point, 1) for point in INSIDE]
OUTAGES += [("prepared", point, 2) for point in ("decide.after", "commit.slot", "commit.apply")]
ALWAYS = ("prepared", "decide.after", 2)


@one_store
@pytest.mark.parametrize(
    ("layout", "point", "count"),
    [
        pytest.param(*case, marks=pytest.mark.every_case if case == ALWAYS else pytest.mark.certify_only)
        for case in OUTAGES
    ],
)
def test_a_transaction_that_expires_while_the_broker_is_away_is_replayed(
    mortal, make_mortal_site, state, layout, point, count
):
    """The broker is away for longer than a transaction may be open. The driver is back when the broker has aborted what it found."""
    site = make_mortal_site(state, layout, settings=SHORT)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    assert site.transactions().count("Ongoing") == count
    mortal.kill()
    # Nothing can be waited for here: the time itself is the fault.
    time.sleep(SHORT["transaction.timeout.ms"] / 1000)
    mortal.server.restart()
    site.wait_until_expired(count)
    child.wake()
    site.ends(child)
    site.check_whole_epochs()
    site.finish()
    is_told = any("has expired before its commit, and is sent again" in child.said for child in site.children)
    assert is_told == (layout == "prepared")


@one_store
def test_a_transaction_of_somebody_else_keeps_readers_back_and_nothing_is_lost(make_kafka_site, state):
    site = make_kafka_site(state)
    topic = site.outlet.topics["refunds"]
    own = {"transactional.id": "theirs", "transaction.timeout.ms": 600_000, "log_level": 2}
    hanging = Producer({"bootstrap.servers": site.outlet.direct, **own})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    for partition in range(3):
        hanging.produce(topic, b"theirs", partition=partition)
    assert hanging.flush(30) == 0
    site.run()
    # All is done, and none of it can be read: whoever looks for the reason finds it.
    assert site.judge.read("refunds") == []
    assert site.judge.in_doubt() == []
    lags = site.outlet.sink("refunds").lags(Binding("refunds", "refunds", ""))
    assert len(lags) == 3
    assert sum(lag.held for lag in lags) >= len(site.judge.wanted("refunds"))
    hanging.abort_transaction(30)
    site.onlooker.await_markers("theirs")
    site.check()
