"""A reader that reads every topic of a site all the time, in a process of its own, through crashes of the broker too."""

import json
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition

from tests.faults.kafka.judge import KafkaJudge, Memory
from tests.faults.kafka.outputs import KafkaOutlet
from tests.faults.watched import REST_S, note
from tests.faults.workload import Workload
from tests.fixtures.onlooker import Onlooker, read_until

PATIENCE_S = 2.0
"""How long to read for the ends of a look; then they are asked for anew."""


def watch(root: str, state: str, batches: int, slots: int, rows: int, notes: str) -> int:
    """Look until `notes` is gone. A look is over when all is read that could be read when it began."""
    site, told = Path(root), Path(notes)
    outlet = KafkaOutlet.read(site)
    onlooker = Onlooker(outlet.direct)
    workload = Workload(batches, slots, rows)
    memory = Memory(KafkaJudge(site, state, workload, tuple(outlet.options), outlet=outlet, onlooker=onlooker))
    topics, reached = list(outlet.topics.values()), {}
    with closing(onlooker.consumer()) as consumer:
        consumer.assign([TopicPartition(*place, 0) for place in onlooker.ends(topics)])
        while told.is_dir():
            try:
                ends = onlooker.ends(topics)
            except (KafkaException, TimeoutError):  # the broker is down, or was while we asked
                time.sleep(REST_S)
                continue
            messages, left = read_until(consumer, ends, PATIENCE_S, reached)
            for finding in memory.look(messages):
                note(told / "findings", finding)
            if not left:
                note(told / "seen", json.dumps({sink: rows.total() for sink, rows in memory.seen.items()}))
                note(told / "looked", ".")
            time.sleep(REST_S)
    return 0
