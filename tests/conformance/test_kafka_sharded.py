"""The Kafka sink keeps the contract with epochs that are sent in shards, whoever else sends the same slot."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from pakka import points
from pakka.errors import FencedError, UnknownOutcomeError
from pakka.model.outcome import Kind
from pakka.sinks._kafka_shard import Shard
from pakka.sinks._kafka_sweeper import Sweeper
from pakka.sinks._spool import SpoolReader
from pakka.testing import SinkContract
from pakka.testing.contract import Broken
from pakka.testing.contract.trial import Driver, Trial, commit_slot, epoch_of
from tests.conformance.kafka import PreparedKafkaHarness, ShardedKafkaHarness
from tests.conformance.kafka_twins import BlindShard
from tests.unit.coordinator.stage import SCHEMA, Stage

pytestmark = pytest.mark.kafka


@pytest.mark.usefixtures("ground")
@pytest.mark.in_turn("kafka contract", "TestShardedKafka")
class TestShardedKafka(SinkContract):
    harness = ShardedKafkaHarness


def at(point: str, do) -> None:
    """Once, when the point is reached for the first time."""

    def strike(reached: str, _: int) -> None:
        if reached == point:
            points.arm(None)
            do()

    points.arm(strike)


@pytest.fixture(autouse=True)
def disarmed():
    yield
    points.arm(None)


@pytest.mark.usefixtures("ground")
def test_shards_are_done_by_whoever_was_named_and_can_be_sent_there(tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver, done = trial.driver(1), []

        def over(work):
            done.extend(each.record.slot for each in work)
            return [pickle.loads(pickle.dumps(each))() for each in work]

        driver.committer.spread(over)
        records, batches = driver.prepare(0)
        driver.must_commit(0, records, "the commit by shards", Kind.COMMITTED)
        assert done == [record.slot for record in records]
        driver.must_commit(0, records, "a second commit", Kind.ALREADY_COMMITTED)
        assert len(done) == len(records)
        trial.expect(*batches, when="after the commit by shards")
        trial.expect_no_litter("after the commit by shards")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("kind", [Shard, BlindShard], ids=["honest", "blind"])
@pytest.mark.parametrize("point", ["commit.kafka.shard.begun", "commit.kafka.shard.sent", "commit.kafka.shard.ended"])
def test_a_slot_that_two_send_is_there_once(point, kind, tmp_path):
    """A task that was thought to be dead, and its next attempt, which runs from its beginning to its end in the middle of the first."""
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        second = []

        def over(work):
            def overtake():
                second.append(kind(trial.sink, trial.binding, 1, records[0])())

            if work[0].record == records[0] and not second:
                at(point, overtake)
            return [kind(trial.sink, trial.binding, 1, each.record)() for each in work]

        driver.committer.spread(over)
        outcomes = [driver.commit(0, records)]
        while not outcomes[-1].is_final and len(outcomes) < 5:
            outcomes.append(driver.commit(0, records))
        assert outcomes[-1].is_final, outcomes
        assert [sent.outcome.kind for sent in second] == [
            Kind.ALREADY_COMMITTED if point == "commit.kafka.shard.ended" and kind is Shard else Kind.COMMITTED
        ]
        if kind is Shard:
            trial.expect(*batches, when=f"after two have sent a slot, one at {point}")
            trial.expect_no_litter("after two have sent a slot")
        else:
            # Whoever was overtaken before his end has committed nothing; all else comes twice.
            with pytest.raises(Broken, match="doubled"):
                trial.expect(*batches, when="after two have sent a slot and neither has looked")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("point", ["commit.kafka.shard.begun", "commit.kafka.shard.sent", "commit.kafka.shard.ended"])
def test_a_driver_that_is_overtaken_while_a_shard_is_sent_leaves_one_copy(point, tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        old = trial.driver(1)
        records, batches = old.prepare(0)
        newer = Driver(trial, trial.committer(2), 2)

        def overtake():
            newer.committer.raise_fence()
            newer.must_commit(0, records, "the commit by the newer driver")
            assert newer.committer.raise_fence()

        at(point, overtake)
        with pytest.raises(FencedError):
            old.commit(0, records)
        trial.expect(*batches, when="after a driver was overtaken while it sent a shard")
        trial.expect_no_litter("after a driver was overtaken while it sent a shard")
        trial.expect(*batches, *newer.deliver(1), when="after the next epoch")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("is_honest", [True, False], ids=["honest", "looks at open ones only"])
def test_a_shard_that_has_looked_at_its_fence_and_begun_nothing_is_shut_out_by_the_next_one(
    is_honest, tmp_path, monkeypatch
):
    """Nothing is open, and all of its rows are in its hands: only its id is left to be taken."""
    if not is_honest:
        monkeypatch.setattr(Sweeper, "shut_out", lambda *_: None)
    read = SpoolReader.batches
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        old = trial.driver(1)
        records, batches = old.prepare(0)
        newer = Driver(trial, trial.committer(2), 2)
        raised = []

        def overtaken(reader):
            for batch in read(reader):
                if not raised:
                    raised.append(newer.committer.raise_fence())
                yield batch

        with monkeypatch.context() as patched:
            patched.setattr(SpoolReader, "batches", overtaken)
            with pytest.raises(FencedError):
                old.commit(0, records)
        assert raised == [True]
        if is_honest:
            trial.expect(when="after the fence of a shard was raised")
        else:
            with pytest.raises(Broken, match="5 strange"):
                trial.expect(when="after the fence of a shard was raised by one that takes no id")
        newer.must_commit(0, records, "the commit by the newer driver")
        trial.expect(*batches, when="after the commit by the newer driver")
        trial.expect_no_litter("after the commit by the newer driver")


@pytest.mark.usefixtures("ground")
def test_a_shard_of_an_older_driver_that_comes_late_sends_nothing(ground, tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        old = trial.driver(1)
        records, batches = old.prepare(0)
        assert commit_slot(old.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        newer = trial.driver(2, (epoch_of(0), records))
        late = Shard(trial.sink, trial.binding, 1, records[1])
        assert late().outcome is None
        newer.must_commit(0, records, "the commit by the newer driver")
        assert late().outcome is None
        assert Shard(trial.sink, trial.binding, 2, records[1])().outcome is None
        trial.expect(*batches, when="after shards that came late")
        trial.expect_no_litter("after shards that came late")


@pytest.mark.usefixtures("ground")
def test_a_shard_whose_copy_is_harmed_is_refused_and_the_epoch_runs_again(tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        for copy in tmp_path.rglob("rows.arrow"):
            if str(records[1].slot) in str(copy):
                data = bytearray(copy.read_bytes())
                data[len(data) // 2] ^= 1
                copy.write_bytes(data)
        kinds = [commit_slot(driver.committer, epoch_of(0), record).kind for record in records]
        assert kinds == [Kind.COMMITTED, Kind.REFUSED, Kind.COMMITTED]
        driver.abort([records[1]], "abort of what is lost")
        again, _ = driver.prepare(0, attempt=1)
        driver.must_commit(0, again, "the epoch that runs again", Kind.COMMITTED)
        trial.expect(*batches, when="after the epoch ran again")
        trial.expect_no_litter("after the epoch ran again")


@dataclass(frozen=True)
class OneIdAnAttempt(Shard):
    """Has a transactional id for each attempt, as open slots have."""

    def __call__(self):
        apart = replace(self.sink)
        object.__setattr__(apart, "shard_id", apart.slot_id)
        return replace(Shard(apart, self.binding, self.fence, self.record))()


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("kind", [Shard, OneIdAnAttempt], ids=["honest", "one id an attempt"])
@pytest.mark.parametrize("point", ["commit.kafka.shard.begun", "commit.kafka.shard.sent"])
def test_an_attempt_that_was_lost_and_the_one_made_in_its_place_are_not_both_visible(point, kind, tmp_path):
    """A shard was thought to be lost, and another attempt at its slot was decided; then it goes on."""
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        again, _ = driver.prepare(0, attempt=1)
        sent = []

        def overtake():
            sent.append(kind(trial.sink, trial.binding, 1, again[0])())

        def over(work):
            if work[0].record == records[0] and not sent:
                at(point, overtake)
            return [kind(trial.sink, trial.binding, 1, each.record)() for each in work]

        driver.committer.spread(over)
        commit_slot(driver.committer, epoch_of(0), records[0])
        assert sent[0].outcome.kind is Kind.COMMITTED
        outcome = commit_slot(driver.committer, epoch_of(0), again[0])
        if kind is Shard:
            assert outcome.kind is Kind.ALREADY_COMMITTED
            trial.expect(batches[0], when="after two attempts at a slot")
        else:
            with pytest.raises(Broken, match="5 doubled"):
                trial.expect(batches[0], when="after two attempts at a slot, each under an id of its own")


@pytest.mark.usefixtures("ground")
def test_a_slot_that_is_visible_with_other_rows_is_told(tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, _ = driver.prepare(0)
        assert commit_slot(driver.committer, epoch_of(0), records[0]).kind is Kind.COMMITTED
        other = replace(records[0], rows=records[0].rows + 1)
        told = Shard(trial.sink, trial.binding, 1, other)().outcome
        assert told.kind is Kind.RETRY
        assert "is visible with 5 rows" in told.reason
        assert "and 6 rows" in told.reason


@pytest.mark.usefixtures("ground")
def test_executors_that_fail_leave_an_outcome_that_is_asked_for_again(tmp_path):
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        broken = []

        def over(work):
            done = [each() for each in work]
            if not broken:
                broken.append(len(done))
                raise UnknownOutcomeError("a task failed for good")
            return done

        driver.committer.spread(over)
        assert driver.commit(0, records).kind is Kind.UNKNOWN
        driver.must_commit(0, records, "the commit once there are executors")
        trial.expect(*batches, when="after the executors had failed")
        last = driver.committer.ledger().last
        assert (last.rows, last.slots) == (sum(record.rows for record in records), None)


@pytest.mark.usefixtures("ground")
def test_many_slots_are_sent_side_by_side(tmp_path, monkeypatch):
    """Through the coordinator, which commits some slots in each of several threads."""
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    harness = ShardedKafkaHarness(tmp_path)
    stage = Stage({"out": harness.sink()}, slots=10)
    with ThreadPoolExecutor(8) as pool:

        def over(work):
            return list(ThreadPoolExecutor(4).map(lambda each: each(), work))

        driver = stage.driver(executors=over)
        driver.pool = pool
        stage.run(1, driver)
    assert sorted(row["id"] for row in harness.rows(SCHEMA)) == stage.ids(1)


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("ways", [("sharded", "prepared"), ("prepared", "sharded")])
@pytest.mark.parametrize("done", [0, 1])
def test_an_epoch_that_one_way_has_decided_is_finished_by_the_other(ways, done, tmp_path):
    """With none of its slots visible, and with one."""
    first, then = ways
    with Trial(PreparedKafkaHarness(tmp_path)) as trial:
        trial.sink = replace(trial.sink, way=first)
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        for record in records[:done]:
            assert commit_slot(driver.committer, epoch_of(0), record).kind is Kind.COMMITTED
        trial.restart()
        trial.sink = replace(trial.sink, way=then)
        heir = trial.driver(2, (epoch_of(0), records))
        heir.must_commit(0, records, f"the commit by way of {then}")
        trial.expect(*batches, when=f"after an epoch was decided by way of {first} and committed by way of {then}")
        trial.expect_no_litter("after the way was changed")


@pytest.mark.usefixtures("ground")
def test_a_shard_that_is_sent_is_not_sent_again_by_a_driver_of_another_way(tmp_path):
    """It stands in its transaction while the next driver, by way of `prepared`, finishes the epoch under the id of the sink."""
    with Trial(ShardedKafkaHarness(tmp_path)) as trial:
        old = trial.driver(1)
        records, batches = old.prepare(0)
        prepared = replace(trial.sink, way="prepared").open_committer(trial.binding, 2)
        newer = Driver(trial, prepared, 2)

        def overtake():
            newer.committer.raise_fence()
            newer.must_commit(0, records, "the commit by the newer driver")

        with closing(prepared):
            at("commit.kafka.shard.sent", overtake)
            with pytest.raises(FencedError):
                old.commit(0, records)
            trial.expect(*batches, when="after a shard was overtaken by a driver of another way")
