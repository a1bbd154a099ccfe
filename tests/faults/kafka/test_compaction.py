"""A broker compacts the ledger, and the slots topic: of what was, only the newest is left, and the next driver reads just that."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from pakka.model.id import Binding
from pakka.testing.crash import Drill
from tests.faults.child import wait_until
from tests.faults.extent import one_store
from tests.faults.killer import LONG
from tests.fixtures.kafka import Kafka, need_kafka, relayed_kafka
from tests.fixtures.onlooker import PATIENCE_S, read_until
from tests.fixtures.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

LATE = 5
SMALL = {
    "cleanup_policy": "compact",
    # Every transaction begins a segment: only those are compacted that nobody writes to any more.
    "segment_ms": "1",
    "min_cleanable_dirty_ratio": "0.01",
    # Markers may go as soon as the records before them are gone.
    "delete_retention_ms": "0",
}


@pytest.fixture(scope="module")
def relayed() -> Iterator[tuple[Kafka, Proxy]]:
    """A broker that looks for what can be compacted ten times a second, and not every 15 s."""
    need_kafka()
    with relayed_kafka(settings={"log.cleaner.backoff.ms": "100"}) as both:
        yield both


def offsets(site, topic):
    """Where the records stand that are left of a topic with one partition, committed or not."""
    ends = site.onlooker.ends([topic], "read_uncommitted")
    consumer = site.onlooker.consumer("read_uncommitted")
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages, left = read_until(consumer, ends, PATIENCE_S)
        assert not left
        return [message.offset() for message in messages]
    finally:
        consumer.close()


@one_store
@pytest.mark.parametrize("layout", ["one", "prepared"])
@pytest.mark.parametrize("point", ["commit.apply", "commit.applied", "commit.kafka.ending", "commit.after"])
def test_a_ledger_that_was_compacted_tells_the_next_driver_what_is_visible(make_mortal_site, state, layout, point):
    """The driver dies in a late epoch: in its transaction, after it, and when all of it is visible and only the ledger knows."""
    site = make_mortal_site(state, layout, workload=LONG)
    binding, sink = Binding("refunds", "refunds", ""), site.outlet.sink("refunds")
    keys = {sink.ledger_topic(binding): 1}
    if layout == "prepared":
        keys[sink.slots_topic(binding)] = LONG.slots
    for topic in keys:
        site.onlooker.create(topic, 1, **SMALL)
    site.crash(Drill(point, epoch=LATE))
    for topic, count in keys.items():
        # Of each key the newest, one that is in no segment to be compacted, and one of a transaction that nobody has ended.
        wait_until(lambda topic=topic, most=3 * count: len(offsets(site, topic)) <= most, f"{topic} is not compacted")
        assert min(offsets(site, topic)) > LATE
    site.check_whole_epochs()
    site.finish()
