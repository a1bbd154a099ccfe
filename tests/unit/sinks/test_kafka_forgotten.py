"""What hangs in a partition when its transactional id has expired, as after a week without an epoch: nobody knows how it ended, and nobody
guesses.
"""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from pakka.errors import SinkError
from pakka.kafka_line import Address
from pakka.model.epoch import Epoch, Origin
from pakka.model.outcome import Kind
from pakka.sinks._kafka_forgotten import lost_end
from pakka.sinks._kafka_raw import Described, Opened, Registry
from tests.fixtures.kafka import Topics, need_kafka
from tests.unit.sinks.kafka_kit import PATIENCE_S
from tests.unit.sinks.kafka_ruins import Case, Ruin, refunds, ruined

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


CASES: dict[str, Case] = {
    "ledger": (committed, "L"),
    "taken": (committed, "L"),
    "sharded": (in_part, "S"),
    "prepared": (in_part, "S"),
}


@pytest.fixture(scope="module")
def ruins(tmp_path_factory) -> Iterator[dict[str, Ruin]]:
    need_kafka()
    with ruined(CASES, tmp_path_factory, broker=SHORT_LIVED) as made:
        with closing(Registry("test", made["ledger"].sink.address)) as registry:
            ids = [ident for ruin in made.values() for ident in (ruin.id, f"{ruin.id}.0.0")]
            give_up = time.monotonic() + 120
            while known := [ident for ident in ids if registry.described(ident) is not None]:
                assert time.monotonic() < give_up, f"{known} do not expire"
                time.sleep(0.5)
        yield made


def opened(ruin: Ruin, topic: str) -> dict[int, Opened]:
    with closing(Registry("test", ruin.sink.address)) as registry:
        return registry.open_in([(topic, 0)])[topic, 0]


def records_of(ruin: Ruin) -> dict[bytes, bytes]:
    """The newest record of each key of the ledger, as a person reads them: with what is not known to be committed."""
    reader = Consumer({"bootstrap.servers": ruin.sink.servers, "group.id": "person", "enable.partition.eof": True,
                       "isolation.level": "read_uncommitted"})  # fmt: skip
    found = {}
    with closing(reader):
        reader.assign([TopicPartition(ruin.ledger, 0, 0)])
        while (message := reader.poll(PATIENCE_S)) is not None and message.error() is None:
            found[message.key()] = message.value()
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
    return found


def make_anew(ruin: Ruin) -> None:
    """As docs/reference/kafka-sink.md says: the page is true, since rows of its epoch are visible."""
    records = records_of(ruin)
    topics = Topics(ruin.sink.servers, "")
    topics.delete(ruin.ledger)
    topics.create(ruin.ledger, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": ruin.sink.servers})
    for key, value in records.items():
        producer.produce(ruin.ledger, value, key, 0)
    assert not producer.flush(PATIENCE_S)


def expect_stopped(ruin: Ruin, ask) -> None:
    (producer,) = before = opened(ruin, ruin.ledger)
    with pytest.raises(SinkError) as told:
        ask()
    for word in ("refunds", "out", f"producer {producer} ", f"partition 0 of `{ruin.ledger}`", "epoch 0", "expired"):
        assert word in told.value.message
    for word in ("do not abort", "pakka status", "read_committed", "kafka-sink.md"):
        assert word in told.value.hint
    assert opened(ruin, ruin.ledger) == before


@pytest.mark.kafka
class TestLedger:
    def test_a_page_that_nobody_remembers_stops_who_looks_and_who_begins_and_a_person_can_mend_it(self, ruins):
        ruin = ruins["ledger"]
        assert ruin.ids() == [1, 2]
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            expect_stopped(ruin, committer.ledger)
        expect_stopped(ruin, ruin.heir)
        make_anew(ruin)
        heir = ruin.heir()
        assert heir.committer.ledger().last.epoch.number == 0
        heir.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_also_if_somebody_has_taken_the_id_since_who_is_another_producer(self, ruins):
        ruin = ruins["taken"]
        with closing(Registry("test", ruin.sink.address)) as registry:
            assert registry.take(ruin.id).producer_id not in opened(ruin, ruin.ledger)
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            expect_stopped(ruin, committer.ledger)
        expect_stopped(ruin, ruin.heir)


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
