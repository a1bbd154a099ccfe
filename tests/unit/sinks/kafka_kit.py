"""What the tests of the Kafka sink share: a driver as small as it can be, and a reader that is not the sink's."""

import json
import time
from contextlib import closing

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Kind
from pakka.sinks._kafka_batch import Press
from pakka.sinks._kafka_limit import Limits
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import await_heard
from tests.fixtures.onlooker import Onlooker

PATIENCE_S = 30
SCHEMA = pa.schema([("id", pa.int64()), ("merchant", pa.string())])


def refunds(*ids, merchant="chai corner"):
    return pa.record_batch([list(ids), [merchant] * len(ids)], schema=SCHEMA)


def maker_of(server, topics):
    """What makes sinks, each on a fresh topic unless it is told one, whose ledger goes with the topics."""

    def make(config=None, parts=2, **options):
        if not options.keys() & {"topic", "topic_column"}:
            options["topic"] = topics.create("refunds", parts, **(config or {}))
        return KafkaSink(server.bootstrap, ledger=f"{topics.prefix}pakka", **options)

    return make


class Driver:
    """One driver of one pipeline."""

    def __init__(self, sink, place, fence=1):
        self.sink, self.fence = sink, fence
        self.binding = Binding("refunds", "out", str(place))
        self.committer = sink.open_committer(self.binding, fence)
        assert self.committer.raise_fence()

    def prepare(self, epoch, *batches, attempt=0):
        records = []
        for number, batch in enumerate(batches):
            slot = Slot("refunds", "out", epoch, self.fence, number, attempt)
            writer = self.sink.open_writer(self.binding, slot, batch.schema)
            try:
                writer.write(batch)
                records.append(writer.prepare("0" * 16))
            except BaseException:
                writer.discard()
                raise
        return records

    def commit(self, epoch, records, position=""):
        named = Epoch("refunds", epoch, Origin("query", epoch, f"offsets-{epoch}", position))
        if self.sink.way == "spooled":
            return self.committer.commit_epoch(named, records)
        outcomes = self.committer.commit(named, records)
        return self.committer.enter_epoch(named) if all(o.is_final for o in outcomes) else outcomes[0]

    def deliver(self, epoch, *batches, position=""):
        outcome = self.commit(epoch, self.prepare(epoch, *batches), position)
        assert outcome.kind is Kind.COMMITTED, outcome.reason


def alter(sink, setting, value):
    """Change what the sink's topic takes."""
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, sink.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": sink.servers})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    await_heard(sink.servers)


def packed(topic, value):
    """One record without a key, as the spool has it."""
    record = pa.record_batch({"key": pa.nulls(1, pa.large_binary()), "value": pa.array([value], pa.large_binary())})
    return Press(1_000_000).pack(record, topic, lambda _: Limits(1, 1_000_000), time.time_ns() // 1_000_000)


def read(servers, topic, at_least=0):
    """Every record that a `read_committed` consumer sees; it waits until so many are there, since Kafka shows them a moment later."""
    give_up = time.monotonic() + PATIENCE_S
    while len(found := _read(servers, topic)) < at_least:
        assert time.monotonic() < give_up, f"{topic} has {len(found)} records, and should have {at_least}"
        time.sleep(0.05)
    return found


def values(servers, topic, at_least=0):
    return [json.loads(record.value()) for record in read(servers, topic, at_least)]


def _read(servers, topic):
    base = {"bootstrap.servers": servers, "log_level": 2}
    left = {partition for (_, partition), end in Onlooker(servers).ends([topic]).items() if end}
    found = []
    with closing(
        Consumer({**base, "group.id": "judge", "enable.partition.eof": True, "fetch.wait.max.ms": 5})
    ) as reader:
        reader.assign([TopicPartition(topic, p, 0) for p in left])
        while left:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"{topic} cannot be read"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
    return found
