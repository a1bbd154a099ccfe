"""The Kafka sink sends an epoch while its slots are written: nothing of it counts but what was decided, on a real broker. Broken twins are caught.

The contract suite begins with each of its epochs as a coordinator does, so all of its cases run over this too.
"""

import time
from dataclasses import replace

import pytest

from pakka import points
from pakka.errors import FencedError
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_eager
from pakka.sinks._kafka_eager import Early
from pakka.testing.contract import CASES, Broken
from pakka.testing.contract.trial import SHARES, Trial, refunds
from tests.conformance.kafka import KafkaHarness
from tests.conformance.kafka_twins import Careless, Forgetful

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("ground")]

PATIENCE_S = 30


@pytest.fixture
def trial(tmp_path):
    with Trial(KafkaHarness(tmp_path)) as trial:
        yield trial


@pytest.fixture
def points_seen():
    """The names of the points that were reached, in their order."""
    seen = []
    points.arm(lambda point, _: seen.append(point))
    yield seen
    points.arm(None)


def open_ids(trial, ground):
    return [ident for ident, state in ground.transactions(trial.harness.prefix).items() if state == "Ongoing"]


def await_sent(seen, count=1):
    deadline = time.monotonic() + PATIENCE_S
    while seen.count("early.kafka.sending") < count:
        assert time.monotonic() < deadline, f"nothing was sent early; reached: {seen}"
        time.sleep(0.005)


def test_an_epoch_is_sent_before_it_is_decided_and_seen_when_it_is_committed(trial, ground, points_seen):
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    await_sent(points_seen, len(SHARES))
    assert open_ids(trial, ground) == [f"{trial.harness.prefix}.refunds.out"]
    trial.expect(when="before the decision")
    driver.must_commit(0, records, "the commit of what was sent early", Kind.COMMITTED)
    assert "commit.kafka.begun" not in points_seen, "it was sent a second time"
    trial.expect(*batches, when="after the commit")
    more = driver.deliver(1)
    trial.expect(*batches, *more, when="after another epoch")
    trial.expect_no_litter("after two epochs")


def test_a_driver_that_is_gone_leaves_nothing_of_what_it_has_sent(trial, ground, points_seen):
    driver = trial.driver(1)
    batches = driver.deliver(0)
    records, _ = driver.prepare(1)
    await_sent(points_seen, 2 * len(SHARES))
    # As if its process had died: nobody undoes anything.
    driver.committer._early = None
    trial._opened.clear()
    trial.restart()
    assert open_ids(trial, ground), "nothing was left open"
    heir = trial.driver(2)
    assert open_ids(trial, ground) == []
    heir.abort(records, "the abort of what was not decided")
    trial.expect(*batches, when="after the next driver's start")
    trial.expect(*batches, *heir.deliver(1), when="after the next driver's epoch")


def test_a_driver_overtaken_while_it_sends_early_writes_nothing_more(trial, ground, points_seen):
    driver = trial.driver(1)
    batches = driver.deliver(0)
    records, _ = driver.prepare(1)
    await_sent(points_seen, 2 * len(SHARES))
    heir = trial.driver(2)
    with pytest.raises(FencedError):
        driver.commit(1, records)
    heir.abort(heir.committer.pending(), "the abort of what the older driver has left")
    trial.expect(*batches, *heir.deliver(1), when="after the next driver's epoch")
    trial.expect_no_litter("after the next driver's epoch")


