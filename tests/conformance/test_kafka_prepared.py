"""The Kafka sink keeps the contract with transactions that its writers leave open, also when they expire after the decision."""

from contextlib import closing, suppress
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from pakka import points
from pakka.errors import FencedError, RegressError, SinkError
from pakka.model.outcome import Kind
from pakka.sinks._kafka_prepared import PreparedCommitter, handle_of
from pakka.sinks._kafka_raw import End
from pakka.testing import SinkContract
from pakka.testing.contract import Broken
from pakka.testing.contract.trial import Driver, Trial, commit_slot, epoch_of, prepare_slot, refunds
from tests.conformance.kafka import Ground, PreparedKafkaHarness, ShardedKafkaHarness
from tests.conformance.kafka_twins import Blind, ExpiringHarness, GoingOn
from tests.fixtures.kafka import await_heard, need_kafka, relayed_kafka
from tests.unit.coordinator.stage import SCHEMA, Stage

pytestmark = pytest.mark.kafka

SMALL_BYTES = 120
"""Not less: the broker's own marker, of some 80 bytes, would find no room either, and an abort would never end."""


@pytest.fixture(scope="module")
def broker():
    need_kafka()
    # The broker looks for expired transactions every ten seconds, unless it is told otherwise.
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with relayed_kafka(settings=often) as (kafka, proxy), closing(Ground(kafka, proxy)) as ground:
        yield ground


