"""The Kafka sink keeps the contract on a real broker, whatever becomes of its line, and broken twins of it do not."""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from pakka import points
from pakka.errors import UnavailableError
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_ledger, _kafka_wire
from pakka.sinks._kafka_applier import KafkaApplier
from pakka.sinks._kafka_raw import Registry
from pakka.testing import SinkContract
from pakka.testing.contract import CASES, Broken, NotApplicable
from pakka.testing.contract.trial import Trial, epoch_of
from tests.conformance.kafka import DeafKafkaHarness, KafkaHarness
from tests.conformance.kafka_twins import CAUGHT_BY, Hasty, Keeping, harness_of

pytestmark = pytest.mark.kafka


@pytest.fixture
def impatient(monkeypatch):
    """Whoever gets no answer does not wait a minute for it."""
    monkeypatch.setattr(_kafka_wire, "PATIENCE_S", 3.0)
    monkeypatch.setattr(_kafka_ledger, "ANSWER_S", 3.0)


@pytest.mark.usefixtures("ground")
@pytest.mark.in_turn("kafka contract", "TestKafka")
class TestKafka(SinkContract):
    harness = KafkaHarness


@pytest.mark.usefixtures("ground", "impatient")
@pytest.mark.parametrize(
    "case", ["a_lost_answer_is_unknown_and_ends_in_one_copy", "a_lost_request_is_not_called_committed"]
)
def test_a_commit_whose_outcome_stays_unknown_ends_in_one_copy(case, tmp_path):
    _run(case, DeafKafkaHarness(tmp_path))


@pytest.mark.usefixtures("ground", "impatient")
@pytest.mark.parametrize("is_done", [True, False])
def test_a_driver_that_got_no_answer_asks_the_ledger_and_goes_on(is_done, tmp_path):
    with Trial(DeafKafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        records, batches = driver.prepare(0)
        with trial.harness.cut(is_done=is_done) as cut:
            assert driver.commit(0, records).kind is Kind.UNKNOWN
        assert cut.is_struck
        expected = Kind.ALREADY_COMMITTED if is_done else Kind.COMMITTED
        assert driver.commit(0, records).kind is expected
        batches += driver.deliver(1)
        trial.expect(*batches, when="after the same driver has asked again")


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_killed_and_comes_back_loses_nothing_and_doubles_nothing(ground, tmp_path):
    with Trial(KafkaHarness(tmp_path)) as trial:
        driver = trial.driver(1)
        batches = driver.deliver(0)
        ground.restart()
        records, rows = driver.prepare(1)
        # The first try may find its coordinator still loading; it is repeated as the coordinator of a pipeline would.
        outcomes = [driver.commit(1, records)]
        while not outcomes[-1].is_final and len(outcomes) < 20:
            outcomes.append(driver.commit(1, records))
        assert outcomes[-1].is_final, outcomes
        trial.expect(*batches, *rows, when="after a broker was killed and came back")


@pytest.mark.parametrize("twin", CAUGHT_BY, ids=lambda twin: twin.__name__)
@pytest.mark.usefixtures("ground", "impatient")
def test_a_broken_twin_is_caught(twin, tmp_path):
    case, line, by = CAUGHT_BY[twin]
    with pytest.raises(Broken, match=by):
        _run(case, harness_of(twin, line)(tmp_path / "twin"))
    if line is not KafkaHarness:
        # What it is a twin of passes, there as well as above: else it could be caught for a reason that is not its mistake.
        _run(case, harness_of(KafkaApplier, line)(tmp_path / "honest"))


def _run(case, harness):
    """A case that does not apply has caught nothing, and must not pass for a test that was skipped."""
    try:
        CASES[case].run(harness)
    except NotApplicable as error:
        raise AssertionError(f"{case} was not put to the test: {error}") from error


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("applier", [KafkaApplier, Keeping], ids=["honest", "keeping"])
def test_an_end_that_comes_late_ends_nothing_that_has_followed(applier, tmp_path):
    """A request to end that was cut off is sent again, and answered; the first one is still on its way, and arrives in the next epoch."""
    with Trial(harness_of(applier)(tmp_path)) as trial:
        driver, sink = trial.driver(1), trial.harness.sink()
        records, batches = driver.prepare(0)
        with trial.harness.cut(is_done=True) as cut:
            driver.must_commit(0, records, "a commit that is asked for twice", Kind.COMMITTED)
        assert cut.is_struck
        with closing(Registry("late", sink.address)) as late:
            first = late.described(sink.transactional_id(driver.committer.applier.binding)).handle
            records, rows = driver.prepare(1)

            def arrive(point, _):
                if point == "commit.kafka.sent":
                    late.end(first, is_commit=True)
                    # What was ended without a page of the ledger shows when the epoch has to be sent again.
                    raise UnavailableError("the test has had enough")

            points.arm(arrive)
            try:
                assert driver.commit(1, records).kind is Kind.RETRY
            finally:
                points.arm(None)
        outcome = driver.commit(1, records)
        assert outcome.is_final, outcome
        if applier is KafkaApplier:
            trial.expect(*batches, *rows, when="after an end came late")
        else:
            with pytest.raises(Broken, match="12 doubled"):
                trial.expect(*batches, *rows, when="after an end came late")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("applier", [KafkaApplier, Hasty], ids=["honest", "hasty"])
def test_a_ledger_that_cannot_be_read_to_its_end_is_not_believed(applier, ground, tmp_path):
    """A transaction of somebody else hides the newest page. Who believes what is before it delivers the epoch twice."""
    with Trial(harness_of(applier)(tmp_path)) as trial:
        driver = trial.driver(1)
        stranger = Producer(
            {"bootstrap.servers": ground.direct, "transactional.id": trial.harness.prefix + "-stranger"}
        )
        stranger.init_transactions(30)
        stranger.begin_transaction()
        stranger.produce(trial.harness.ledger, b"{}", b"stranger")
        stranger.flush(30)
        records, batches = driver.prepare(0)
        driver.must_commit(0, records, "a commit behind a stranger's transaction", Kind.COMMITTED)
        trial.restart()
        heir = trial.committer(2)
        if applier is KafkaApplier:
            with pytest.raises(UnavailableError, match="can be read to offset") as told:
                heir.raise_fence()
            assert "describe-producers" in told.value.hint
        else:
            # What was spooled is gone, so the epoch would be refused, and would run again.
            trial.driver(2).deliver(0)
            with pytest.raises(Broken, match="12 doubled"):
                trial.expect(*batches, when="after the newest page was not seen")
        stranger.abort_transaction(30)
        if applier is KafkaApplier:
            assert heir.raise_fence()
            assert heir.commit_epoch(epoch_of(0), records).kind is Kind.ALREADY_COMMITTED
            trial.expect(*batches, when="after the stranger has gone")
