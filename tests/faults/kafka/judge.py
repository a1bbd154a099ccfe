"""The judge of topics: a `read_committed` consumer of its own, that counts; and what one who reads all the time may see."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Message, TopicPartition

from tests.faults.judge import Values
from tests.faults.kafka.outputs import KafkaOutlet
from tests.faults.served import ServedJudge, states
from tests.faults.workload import SCHEMAS
from tests.fixtures.onlooker import PATIENCE_S, Onlooker

_MOMENT_S = 15.0


def row_of(sink: str, value: bytes | None) -> Values:
    """The row of a record; a record that is none of ours stands for itself."""
    try:
        data = json.loads(value or b"")
        return tuple(data[name] for name in SCHEMAS[sink].names)
    except (ValueError, KeyError, TypeError):
        return (-1, -1, value)


@dataclass(frozen=True)
class KafkaJudge(ServedJudge):
    """Reads topics as any consumer does."""

    outlet: KafkaOutlet = field(kw_only=True)
    onlooker: Onlooker = field(kw_only=True)
    has_position: bool = False

    def read_served(self, sink: str) -> list[Values]:
        # Between the end of a transaction and its last marker a part of it is in sight, and that is how Kafka is. A broker that has just
        # come back sends the markers that it owes when it has loaded its transactions. A part that stays a part is found all the same.
        give_up = time.monotonic() + _MOMENT_S
        while True:
            self.onlooker.await_markers(self.outlet.prefix)
            rows = [row_of(sink, value) for _, value in self.onlooker.read(self.outlet.topics[sink])]
            if not self.torn(sink, rows) or time.monotonic() > give_up:
                return rows
            time.sleep(0.2)

    def final(self) -> list[str]:
        return [*super().final(), *self.offsets()]

    def in_doubt(self) -> list[str]:
        left = self.onlooker.transactions(self.outlet.prefix)
        # Empty: its id was taken from whoever had it, and nothing is open.
        over = ("CompleteCommit", "CompleteAbort", "Empty")
        return [f"in doubt: {ident} is {state}" for ident, state in left.items() if state not in over]

    def offsets(self) -> list[str]:
        """The group stands where the last epoch ended."""
        if not self.has_position:
            return []
        wanted = self.outlet.reached(self.workload.batches - 1, self.workload)
        asked = ConsumerGroupTopicPartitions(self.outlet.group, [TopicPartition(self.outlet.inputs, 0)])
        (answer,) = self.onlooker.admin.list_consumer_group_offsets([asked], require_stable=True).values()
        found = answer.result(PATIENCE_S).topic_partitions[0].offset
        return [] if found == wanted else [f"group: it stands at {found}, and the last epoch ended at {wanted}"]

    def ends(self) -> dict[str, Any]:
        """All that was ever written, committed or not: where the topics and the ledgers end, and what these say."""
        topics = [*self.outlet.topics.values(), *self.outlet.ledgers]
        ends = self.onlooker.ends(topics, "read_uncommitted")
        return {"ends": sorted(ends.items()), "ledgers": [self.onlooker.read(name) for name in self.outlet.ledgers]}


class Memory:
    """What one reader has seen, record by record."""

    def __init__(self, judge: KafkaJudge) -> None:
        self.judge = judge
        self.seen: dict[str, Counter[Values]] = {sink: Counter() for sink in judge.outlet.served}
        self._sinks = {topic: sink for sink, topic in judge.outlet.topics.items()}
        self._newest: dict[tuple[str, int], int] = {}
        self._decided = -1

    def look(self, messages: Sequence[Message]) -> list[str]:
        findings = []
        for message in messages:
            topic, place = str(message.topic()), int(message.partition() or 0)
            sink = self._sinks[topic]
            row = row_of(sink, message.value())
            findings += self._of_row(sink, row)
            batch, newest = row[1], self._newest.get((topic, place), -1)
            if batch < newest:
                findings.append(f"{sink}: batch {batch} came into sight after batch {newest}, in partition {place}")
            self._newest[topic, place] = max(batch, newest)
        return findings

    def _of_row(self, sink: str, row: Values) -> list[str]:
        self.seen[sink][row] += 1
        if row not in states(self.judge.workload, sink)[-1]:
            return [f"{sink}: a foreign row came into sight: {row}"]
        findings = [f"{sink}: came into sight again: {row}"] if self.seen[sink][row] > 1 else []
        # A decision is durable before a record of it can be seen; so it is early enough to ask now.
        if row[1] > self._decided:
            undecided = self.judge.undecided(sink, [row])
            findings += undecided
            self._decided = self._decided if undecided else row[1]
        return findings
