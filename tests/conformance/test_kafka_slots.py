"""What the Kafka sink makes of its slots topic: it alone can tell which slots of an epoch in part are visible, and only of this one."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pakka.errors import SinkError, UnknownOutcomeError
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_topic
from pakka.sinks._kafka_raw import Registry
from pakka.testing.contract.trial import Trial, commit_slot, epoch_of
from tests.conformance.kafka import PreparedKafkaHarness, ShardedKafkaHarness
from tests.fixtures.kafka import Topics
from tests.unit.coordinator.stage import SCHEMA, Stage

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("ground")]

by_both_ways = pytest.mark.parametrize("harness", [PreparedKafkaHarness, ShardedKafkaHarness])


def slots_of(trial: Trial) -> str:
    return trial.sink.slots_topic(trial.binding)


@by_both_ways
def test_slots_of_an_earlier_life_are_not_taken_for_visible(harness, ground, tmp_path):
    """A pipeline begins anew: its output and its ledger were removed, and the slots topic was forgotten."""
    with Trial(harness(tmp_path)) as trial:
        trial.driver(1).deliver(0)
        topics = Topics(ground.direct, "")
        for name in (trial.harness.topic, trial.harness.ledger):
            topics.delete(name)
        ground.create(trial.harness.topic)
        trial.restart()
        _kafka_topic.forget()
        with closing(trial.committer(2)) as heir, pytest.raises(SinkError, match="of an earlier life") as refused:
            heir.raise_fence()
        assert f"--delete --topic {slots_of(trial)}" in refused.value.hint
        topics.delete(slots_of(trial))
        trial.restart()
        trial.expect(*trial.driver(3).deliver(0), when="after the slots topic was removed, too")


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
        assert [commit_slot(heir, epoch_of(0), record).kind for record in records] == [Kind.REFUSED] * 3
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

    def end_late(self, handle, *, is_commit, patience_s=None):
        # `PREFIX.PIPELINE.SINK.SLOT.ATTEMPT`; the driver's own has neither slot nor attempt.
        slot = int(handle.id.split(".")[-2]) if is_commit and handle.id.count(".") == 4 else None
        if slot == 1:
            third_begins.wait(20)
        if slot == 2:
            third_begins.set()
            # Long enough for the second to be entered first.
            time.sleep(0.5)
        answer = end(self, handle, is_commit=is_commit, patience_s=patience_s)
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
