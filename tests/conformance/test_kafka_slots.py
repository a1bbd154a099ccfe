"""What the Kafka sink makes of its slots topic: it alone can tell which slots of an epoch in part are visible, and only of this one."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from pakka.errors import FencedError, UnknownOutcomeError
from pakka.kafka_cluster import Cluster
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_topic
from pakka.sinks._kafka_raw import Registry
from pakka.sinks._kafka_shard import Shard
from pakka.testing.contract.trial import Trial, commit_slot, epoch_of
from tests.conformance.kafka import PreparedKafkaHarness, ShardedKafkaHarness
from tests.fixtures.kafka import Topics
from tests.unit.coordinator.stage import SCHEMA, Stage

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("ground")]

by_both_ways = pytest.mark.parametrize("harness", [PreparedKafkaHarness, ShardedKafkaHarness])


def slots_of(trial: Trial) -> str:
    return trial.sink.slots_topic(trial.binding)


def forget_the_ledger(trial: Trial, ground, *beside: str) -> None:
    """Remove its topic, and perhaps more."""
    topics = Topics(ground.direct, "")
    for name in (trial.harness.ledger, *beside):
        topics.delete(name)
    trial.restart()
    _kafka_topic.forget()


def refused(committer, records, number=0) -> list[Kind]:
    return [commit_slot(committer, epoch_of(number), record).kind for record in records]


@by_both_ways
def test_slots_of_an_earlier_life_are_not_taken_for_visible(harness, ground, tmp_path, caplog):
    """A pipeline begins anew: its output and its ledger were removed, and the slots topic was forgotten."""
    with Trial(harness(tmp_path)) as trial:
        trial.driver(1).deliver(0)
        forget_the_ledger(trial, ground, trial.harness.topic)
        ground.create(trial.harness.topic)
        driver = trial.driver(2)
        records, batches = driver.prepare(0)
        assert refused(driver.committer, records) == [Kind.REFUSED] * 3
        assert "has visible slots of epoch 0, and the ledger is empty" in caplog.text
        assert "only if all of `refunds` has begun anew, its checkpoint and state store too" in caplog.text
        assert f"--delete --topic {slots_of(trial)}" in caplog.text
        trial.expect(when="while the slots topic is there")
        Topics(ground.direct, "").delete(slots_of(trial))
        trial.restart()
        # What was decided before is still in the spool.
        heir = trial.driver(3, (epoch_of(0), records))
        heir.must_commit(0, records, "the commit after the slots topic was removed, too")
        trial.expect(*batches, when="after the slots topic was removed, too")


def test_slots_of_an_earlier_life_are_found_also_if_the_new_one_began_by_another_way(ground, tmp_path):
    """Epochs 0 and 1 by `sharded`; all but the slots topic is removed; epoch 0 by `spooled`, and epoch 1 by `sharded` with the same rows."""
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        driver.deliver(0)
        driver.deliver(1)
        forget_the_ledger(trial, ground, trial.harness.topic)
        ground.create(trial.harness.topic)
        spooled = replace(trial.sink, way="spooled")
        with closing(spooled.open_committer(trial.binding, 2)) as committer:
            assert committer.raise_fence()
            assert committer.commit_epoch(epoch_of(0), ()).kind is Kind.COMMITTED
        driver = trial.driver(3)
        records, _ = driver.prepare(1)
        assert refused(driver.committer, records, 1) == [Kind.REFUSED] * 3


@by_both_ways
def test_what_is_visible_is_not_sent_again_when_the_ledger_is_lost_and_a_person_can_accept_it(
    harness, ground, tmp_path
):
    with Trial(harness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        ground.await_markers(trial.harness.prefix)
        forget_the_ledger(trial, ground)
        heir = trial.committer(2)
        heir.raise_fence()
        assert refused(heir, records) == [Kind.REFUSED] * 3
        trial.expect(batches[0], when="after the ledger was lost")
        # Readers do not wait for a person, and neither does the next driver.
        with closing(trial.committer(3)) as third:
            assert third.raise_fence()
            assert third.enter_epoch(epoch_of(0)).kind is Kind.COMMITTED
            assert refused(third, records) == [Kind.ALREADY_COMMITTED] * 3
        trial.expect(batches[0], when="after the epoch was accepted")


@by_both_ways
def test_a_driver_that_was_overtaken_is_fenced_and_not_told_of_another_life(harness, tmp_path):
    with Trial(harness(tmp_path)) as trial:
        zombie = trial.driver(1)
        records, _ = zombie.prepare(0)
        trial.driver(2).deliver(0)
        with pytest.raises(FencedError):
            zombie.committer.commit(epoch_of(0), records)


def test_a_shard_sends_nothing_if_the_slots_topic_was_made_anew_beside_it(ground, tmp_path):
    """The answer of one was lost, and before it is sent again somebody makes the topic anew, in which it is not found."""
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        ground.await_markers(trial.harness.prefix)
        Topics(ground.direct, "").delete(slots_of(trial))
        trial.sink.open_slots(trial.binding).make(Cluster(trial.sink.address))
        _kafka_topic.forget()
        again = Shard(trial.sink, trial.binding, 1, records[1])()
        assert again.outcome is not None
        assert again.outcome.kind is Kind.REFUSED
        trial.expect(batches[0], when="after a shard was sent again")


@by_both_ways
def test_an_epoch_in_part_is_not_sent_again_once_nobody_can_tell_what_is_visible(harness, ground, tmp_path, caplog):
    with Trial(harness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        ground.await_markers(trial.harness.prefix)
        Topics(ground.direct, "").delete(slots_of(trial))
        trial.restart()
        heir = trial.committer(2)
        heir.raise_fence()
        assert refused(heir, records) == [Kind.REFUSED] * 3
        # What was open is ended, so that readers do not wait for a person.
        assert heir.raise_fence()
        assert "was made anew since epoch 0 was begun" in caplog.text
        assert "pakka reset refunds --sink out" in caplog.text
        trial.expect(batches[0], when="after the slots topic was lost")
        # A person accepts what is there.
        assert heir.enter_epoch(epoch_of(0)).kind is Kind.COMMITTED
        assert heir.ledger().last.slots is None
        assert commit_slot(heir, epoch_of(0), records[0]).kind is Kind.ALREADY_COMMITTED
        trial.expect(batches[0], when="after the epoch was accepted")


def test_slots_that_are_ended_beside_a_lost_answer_are_all_in_the_ledger(tmp_path, monkeypatch):
    """Three slots in two threads: the first one's answer is lost, and the third begins while the second is still on its way."""
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    end, lost, third_begins = Registry.end, [], threading.Event()

    def end_late(self, handle, *, is_commit, patience_s=None, granter=None):
        # `PREFIX.PIPELINE.SINK.SLOT.ATTEMPT`; the driver's own has neither slot nor attempt.
        slot = int(handle.id.split(".")[-2]) if is_commit and handle.id.count(".") == 4 else None
        if slot == 1:
            third_begins.wait(20)
        if slot == 2:
            third_begins.set()
            # Long enough for the second to be entered first.
            time.sleep(0.5)
        answer = end(self, handle, is_commit=is_commit, patience_s=patience_s, granter=granter)
        if slot == 0 and not lost:
            lost.append(handle)
            raise UnknownOutcomeError("no answer to the end of the transaction")
        return answer

    monkeypatch.setattr(Registry, "end", end_late)
    harness = PreparedKafkaHarness(tmp_path)
    stage = Stage({"out": harness.sink()}, slots=3)
    with ThreadPoolExecutor(2) as pool:
        driver = stage.driver()
        driver.pool, driver.sleep = pool, time.sleep
        stage.run(0, driver)
    assert lost
    assert sorted(row["id"] for row in harness.rows(SCHEMA)) == stage.ids(0)
    again = stage.driver()
    again.start(stage.checkpoint())
    (station,) = again.run.stations
    assert station.committer.ledger().last.rows == 9
    again.stop()