@pytest.mark.parametrize(
    ("bound", "value"), [("BYTES_MAX", 1), ("HELD_S", 0.0)], ids=["too large", "not written in time"]
)
def test_an_epoch_beyond_a_bound_is_sent_after_its_decision_and_so_is_the_next(
    trial, ground, points_seen, monkeypatch, caplog, bound, value
):
    driver, usual = trial.driver(1), getattr(_kafka_eager, bound)
    monkeypatch.setattr(_kafka_eager, bound, value)
    records, batches = driver.prepare(0)
    await_sent(points_seen)
    deadline = time.monotonic() + PATIENCE_S
    while open_ids(trial, ground):
        assert time.monotonic() < deadline, "readers still wait for it"
        time.sleep(0.05)
    assert "epoch 0 is sent after its decision" in caplog.text
    driver.must_commit(0, records, "the commit of what was given up", Kind.COMMITTED)
    assert points_seen.count("commit.kafka.begun") == 1
    sent = points_seen.count("early.kafka.sending")
    more = driver.deliver(1)
    assert points_seen.count("early.kafka.sending") == sent
    trial.expect(*batches, *more, when="after two epochs")
    monkeypatch.setattr(_kafka_eager, bound, usual)
    last = driver.deliver(2)
    trial.expect(*batches, *more, *last, *driver.deliver(3), when="after two more, which fit again")
    assert points_seen.count("early.kafka.sending") == sent + len(SHARES)


def test_slots_that_are_not_what_was_sent_are_sent_out_of_the_spool(trial, points_seen):
    """The records are of another attempt than the one that was there when the driver looked."""
    driver = trial.driver(1)
    driver.prepare(0, mark="-first")
    await_sent(points_seen, len(SHARES))
    batch = refunds(0, 0, 5)
    decided = driver.prepare_slot(driver.slot(0, attempt=1), batch)
    driver.must_commit(0, [decided], "the commit of another attempt", Kind.COMMITTED)
    trial.expect(batch, when="after the commit of another attempt")


def test_a_slot_that_was_changed_since_it_was_sent_is_not_taken(trial, points_seen):
    """The digest in the record is of other bytes. What lies in the spool is not what was prepared either, so it is refused."""
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    await_sent(points_seen, len(SHARES))
    other = replace(records[0], detail={**records[0].detail, "digest": "crc32c:00000000"})
    assert driver.commit(0, [other, *records[1:]]).kind is Kind.REFUSED
    trial.expect(when="after a commit that was refused")


def test_what_fails_while_it_is_sent_early_is_told_and_the_epoch_is_sent_after_its_decision(trial, caplog):
    def strike(point, _):
        if point == "early.kafka.sending":
            raise OSError("a test struck")

    driver = trial.driver(1)
    points.arm(strike)
    try:
        batches = driver.deliver(0)
    finally:
        points.arm(None)
    assert "epoch 0 is sent after its decision: a test struck" in caplog.text
    trial.expect(*batches, when="after an epoch that was begun in vain")
    trial.expect_no_litter("after an epoch that was begun in vain")


def test_a_spool_on_a_network_is_not_followed(trial, points_seen, monkeypatch):
    monkeypatch.setattr(_kafka_eager, "mount_of", lambda _: type("Mount", (), {"is_network": True}))
    trial.expect(*trial.driver(1).deliver(0), when="after an epoch")
    assert "early.kafka.sending" not in points_seen


@pytest.mark.parametrize(
    ("twin", "case", "by"),
    [
        (Careless, "a_speculative_twin_leaves_one_copy", "5 doubled"),
        (Forgetful, "abort_leaves_nothing", "left staged"),
    ],
)
def test_a_broken_twin_is_caught(twin, case, by, tmp_path, monkeypatch):
    monkeypatch.setattr(_kafka_eager, "Early", twin)
    with pytest.raises(Broken, match=by):
        CASES[case].run(KafkaHarness(tmp_path / "twin"))
    monkeypatch.setattr(_kafka_eager, "Early", Early)
    CASES[case].run(KafkaHarness(tmp_path / "honest"))


@pytest.mark.parametrize("early", [Early, Forgetful], ids=["honest", "forgetful"])
def test_what_was_sent_early_and_aborted_does_not_come_along_with_the_next_epoch(
    trial, points_seen, monkeypatch, early
):
    monkeypatch.setattr(_kafka_eager, "Early", early)
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    await_sent(points_seen, len(SHARES))
    driver.abort(records, "the abort of what was sent early")
    batches = driver.deliver(0)
    if early is Early:
        trial.expect(*batches, when="after an abort and a second run")
    else:
        with pytest.raises(Broken, match="12 doubled"):
            trial.expect(*batches, when="after an abort and a second run")
