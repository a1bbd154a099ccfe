"""How fast do records get from the spool into Kafka, against a plain loop over confluent-kafka, and what does a transaction cost?

Both sides make batches of the same size and end the same way, by a transaction that is committed. The loop is given its records as Python
objects that are there already; ours come as Arrow batches, as Spark hands them over, and are packed here.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Producer
from tools.kafka.broker import Kafka

from bench import kafka
from bench.answer import Answer, Figure, Goal, Spread
from bench.measure import Taken, clocked, in_turns
from pakka.sinks._kafka_produce import Seat
from pakka.sinks.kafka import BATCH_BYTES, KafkaSink

RECORDS = {
    "tiny": {100: 2_000, 1000: 1_000},
    "small": {100: 500_000, 1000: 100_000},
    "full": {100: 10_000_000, 1000: 1_000_000},
}
TRANSACTIONS = {"tiny": (100,), "small": (100, 1_000, 10_000, 100_000), "full": (100, 1_000, 10_000, 100_000)}
EPOCH_ROWS = {"tiny": 1_000, "small": 50_000, "full": 50_000}
ROUNDS = {"tiny": 1, "small": 7, "full": 5}
_LATENCY_ROUNDS = 5
"""So many times as often: a transaction is short."""
_FASTER = Goal(1.0, is_floor=True)
_COST = Goal(1.05, words="at most 1.05x the time")


def answer(size: str) -> Answer:
    with kafka.server() as broker:
        if broker is None:
            return Answer("kafka-produce", size, (), (kafka.NO_KAFKA,))
        figures = [f for bytes_, count in RECORDS[size].items() for f in _against_a_loop(broker, size, count, bytes_)]
        figures += _without_a_transaction(broker, size)
        figures += _latencies(broker, size)
    notes = (
        f"One producer in one process, one broker on the same machine, topic of {kafka.PARTITIONS} partitions, keys of 8 bytes, `acks=all`, "
        f"`linger.ms={kafka.LINGER_MS}`, `batch.size={BATCH_BYTES}`, no compression; values are random bytes.",
        "Processor time is that of this process, threads and all, without the broker's.",
    )
    return Answer("kafka-produce", size, tuple(figures), notes, ROUNDS[size])


def _against_a_loop(broker: Kafka, size: str, count: int, value_bytes: int) -> list[Figure]:
    topic = kafka.topic(broker, f"loop-{value_bytes}")
    batches = kafka.records(count, value_bytes)
    taken = in_turns(
        {
            "outbox": _delivering(
                kafka.seat(broker.bootstrap, f"outbox-{value_bytes}"), kafka.sink(broker, topic), batches
            ),
            "loop": _looping(
                kafka.transactional(broker.bootstrap, f"loop-{value_bytes}", **kafka.LOOP), topic, batches
            ),
        },
        ROUNDS[size],
    )
    n = f"{count:,} records of {value_bytes:,} bytes"
    wall = {side: [t.wall_s for t in times] for side, times in taken.items()}
    cpu = {side: [t.cpu_s for t in times] for side, times in taken.items()}
    return [
        Figure(f"records/s against a plain loop, {n}", Spread.ratio(wall["loop"], wall["outbox"]), "x", _FASTER),
        Figure(f"records for the same processor time, {n}", Spread.ratio(cpu["loop"], cpu["outbox"]), "x", _FASTER),
        *(Figure(f"{side}, {n}", Spread.of([count / t for t in wall[side]]), "rows/s") for side in wall),
    ]


def _without_a_transaction(broker: Kafka, size: str) -> list[Figure]:
    count = EPOCH_ROWS[size]
    sink, batches = kafka.sink(broker, kafka.topic(broker, "epochs")), kafka.records(count, 100)
    plain = kafka.plain_seat(broker.bootstrap)
    sides = {
        "with": _delivering(kafka.seat(broker.bootstrap, "epochs"), sink, batches),
        "without": lambda: clocked(lambda: kafka.send(plain, sink, batches)),
    }
    taken = in_turns(sides, ROUNDS[size] * _LATENCY_ROUNDS)
    wall = {side: [t.wall_s for t in times] for side, times in taken.items()}
    what = f"transactions of {count:,} records of 100 bytes, against the same producer without"
    return [Figure(what, Spread.ratio(wall["with"], wall["without"]), "x", _COST)]


def transaction_of(count: int) -> str:
    """What the time of such a transaction is called."""
    return f"a transaction of {count:,} records of 100 bytes"


def _latencies(broker: Kafka, size: str) -> list[Figure]:
    sink = kafka.sink(broker, kafka.topic(broker, "latency"))
    figures = []
    for count in TRANSACTIONS[size]:
        seat = kafka.seat(broker.bootstrap, f"latency-{count}")
        sides = {"one": _delivering(seat, sink, kafka.records(count, 100))}
        took = [t.wall_s for t in in_turns(sides, ROUNDS[size] * _LATENCY_ROUNDS, warm_ups=3)["one"]]
        n = transaction_of(count)
        figures.append(Figure(n, Spread.of(took).scaled(1e3), "ms"))
        figures.append(Figure(f"{n}, one after another", Spread.of([count / t for t in took]), "rows/s"))
    return figures


def _delivering(seat: Seat, sink: KafkaSink, batches: list[pa.RecordBatch]) -> Callable[[], Taken]:
    def deliver() -> None:
        kafka.send(seat, sink, batches)
        seat.post.end(seat.handle, is_commit=True)

    return lambda: clocked(deliver)


def _looping(producer: Producer, topic: str, batches: list[pa.RecordBatch]) -> Callable[[], Taken]:
    rows = list(zip(batches[0].column("key").to_pylist(), batches[0].column("value").to_pylist(), strict=True))

    def loop() -> None:
        producer.begin_transaction()
        for _ in batches:
            kafka.send_each(producer, topic, rows)
        producer.flush()
        producer.commit_transaction()

    return lambda: clocked(loop)
