"""What hangs in a partition when its transactional id has expired, as after a week without an epoch: nobody knows how it ended, and nobody
guesses.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from pakka.errors import SinkError
from pakka.kafka_line import Address
from pakka.model.epoch import Epoch, Origin
from pakka.model.outcome import Kind
from pakka.sinks._kafka_forgotten import lost_end
from pakka.sinks._kafka_raw import Described, Opened, Registry
from tests.fixtures.kafka import Topics, need_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver
from tests.unit.sinks.kafka_ruins import CarelessSink, Case, Ruin, refunds, ruined

FIRST = Epoch("refunds", 0, Origin("query", 0, "offsets-0", ""))
SHORT_LIVED = {
    "transactional.id.expiration.ms": "15000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
WAYS = ("sharded", "prepared")


def committed(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2))


def in_part(ruin: Ruin) -> None:
    ruin.records = ruin.driver.prepare(0, refunds(1))
    (outcome,) = ruin.driver.committer.commit(FIRST, ruin.records)
    assert outcome.kind is Kind.COMMITTED


def beside_a_stranger(ruin: Ruin) -> None:
    """Whose transaction hangs, and not the sink's."""
    committed(ruin)
    with closing(Onlooker(ruin.sink.servers)) as onlooker:
        onlooker.await_markers(ruin.sink.ledger)
    stranger = Producer({"bootstrap.servers": ruin.sink.servers, "transactional.id": f"{ruin.topic}.stranger"})
    stranger.init_transactions(PATIENCE_S)
    stranger.begin_transaction()
    stranger.produce(ruin.topic, b'{"id":99}')
    stranger.commit_transaction(PATIENCE_S)


CASES: dict[str, Case] = {
    "ledger": (committed, "L"),
    "taken": (committed, "L"),
    "rows": (committed, "0"),
    "passed over": (committed, "0"),
    "stranger": (beside_a_stranger, "0"),
    "sharded": (in_part, "S"),
    "prepared": (in_part, "S"),
}


@pytest.fixture(scope="module")
def ruins(tmp_path_factory) -> Iterator[dict[str, Ruin]]:
    need_kafka()
    with ruined(CASES, tmp_path_factory, broker=SHORT_LIVED) as made:
        with closing(Registry("test", made["ledger"].sink.address)) as registry:
            ids = [ident for ruin in made.values() for ident in (ruin.id, f"{ruin.id}.0.0", f"{ruin.topic}.stranger")]
            give_up = time.monotonic() + 120
            while known := [ident for ident in ids if registry.described(ident) is not None]:
                assert time.monotonic() < give_up, f"{known} do not expire"
                time.sleep(0.5)
        yield made


def opened(ruin: Ruin, topic: str) -> dict[int, Opened]:
    with closing(Registry("test", ruin.sink.address)) as registry:
        return registry.open_in([(topic, 0)])[topic, 0]


