"""What the driver of `way: prepared` ends: what it finds open may end by itself before it gets there."""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from pakka.errors import RefusedError
from pakka.model.id import Slot
from pakka.sinks import _kafka_topic
from pakka.sinks._kafka_raw import Registry
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, maker_of, refunds, values

pytestmark = pytest.mark.kafka


@pytest.fixture
def driver(kafka_server, kafka_topics, tmp_path):
    driver = Driver(maker_of(kafka_server, kafka_topics)(way="prepared"), tmp_path)
    with closing(driver.committer):
        yield driver
    _kafka_topic.forget()


def open_by_nobody(driver, slot, attempt) -> Producer:
    """A task that has sent a row and neither a record nor a copy yet."""
    ident = driver.sink.slot_id(driver.binding, Slot("refunds", "out", 0, 1, slot, attempt))
    producer = Producer({"bootstrap.servers": driver.sink.servers, "transactional.id": ident, "log_level": 2})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(driver.sink.topic, b'{"id":99}')
    producer.flush(PATIENCE_S)
    return producer


def test_what_nobody_knew_of_may_end_before_it_is_aborted(driver):
    """No epoch is refused for it, though epoch 0, which it seems to be of, was committed long ago."""
    driver.deliver(0, refunds(1))
    driver.deliver(1, refunds(2))
    stray = open_by_nobody(driver, 5, 3)
    found = driver.committer.pending()
    assert [(record.slot.fence, record.slot.number, record.slot.attempt) for record in found] == [(0, 5, 3)]
    stray.abort_transaction(PATIENCE_S)
    assert driver.committer.pending() == []
    driver.committer.abort(found)
    driver.deliver(2, refunds(3))
    assert sorted(value["id"] for value in values(driver.sink.servers, driver.sink.topic, 3)) == [1, 2, 3]


def test_what_nobody_knew_of_is_aborted_while_it_is_open(driver):
    driver.deliver(0, refunds(1))
    open_by_nobody(driver, 5, 3)
    driver.committer.abort(driver.committer.pending())
    assert driver.committer.pending() == []
    assert [value["id"] for value in values(driver.sink.servers, driver.sink.topic, 1)] == [1]


def test_what_is_committed_is_still_not_called_aborted(driver):
    records = driver.prepare(0, refunds(1))
    assert driver.commit(0, records).is_final
    with pytest.raises(RefusedError):
        driver.committer.abort(records)


def test_a_coordinator_that_lists_nothing_yet_is_asked_for_the_id_of_what_is_open(driver, monkeypatch):
    """As one does that has just come up: what is open, and decided perhaps, is not forgotten for that."""
    (record,) = driver.prepare(0, refunds(1))
    monkeypatch.setattr(Registry, "known", lambda *_: [])
    found = driver.committer._found()
    assert (list(found.is_open.values()), found.lost) == ([record.slot], {})
    assert driver.commit(0, [record]).is_final
