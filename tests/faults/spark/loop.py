"""The closed loop on Spark: settlements in a topic, refunds and their audit in two others by one transaction, dead letters in a third.

What should come of the input is read from its files, line by line. Whoever judges is a consumer that knows nothing of Spark or pakka.
"""

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition

from pakka.sinks.kafka import KafkaSink
from tests.conformance.kafka_twins import Unrecorded
from tests.faults.judge import Values
from tests.faults.spark.inputs import PROCESS, SCHEMA, Line, batch_of
from tests.faults.spark.judge import SparkJudge
from tests.faults.spark.site import Site
from tests.fixtures.kafka import Kafka, Topics
from tests.fixtures.onlooker import PATIENCE_S, Onlooker, read_until

PARTITIONS = 2
"""Of the settlements: so many slots has an epoch."""
GOOD = ("refunds", "audit")
DEAD = "dead"
MALFORMED_ONLY = ("malformed",)


class UnrecordedSink(KafkaSink):
    """A broken twin: its transactions have no ledger record."""

    def open_applier(self, binding):
        return Unrecorded(self, binding)


@dataclass(frozen=True)
class LoopJudge(SparkJudge):
    """Reads the topics as any consumer of committed records does."""

    topics: Topics = field(kw_only=True)
    onlooker: Onlooker = field(kw_only=True)

    def wanted(self, topic: str) -> Counter[Values]:
        return Counter(rows_of(line) for line in self.workload.read() if is_dead(line) == (topic == DEAD))

    def rows(self, copies: int = 1) -> list[str]:
        self.onlooker.await_markers(self.topics.prefix)
        findings = []
        for topic in (*GOOD, DEAD):
            found = Counter(row_of(topic, value) for _, value in self.onlooker.read(self.topics.name(topic)))
            lost, more = self.wanted(topic) - found, found - self.wanted(topic)
            findings += [f"{topic}: {lost.total()} records lost, such as {[*lost][:3]}"] if lost else []
            findings += [f"{topic}: {more.total()} records twice or foreign, such as {[*more][:3]}"] if more else []
        return [*findings, *self.offsets(), *self.in_doubt()]

    def offsets(self) -> list[str]:
        """The group of the source stands at the end of its topic, for whoever watches its lag."""
        name = self.topics.name("settlements")
        ends = {place[1]: end for place, end in self.onlooker.ends([name]).items()}
        asked = ConsumerGroupTopicPartitions(
            self.topics.name("group"), [TopicPartition(name, number) for number in ends]
        )
        (answer,) = self.onlooker.admin.list_consumer_group_offsets([asked], require_stable=True).values()
        found = {place.partition: place.offset for place in answer.result(PATIENCE_S).topic_partitions}
        return [] if found == ends else [f"group: it stands at {found}, and the settlements end at {ends}"]

    def in_doubt(self) -> list[str]:
        left = self.onlooker.transactions(self.topics.prefix)
        return [
            f"in doubt: {ident} is {state}"
            for ident, state in left.items()
            if not state.startswith(("Complete", "Empty"))
        ]


def is_dead(line: Line) -> bool:
    """No rule is broken here: a line is dead if it cannot be read."""
    return line.broken == MALFORMED_ONLY


def rows_of(line: Line) -> Values:
    """The values of a line: its text if it is dead, else the refund that it becomes."""
    if is_dead(line):
        return line.values
    values = json.loads(line.values[0]).values() if line.broken else line.values
    return tuple(sorted(map(str, values)))


def row_of(topic: str, value: bytes | None) -> Values:
    data = json.loads(value or b"")
    return (json.loads(data["row"])["value"],) if topic == DEAD else tuple(sorted(map(str, data.values())))


