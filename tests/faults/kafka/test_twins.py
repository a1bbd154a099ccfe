"""The tests of this directory can fail: broken twins of the Kafka sink are caught by the judge, and by the reader."""

import pytest
from confluent_kafka import Producer

from pakka.testing.crash import Drill
from tests.faults.kafka.test_zombies import outlive

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

LAST = 2


@pytest.fixture
def twin_site(make_kafka_site, ground):
    def make(name, layout="one", **spec):
        sinks = f"tests.faults.kafka.outputs:{name}"
        return make_kafka_site(f"sqlite:///{ground}/state.db", layout, sinks=sinks, position="", tries=2, **spec)

    return make


def test_a_ledger_record_in_another_transaction_is_caught(twin_site):
    """It says that an epoch is visible whose records were never committed."""
    site = twin_site("apart")
    site.crash(Drill("commit.kafka.sent", epoch=LAST))
    site.start().wait()
    assert any("refunds: 90 rows lost" in f for f in site.judge.final())


def test_an_epoch_without_a_ledger_record_is_caught(twin_site):
    """Nobody knows that it was committed, and so it is committed again."""
    site = twin_site("unrecorded")
    site.crash(Drill("commit.applied", epoch=0))
    site.start().wait()
    assert any("refunds: 77 rows twice" in f for f in site.judge.final())
    site.wait_for_a_look()
    assert any("came into sight again" in f for f in site.findings())


def test_a_transactional_id_for_each_process_is_caught(twin_site):
    """The fault test of a driver that is frozen with its records in an open transaction. The next one leaves that open, and when the first
    wakes it ends it.
    """
    site = twin_site("unfenced")
    with pytest.raises(AssertionError, match=r"in doubt: .*\.refunds\.refunds\.[0-9a-f]+ is Ongoing"):
        outlive(site, "commit.kafka.sent")
    zombie, *_ = site.children
    zombie.wake()
    zombie.wait()
    site.wait_for_a_look()
    assert any("refunds: came into sight again" in f for f in site.findings())


def test_a_driver_that_nobody_has_shut_out_and_that_sends_when_it_wakes_is_caught(twin_site):
    """The fault test of a driver that is frozen in an empty transaction. What it sends comes behind all that has followed."""
    site = twin_site("hoarding")
    with pytest.raises(AssertionError):
        outlive(site, "commit.kafka.begun")
    site.wait_for_a_look()
    seen = "\n".join(site.findings())
    assert "refunds: batch 1 came into sight after batch 2, in partition" in seen
    assert "refunds: came into sight again" in seen


def test_a_slot_that_is_committed_before_the_decision_is_caught(twin_site):
    """The fault test of a driver that is killed when its slots are prepared. In the first epoch: in a later one the sink itself would see
    slots of which its ledger knows nothing, and stop.
    """
    site = twin_site("eager", "prepared")
    with pytest.raises(AssertionError, match="refunds: batch 0 is in sight, and no decision"):
        site.survive(Drill("prepared", epoch=0))
    site.wait_for_a_look()
    assert "refunds: batch 0 is in sight, and no decision" in site.findings()


def test_a_slot_that_has_expired_and_is_taken_for_done_is_caught(twin_site):
    """The fault test of slots that expire, on a committer that passes over it."""
    site = twin_site("going_on", "prepared", settings={"transaction.timeout.ms": 4000})
    site.crash(Drill("decide.after", epoch=LAST))
    site.wait_until_expired()
    site.start().wait()
    assert any("rows lost" in f for f in site.judge.final())


def test_a_slot_that_is_visible_and_is_taken_for_expired_is_caught(twin_site):
    """It was sent again by a driver that died before it could tell."""
    site = twin_site("blind", "prepared", settings={"transaction.timeout.ms": 4000})
    site.crash(Drill("decide.after", epoch=LAST))
    site.wait_until_expired()
    site.crash(Drill("commit.applied", epoch=LAST))
    site.start().wait()
    assert any("rows twice" in f for f in site.judge.final())


def test_a_shard_that_does_not_look_whether_its_slot_is_visible_is_caught(twin_site):
    """The driver dies when a shard is committed and nobody has been told, and the next one sends it again."""
    site = twin_site("blind_shards", "sharded")
    site.crash(Drill("commit.kafka.shard.ended", epoch=LAST))
    site.start().wait()
    assert any("rows twice" in f for f in site.judge.final())


def test_a_record_of_somebody_else_is_found_by_the_judge_and_by_the_reader(make_kafka_site, ground):
    site = make_kafka_site(f"sqlite:///{ground}/state.db")
    site.finish()
    producer = Producer({"bootstrap.servers": site.outlet.direct, "log_level": 2})
    producer.produce(
        site.outlet.topics["refunds"], b'{"id":0,"batch":0,"merchant":"merchant 0 \xe2\x82\xb9","amount":1}'
    )
    producer.produce(site.outlet.topics["refunds"], b"what is this")
    assert producer.flush(30) == 0
    assert any("2 rows twice or foreign" in f for f in site.judge.final())
    site.wait_for_a_look()
    seen = "\n".join(site.findings())
    assert "came into sight again: (0, 0," in seen
    assert "a foreign row came into sight" in seen