def records_of(ruin: Ruin, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """As a person reads them who wants all: with what is not known to be committed."""
    with closing(Onlooker(ruin.sink.servers)) as onlooker:
        return onlooker.read(topic, "read_uncommitted")


def make_anew(ruin: Ruin, topic: str, **config: str) -> None:
    """As docs/reference/kafka-sink.md says, where what hangs was committed, since rows of its epoch are visible, or it is in the ledger."""
    records = records_of(ruin, topic)
    topics = Topics(ruin.sink.servers, "")
    topics.delete(topic)
    topics.create(topic, **config)
    producer = Producer({"bootstrap.servers": ruin.sink.servers})
    for key, value in records:
        producer.produce(topic, value, key, 0)
    assert not producer.flush(PATIENCE_S)


def expect_stopped(ruin: Ruin, ask, topic: str) -> None:
    (producer,) = before = opened(ruin, topic)
    with pytest.raises(SinkError) as told:
        ask()
    for word in (
        "refunds",
        "out",
        f"producer {producer}",
        f"partition 0 of `{topic}`",
        "expired",
        "nothing was changed",
    ):
        assert word in told.value.message
    for word in ("do not abort", "pakka status", "kafka-sink.md"):
        assert word in told.value.hint
    assert opened(ruin, topic) == before


@pytest.mark.kafka
class TestLedger:
    def test_a_page_that_nobody_remembers_stops_who_looks_and_who_begins_and_a_person_can_mend_it(self, ruins):
        ruin = ruins["ledger"]
        assert ruin.ids() == [1, 2]
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            expect_stopped(ruin, committer.ledger, ruin.ledger)
        expect_stopped(ruin, ruin.heir, ruin.ledger)
        make_anew(ruin, ruin.ledger, cleanup_policy="compact")
        heir = ruin.heir()
        assert heir.committer.ledger().last.epoch.number == 0
        heir.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_also_if_somebody_has_taken_the_id_since_who_is_another_producer(self, ruins):
        ruin = ruins["taken"]
        with closing(Registry("test", ruin.sink.address)) as registry:
            assert registry.take(ruin.id).producer_id not in opened(ruin, ruin.ledger)
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            expect_stopped(ruin, committer.ledger, ruin.ledger)
        expect_stopped(ruin, ruin.heir, ruin.ledger)


@pytest.mark.kafka
class TestRows:
    def test_rows_that_nobody_remembers_stop_who_begins_and_a_person_can_mend_them(self, ruins):
        ruin = ruins["rows"]
        assert ruin.ids() == []
        expect_stopped(ruin, ruin.heir, ruin.topic)
        with closing(Registry("test", ruin.sink.address)) as registry:
            assert registry.described(ruin.id) is None
        make_anew(ruin, ruin.topic)
        assert ruin.ids() == [1, 2]
        ruin.heir().deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_also_if_a_release_that_did_not_look_has_gone_on_since(self, ruins):
        ruin = ruins["passed over"]
        careless = CarelessSink(ruin.sink.servers, ledger=ruin.sink.ledger, topic=ruin.topic)
        Driver(careless, ruin.place, 2).deliver(1, refunds(3))
        with closing(Onlooker(ruin.sink.servers)) as onlooker:
            onlooker.await_markers(ruin.sink.ledger)
        assert ruin.ids() == []
        expect_stopped(ruin, lambda: ruin.heir(3), ruin.topic)

    def test_a_stranger_s_are_no_business_of_ours(self, ruins):
        ruin = ruins["stranger"]
        assert opened(ruin, ruin.topic)
        assert ruin.ids() == [1, 2]
        ruin.heir().deliver(1, refunds(3))
        assert ruin.ids() == [1, 2]
        assert [json.loads(value)["id"] for _, value in records_of(ruin, ruin.topic)] == [1, 2, 99, 3]


@pytest.mark.kafka
@pytest.mark.parametrize("way", WAYS)
def test_a_slot_that_nobody_remembers_is_not_sent_again_and_a_person_can_accept_it(way, ruins, caplog):
    ruin = ruins[way]
    assert ruin.ids() == [1]
    heir = ruin.heir()
    before = opened(ruin, ruin.slots)
    # Its copy is gone, so the epoch runs again, with the same rows.
    for records in (ruin.records, heir.prepare(0, refunds(1))):
        outcomes = heir.committer.commit(FIRST, records)
        assert {outcome.kind for outcome in outcomes} == {Kind.REFUSED}
        assert all("slot 0 of epoch 0" in o.reason and "no coordinator knows" in o.reason for o in outcomes)
    with pytest.raises(SinkError, match="nobody else can tell whether that slot is visible; nothing was changed"):
        heir.committer.abort(ruin.records)
    assert ruin.ids() == [1]
    assert opened(ruin, ruin.slots) == before
    assert "compare the rows of epoch 0" in caplog.text
    assert "pakka reset refunds --sink out" in caplog.text
    assert "kafka-transactions.sh" not in caplog.text
    assert heir.committer.enter_epoch(FIRST).kind is Kind.COMMITTED
    heir.deliver(1, refunds(3))
    assert ruin.ids(2) == [1, 3]


@pytest.mark.parametrize("is_commit", [True, False, None])
def test_only_what_was_aborted_is_to_be_aborted(is_commit):
    """The tool that ends a transaction for good can abort only, and a person would lose what was told as committed."""
    found = Described("pakka.refunds.out", 7, "CompleteCommit", 3, 0, frozenset())
    error = lost_end("sink `refunds.out`", Address("127.0.0.1:1"), found, [("refunds", 2)], is_commit)
    assert "producer 7" in error.message
    assert "partition 2 of `refunds`" in error.message
    assert ("then `abort` of the same tool ends it" in error.hint) is (is_commit is False)
    assert ("do not abort" in error.hint) is (is_commit is not False)