class LoopSite(Site):
    """A pipeline from Kafka to Kafka; its epochs are the files of the input, each sent to the topic as it stands."""

    is_ready: ClassVar[bool] = True
    """Whether all of the input is there before a driver is; else its first batch."""

    def __init__(
        self, root: Path, kafka: Kafka, onlooker: Onlooker, connector: Path, kind: str = "kafka", **sink: Any
    ) -> None:
        self.topics, self.onlooker, self.connector = Topics(kafka.bootstrap), onlooker, connector
        self.kind, self.sink = kind, {"topic_column": "topic", "key": "refund_id", **sink}
        self.topics.create("settlements", PARTITIONS)
        for topic in (*GOOD, DEAD):
            self.topics.create(topic, PARTITIONS)
        super().__init__(root)
        for batch in range(self.inputs.batches if self.is_ready else 1):
            self.send(batch)

    @property
    def judge(self) -> LoopJudge:
        return LoopJudge(self.root, self.state, self.inputs, (), topics=self.topics, onlooker=self.onlooker)

    def _pipeline(self) -> dict[str, Any]:
        own = {"servers": self.topics.bootstrap, "ledger": self.topics.name("pakka")}
        source = {
            "servers": self.topics.bootstrap,
            "topics": self.topics.name("settlements"),
            "schema": SCHEMA,
            "group": self.topics.name("group"),
            "max_offsets_per_epoch": self.inputs.rows,
            "jars": str(self.connector),
        }
        outputs = ", ".join(f"'{self.topics.name(topic)}'" for topic in GOOD)
        return {
            **super()._pipeline(),
            "source": {"kafka": source},
            "process": f"SELECT explode(array({outputs})) AS topic, * FROM ({PROCESS})",
            "quality": [],
            "sinks": {"refunds": {self.kind: {**own, **self.sink}}},
            "dead_letters": {"kafka": {**own, "topic": self.topics.name(DEAD)}},
        }

    def send(self, batch: int, places: Sequence[int] = range(PARTITIONS)) -> None:
        """Line by line to one partition after the other, so that every epoch takes a file: as much of each partition as of the next."""
        producer = Producer({"bootstrap.servers": self.topics.bootstrap, "log_level": 2})
        lines = sorted(self.inputs.path.glob("*.json"))[batch].read_text().splitlines()
        refused: list[object] = []
        for line, place in zip(lines, itertools.cycle(places), strict=False):
            producer.produce(
                self.topics.name("settlements"),
                line,
                partition=place,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert refused == []

    def written(self) -> dict[tuple[str, int], int]:
        """Where every topic that the pipeline writes ends, with all that was never committed."""
        known = self.onlooker.admin.list_topics(timeout=PATIENCE_S).topics
        return self.onlooker.ends([name for name in known if name.startswith(self.topics.prefix)], "read_uncommitted")

    def close(self) -> None:
        super().close()
        self.topics.drop()


@contextmanager
def reading(site: LoopSite) -> Iterator[list[str]]:
    """Somebody who reads committed records all the time: what they find, record by record. They read to the end before they go."""
    findings: list[str] = []
    over = threading.Event()
    memory = Memory(site, findings)

    def read() -> None:
        names, reached = [site.topics.name(topic) for topic in (*GOOD, DEAD)], {}
        with closing(site.onlooker.consumer()) as consumer:
            consumer.assign([TopicPartition(name, number, 0) for name in names for number in range(PARTITIONS)])
            while True:
                is_last = over.is_set()
                try:
                    ends = site.onlooker.ends(names)
                except (KafkaException, TimeoutError):  # the broker is down
                    over.wait(0.1)
                    continue
                messages, left = read_until(consumer, ends, PATIENCE_S if is_last else 1.0, reached)
                memory.look(messages)
                if is_last:
                    findings.extend([f"cannot be read to the end: {left}"] if left else [])
                    return
                over.wait(0.02)

    def read_through() -> None:
        try:
            read()
        except (
            Exception
        ) as error:  # who does not read any more finds nothing, and that must not look like nothing wrong
            findings.append(f"the reader gave up: {error!r}")

    thread = threading.Thread(target=read_through)
    thread.start()
    try:
        yield findings
    finally:
        over.set()
        thread.join()
    assert memory.count or findings, "nobody has seen a record"


class Memory:
    """What was seen: a record twice, one that belongs nowhere, an epoch behind a later one."""

    def __init__(self, site: LoopSite, findings: list[str]) -> None:
        self.prefix, self.findings = site.topics.prefix, findings
        self.left = {topic: site.judge.wanted(topic) for topic in (*GOOD, DEAD)}
        self.newest: dict[tuple[str, int], int] = {}
        self.count = 0

    def look(self, messages: list[Message]) -> None:
        for message in messages:
            topic, place = str(message.topic()).removeprefix(self.prefix), int(message.partition() or 0)
            row, batch = row_of(topic, message.value()), batch_of((message.value() or b"").decode().replace("\\", ""))
            self.count += 1
            self.left[topic][row] -= 1
            if self.left[topic][row] < 0:
                self.findings.append(f"{topic}: came into sight again, or from nowhere: {row}")
            if batch < self.newest.get((topic, place), 0):
                self.findings.append(f"{topic}: batch {batch} came into sight after a later one, in partition {place}")
            self.newest[topic, place] = max(batch, self.newest.get((topic, place), 0))
