"""A reader that reads every topic of a site all the time, in a process of its own, through crashes of the broker too."""

import json
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.kafka.judge import KafkaJudge, Memory
from tests.faults.kafka.outputs import KafkaOutlet
from tests.faults.watched import REST_S, note
from tests.faults.workload import Workload
from tests.fixtures.onlooker import Ends, Onlooker, read_until

PATIENCE_S = 2.0
"""How long to read for the ends of a look; then they are asked for anew."""
STUCK_S = 20.0
"""After so long without a whole look all lines are made anew: one of three brokers died, and for two minutes there was none."""


def watch(root: str, state: str, batches: int, slots: int, rows: int, notes: str) -> int:
    """Look until `notes` is gone. A look is over when all is read that could be read when it began."""
    site, told = Path(root), Path(notes)
    outlet = KafkaOutlet.read(site)
    onlooker = Onlooker(outlet.direct)
    workload = Workload(batches, slots, rows)
    memory = Memory(KafkaJudge(site, state, workload, tuple(outlet.options), outlet=outlet, onlooker=onlooker))
    topics, reached = list(outlet.topics.values()), {}
    places = dict.fromkeys(onlooker.ends(topics), 0)
    consumer = _consumer(onlooker, places)
    looked = time.monotonic()
    try:
        while told.is_dir():
            if time.monotonic() > looked + STUCK_S:
                say("all lines are made anew")
                consumer.close()
                onlooker = Onlooker(outlet.direct)
                consumer, looked = _consumer(onlooker, places), time.monotonic()
            try:
                ends = onlooker.ends(topics)
            except (KafkaException, TimeoutError) as error:  # the broker is down, or was while we asked
                say(f"no ends: {error}")
                time.sleep(REST_S)
                continue
            messages, left = read_until(consumer, ends, PATIENCE_S, reached)
            for message in messages:
                places[message.topic(), message.partition()] = message.offset() + 1
            for finding in memory.look(messages):
                note(told / "findings", finding)
            if left:
                say(
                    f"not reached: {left}, but { ({place: (places.get(place), reached.get(place)) for place in left}) }; read {len(messages)}"
                )
            else:
                looked = time.monotonic()
                note(told / "seen", json.dumps({sink: rows.total() for sink, rows in memory.seen.items()}))
                note(told / "looked", ".")
            time.sleep(REST_S)
    finally:
        consumer.close()
    return 0


def say(words: str) -> None:
    """For whoever waits for a look in vain."""
    print(f"{time.monotonic():.1f}: {words}", file=sys.stderr, flush=True)


def _consumer(onlooker: Onlooker, places: Ends) -> Consumer:
    """One that reads on from there."""
    consumer = onlooker.consumer()
    consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])
    return consumer
