"""A Kafka sink whose topic is changed while an epoch is open: what was prepared for the old one never goes to the new one."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pakka.contract.sink import EpochCommit
from pakka.errors import SinkError
from pakka.model.epoch import Epoch, Origin
from pakka.model.outcome import Kind
from pakka.sinks._kafka_prepared import handle_of
from pakka.sinks._kafka_shard import Shard
from pakka.sinks.kafka import KafkaSink
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, refunds, values

FIRST = Epoch("refunds", 0, Origin("query", 0, "offsets-0", ""))
SLOTWISE = ("sharded", "prepared")
WAYS = ("spooled", *SLOTWISE)


@dataclass
class Move:
    """A sink with its old topic, the same one with its new topic, and what a reader sees of each."""

    old: KafkaSink
    new: KafkaSink
    place: Path
    driver: Driver | None = None

    def seen(self) -> tuple[list[int], list[int]]:
        return self.ids(self.old), self.ids(self.new)

    def ids(self, sink: KafkaSink, at_least: int = 0) -> list[int]:
        return sorted(row["id"] for row in values(sink.servers, sink.topic, at_least))

    def finish(self, records, fence: int, expected: list[int]) -> None:
        """The next driver has the old topic again."""
        committer = self.old.open_committer(self.driver.binding, fence)
        with closing(committer):
            committer.raise_fence()
            outcomes = answers(committer, records)
            assert all(outcome.is_final for outcome in outcomes), outcomes
            if self.old.way != "spooled":
                assert committer.enter_epoch(FIRST).kind is Kind.COMMITTED
        assert self.ids(self.old, len(expected)) == expected
        assert self.ids(self.new) == []

    def begin(self) -> Driver:
        self.driver = Driver(self.old, self.place)
        return self.driver


@pytest.fixture
def move(kafka_server, kafka_topics, tmp_path):
    def make(way: str) -> Move:
        one, two = kafka_topics.create("one"), kafka_topics.create("two", 2)
        old = KafkaSink(kafka_server.bootstrap, ledger=f"{kafka_topics.prefix}pakka", topic=one, way=way)
        return Move(old, replace(old, topic=two), tmp_path)

    return make


def answers(committer, records):
    if isinstance(committer, EpochCommit):
        return [committer.commit_epoch(FIRST, records)]
    return committer.commit(FIRST, records)


def refused(committer, records) -> tuple[str, str]:
    """What the commit of records is refused with, and its hint."""
    if not isinstance(committer, EpochCommit):
        with pytest.raises(SinkError) as told:
            committer.commit(FIRST, records)
        return told.value.message, told.value.hint
    outcome = committer.commit_epoch(FIRST, records)
    assert outcome.kind is Kind.RETRY
    return outcome.reason, outcome.hint


@pytest.mark.parametrize("way", WAYS)
def test_a_decided_epoch_does_not_go_to_another_topic_and_goes_to_its_own_when_that_is_back(move, way):
    its = move(way)
    records = its.begin().prepare(0, refunds(1, 2), refunds(), refunds(3))
    with closing(its.new.open_committer(its.driver.binding, 2)) as committer:
        committer.raise_fence()
        # Slots are committed some at a time, and the first ones may have no rows.
        for some in (records, records[1:2]):
            assert refused(committer, some) == (
                f"sink `refunds.out`: epoch 0 was prepared for topic `{its.old.topic}`, and the sink's is topic "
                f"`{its.new.topic}` by now; no rows were changed",
                f"set `topic: {its.old.topic}` back, run once, which finishes the epoch, and then change it",
            )
        assert committer.ledger().last is None
    assert its.seen() == ([], [])
    its.finish(records, 3, [1, 2, 3])


@pytest.mark.parametrize("way", WAYS)
def test_a_fixed_topic_and_one_that_rows_name_are_not_taken_for_each_other(move, way):
    its = move(way)
    column = replace(its.old, topic="", topic_column="merchant")
    records = its.begin().prepare(0, refunds(1))
    with closing(column.open_committer(its.driver.binding, 2)) as committer:
        committer.raise_fence()
        message, hint = refused(committer, records)
        assert f"for topic `{its.old.topic}`, and the sink's is the topic that each row names by now" in message
        assert f"set `topic: {its.old.topic}` back" in hint
    its.finish(records, 3, [1])


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_name_their_topic_wait_for_the_column(move, way):
    its = move(way)
    driver = Driver(replace(its.old, topic="", topic_column="merchant"), its.place)
    records = driver.prepare(0, refunds(1, merchant=its.old.topic))
    with closing(its.new.open_committer(driver.binding, 2)) as committer:
        committer.raise_fence()
        message, hint = refused(committer, records)
        assert f"for the topic that each row names, and the sink's is topic `{its.new.topic}` by now" in message
        assert hint.startswith("set `topic_column` back")
    assert its.seen() == ([], [])


def test_a_slot_that_has_expired_is_not_sent_again_to_another_topic(move):
    its = move("prepared")
    records = its.begin().prepare(0, refunds(1, 2))
    assert its.driver.committer.registry.end(handle_of(records[0]), is_commit=False).is_done
    with closing(its.new.open_committer(its.driver.binding, 2)) as committer:
        assert committer.raise_fence()
        assert "was prepared for topic" in refused(committer, records)[0]
    assert its.seen() == ([], [])
    its.finish(records, 3, [1, 2])


@pytest.mark.parametrize("way", SLOTWISE)
def test_an_epoch_in_part_keeps_its_topic_also_if_the_rest_is_lost(move, way):
    its = move(way)
    records = its.begin().prepare(0, refunds(1), refunds(2))
    assert [outcome.kind for outcome in its.driver.committer.commit(FIRST, records[:1])] == [Kind.COMMITTED]
    with closing(its.new.open_committer(its.driver.binding, 2)) as committer, pytest.raises(SinkError) as told:
        # Before anything is prepared once more, for the new topic.
        committer.raise_fence()
    assert told.value.message == (
        f"sink `refunds.out`: epoch 0 was begun in topic `{its.old.topic}`, and the sink's is topic `{its.new.topic}` by now; "
        "no rows were changed"
    )
    assert (
        told.value.hint == f"set `topic: {its.old.topic}` back, run once, which finishes the epoch, and then change it"
    )
    its.finish(records, 3, [1, 2])


def test_a_shard_sends_nothing_to_a_topic_that_its_slot_was_not_prepared_for(move):
    its = move("sharded")
    records = its.begin().prepare(0, refunds(1), refunds(2))
    its.driver.committer.commit(FIRST, records[:1])
    sent = Shard(its.new, its.driver.binding, 1, records[1])()
    assert (sent.outcome.kind, sent.share) == (Kind.RETRY, None)
    assert "was prepared for topic" in sent.outcome.reason
    assert its.ids(its.new) == []
    its.finish(records, 2, [1, 2])


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_that_is_visible_is_committed_whatever_the_topic_is_now(move, way):
    its = move(way)
    records = its.begin().prepare(0, refunds(1))
    assert its.driver.commit(0, records).kind is Kind.COMMITTED
    with closing(its.new.open_committer(its.driver.binding, 2)) as committer:
        assert committer.raise_fence()
        assert [outcome.kind for outcome in answers(committer, records)] == [Kind.ALREADY_COMMITTED]
    heir = Driver(its.new, its.place, 3)
    heir.deliver(1, refunds(2))
    assert (its.ids(its.old, 1), its.ids(its.new, 1)) == ([1], [2])


@pytest.mark.parametrize("way", WAYS)
def test_what_is_undecided_is_aborted_by_a_driver_with_another_topic(move, way):
    its = move(way)
    records = its.begin().prepare(0, refunds(1), refunds(2))
    with closing(its.new.open_committer(its.driver.binding, 2)) as committer:
        committer.raise_fence()
        assert {record.slot for record in committer.pending()} == {record.slot for record in records}
        committer.abort(committer.pending())
        committer.abort(records)
        assert not committer.pending()
        assert committer.raise_fence()
    Driver(its.new, its.place, 3).deliver(0, refunds(1, 2))
    # Readers of the old topic wait for nothing.
    producer = Producer({"bootstrap.servers": its.old.servers, "log_level": 2})
    producer.produce(its.old.topic, b'{"id": 9}')
    assert producer.flush(PATIENCE_S) == 0
    assert (its.ids(its.old, 1), its.ids(its.new, 2)) == ([9], [1, 2])


@pytest.mark.parametrize("way", WAYS)
def test_a_record_of_an_older_pakka_names_no_topic_and_is_committed(move, way):
    its = move(way)
    records = its.begin().prepare(0, refunds(1), refunds())
    assert [record.detail["topic"] for record in records] == [its.old.topic] * 2
    older = [replace(r, detail={k: v for k, v in r.detail.items() if k != "topic"}) for r in records]
    its.finish(older, 2, [1])