def _limit(ground: Ground, topic: str, most: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for asked in ground.admin.incremental_alter_configs([wanted]).values():
        asked.result(30)
    await_heard(ground.direct)


@pytest.mark.usefixtures("ground")
@pytest.mark.in_turn("kafka contract", "TestPreparedKafka")
class TestPreparedKafka(SinkContract):
    harness = PreparedKafkaHarness


@pytest.mark.usefixtures("ground")
def test_a_transaction_that_expires_after_the_decision_is_sent_again_from_its_copy(tmp_path, caplog):
    with Trial(ExpiringHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        trial.harness.await_expiry(records)
        driver.must_commit(0, records, "the commit of what has expired", Kind.COMMITTED)
        trial.expect(*batches, when="after the commit of what has expired")
        # One a slot, and counted by sink.
        told = [(r.about, r.sink) for r in caplog.records if "has expired" in r.getMessage()]
        assert told == [("expired", "out")] * len(records)
        driver.must_commit(0, records, "a second commit", Kind.ALREADY_COMMITTED)
        trial.expect_no_litter("after the commit of what has expired")
        trial.expect(*batches, *driver.deliver(1), when="after the next epoch")


def test_what_the_brokers_refuse_when_it_is_sent_again_says_what_to_change(ground, tmp_path):
    with Trial(ExpiringHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        trial.harness.await_expiry(records)
        _limit(ground, trial.harness.topic, SMALL_BYTES)
        outcome = commit_slot(driver.committer, epoch_of(0), records[0])
        assert outcome.kind is Kind.RETRY
        assert "raise `max.message.bytes`" in outcome.hint
        _limit(ground, trial.harness.topic, 1_000_000)
        driver.must_commit(0, records, "the commit once there is room", Kind.COMMITTED)
        trial.expect(*batches, when="after the commit once there is room")


@pytest.mark.usefixtures("ground")
def test_a_transaction_that_expires_between_two_drivers_is_sent_again_by_the_next_one(tmp_path):
    with Trial(ExpiringHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        trial.restart()
        trial.harness.await_expiry(records[1:])
        heir = trial.driver(2, (epoch_of(0), records))
        kinds = [commit_slot(heir.committer, epoch_of(0), record).kind for record in records]
        assert kinds == [Kind.ALREADY_COMMITTED, Kind.COMMITTED, Kind.COMMITTED]
        heir.must_commit(0, records, "the commit of all")
        trial.expect(*batches, when="after one slot was committed and two had expired")


@pytest.mark.usefixtures("ground")
def test_a_transaction_that_expires_and_has_lost_its_copy_is_refused_so_that_the_epoch_runs_again(tmp_path):
    with Trial(ExpiringHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        trial.harness.await_expiry(records)
        for copy in tmp_path.rglob("rows.arrow"):
            if str(records[1].slot) in str(copy):
                copy.unlink()
        kinds = [commit_slot(driver.committer, epoch_of(0), record).kind for record in records]
        assert kinds == [Kind.COMMITTED, Kind.REFUSED, Kind.COMMITTED]
        driver.abort([records[1]], "abort of what is lost")
        again, _ = driver.prepare(0, attempt=1)
        driver.must_commit(0, again, "the epoch that runs again", Kind.COMMITTED)
        trial.expect(*batches, when="after the epoch ran again")
        trial.expect_no_litter("after the epoch ran again")


@pytest.mark.usefixtures("ground")
def test_a_slot_whose_driver_died_before_it_removed_the_copy_is_visible_and_cannot_be_aborted(tmp_path, monkeypatch):
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        monkeypatch.setattr(PreparedCommitter, "_empty", lambda *_: None)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        with pytest.raises(SinkError, match="cannot be aborted; it stays visible"):
            driver.committer.abort(records[:1])
        driver.must_commit(0, records, "the commit of all")
        trial.expect(*batches, when="after the commit of all")


@pytest.mark.usefixtures("ground")
def test_a_twin_that_logs_an_expired_transaction_and_goes_on_loses_rows_and_is_caught(tmp_path):
    with Trial(ExpiringHarness(tmp_path, GoingOn)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        trial.harness.await_expiry(records)
        driver.must_commit(0, records, "the commit of what has expired", Kind.COMMITTED)
        with pytest.raises(Broken, match="12 lost"):
            trial.expect(*batches, when="after the commit of what has expired")


def test_a_broker_that_is_killed_between_prepare_and_commit_loses_nothing(ground, tmp_path):
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        batches = driver.deliver(0)
        records, rows = driver.prepare(1)
        ground.restart()
        outcomes = [driver.commit(1, records)]
        while not outcomes[-1].is_final and len(outcomes) < 20:
            outcomes.append(driver.commit(1, records))
        assert outcomes[-1].is_final, outcomes
        trial.expect(*batches, *rows, when="after a broker was killed between prepare and commit")
        trial.expect_no_litter("after a broker was killed between prepare and commit")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize(("point", "is_in_the_way"), [("task.kafka.begun", False), ("task.kafka.sent", True)])
def test_an_older_attempt_that_has_seen_its_fence_and_is_then_overtaken_is_never_visible(
    point, is_in_the_way, tmp_path
):
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        old = trial.driver(1)
        newer = trial.committer(2)
        raised = []

        def overtake(reached: str, _: int) -> None:
            if reached == point:
                points.arm(None)
                raised.append(newer.raise_fence())

        sleeper = old.writer(old.slot(0))
        points.arm(overtake)
        try:
            with pytest.raises(FencedError):
                prepare_slot(sleeper, old.slot(0), refunds(0, 0, 4))
        finally:
            points.arm(None)
        assert raised == [not is_in_the_way]
        with suppress(FencedError):
            sleeper.discard()
        newer.abort(newer.pending())
        assert newer.raise_fence()
        trial.expect_no_litter("after the sweep")
        trial.expect(*trial.driver(3).deliver(0), when="after an older attempt went on")


@pytest.mark.usefixtures("ground")
def test_the_way_may_be_changed_between_two_epochs(tmp_path):
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        batches = trial.driver(1).deliver(0)
        for fence, way in ((2, "spooled"), (3, "prepared")):
            trial.restart()
            trial.sink = replace(trial.sink, way=way)
            driver = trial.driver(fence)
            assert driver.committer.ledger().last.epoch == epoch_of(fence - 2)
            batches += driver.deliver(fence - 1)
            trial.expect(*batches, when=f"after an epoch by way of {way}")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("harness", [PreparedKafkaHarness, ShardedKafkaHarness])
def test_an_epoch_in_part_is_not_finished_as_one_transaction(harness, tmp_path):
    with Trial(harness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).is_final
        trial.restart()
        other = replace(trial.sink, way="spooled").open_committer(trial.binding, 2)
        with closing(other), pytest.raises(SinkError, match="epoch 0 is visible in part") as told:
            other.raise_fence()
        assert "way: prepared" in told.value.hint
        trial.driver(3, (epoch_of(0), records)).must_commit(0, records, "the commit by the same way")
        trial.expect(*batches, when="after the way was not changed")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("committer", [PreparedCommitter, Blind], ids=["honest", "blind"])
def test_a_transaction_that_is_gone_because_it_is_committed_is_not_sent_again(committer, tmp_path):
    """Its end was asked for, the answer was lost, and a task that came late has taken its id."""
    with Trial(ExpiringHarness(tmp_path, committer, timeout_ms=60_000)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        unheard = handle_of(records[1])
        assert driver.committer.registry.end(unheard, is_commit=True) is End.DONE
        driver.committer.registry.take(unheard.id)
        kind = commit_slot(driver.committer, epoch_of(0), records[1]).kind
        assert driver.commit(0, records).is_final
        if committer is PreparedCommitter:
            assert kind is Kind.ALREADY_COMMITTED
            trial.expect(*batches, when="after an answer was lost and the id was taken")
        else:
            with pytest.raises(Broken, match="4 doubled"):
                trial.expect(*batches, when="after an answer was lost and the id was taken")


@pytest.mark.usefixtures("ground")
def test_a_driver_that_is_overtaken_while_it_sends_a_slot_again_leaves_one_copy(tmp_path):
    with Trial(ExpiringHarness(tmp_path)) as trial:
        old = trial.driver(1)
        records, batches = old.prepare(0)
        trial.harness.await_expiry(records)
        newer = Driver(trial, trial.committer(2), 2)
        raised = []

        def overtake(point: str, _: int) -> None:
            if point == "commit.kafka.replayed":
                points.arm(None)
                raised.append(newer.committer.raise_fence())

        points.arm(overtake)
        try:
            with pytest.raises(FencedError):
                old.commit(0, records)
        finally:
            points.arm(None)
        assert raised == [True]
        trial.expect(when="after a driver was overtaken while it sent a slot again")
        newer.must_commit(0, records, "the commit by the newer driver", Kind.COMMITTED)
        trial.expect(*batches, when="after the commit by the newer driver")
        trial.expect_no_litter("after the commit by the newer driver")


def test_a_ledger_restored_from_an_older_copy_is_accepted_and_nothing_comes_twice(ground, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    harness = PreparedKafkaHarness(tmp_path)
    stage = Stage({"out": harness.sink()})
    stage.run(0)
    ground.await_markers(harness.prefix)
    older = ground.read(harness.ledger)[-1][1]
    stage.run(1)
    producer = Producer({"bootstrap.servers": ground.direct, "log_level": 2})
    producer.produce(harness.ledger, older, b"refunds.out")
    assert producer.flush(30) == 0
    with pytest.raises(RegressError, match="sink `out` holds only epochs up to 0") as told:
        stage.run(2)
    assert "`pakka reset refunds --sink out`" in told.value.hint
    stage.reset().accept_sink("out").apply()
    stage.run(2)
    assert sorted(row["id"] for row in harness.rows(SCHEMA)) == stage.ids(2)


def test_a_record_that_the_broker_refuses_is_no_part_of_a_prepared_slot(ground, tmp_path):
    """An outside end of the transaction would be granted, and show the other records."""
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        slot = driver.slot(0)
        writer = driver.writer(slot)
        _limit(ground, trial.harness.topic, SMALL_BYTES)
        with pytest.raises(SinkError, match=r"(?i)too large"):
            prepare_slot(writer, slot, refunds(0, 0, 4))
        writer.discard()
        trial.expect(when="after a record was refused")
        trial.expect_no_litter("after a record was refused")
