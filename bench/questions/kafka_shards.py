"""Would an epoch get into Kafka faster in shards, each sent by a process of its own in a transaction of its own, than by the driver in one?

What is sent lies packed in files, one a slot, as in the spool. The driver sends it over its two lines; shards are as many processes as there are slots, which are
there already and wait for the word, as Spark's workers would.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
from tools.kafka.broker import Kafka

from bench import kafka, scratch
from bench.answer import Answer, Figure, Goal, Spread
from bench.measure import in_turns, timed
from pakka.model.id import Binding
from pakka.sinks._kafka_batch import PACKED
from pakka.sinks._kafka_post import Post
from pakka.sinks._kafka_produce import Seat

RECORDS = {"tiny": {100: 2_000}, "small": {100: 500_000, 1000: 100_000}, "full": {100: 10_000_000, 1000: 1_000_000}}
ROUNDS = {"tiny": 1, "small": 5, "full": 9}
_SLOTS = 2
_ENOUGH = Goal(0.8, is_floor=True, words="at least 0.80x, or shards are worth their price")


def answer(size: str) -> Answer:
    with kafka.server() as broker, scratch.directory("kafka-shards") as place:
        if broker is None:
            return Answer("kafka-shards", size, (), (kafka.NO_KAFKA,))
        figures = [f for bytes_, count in RECORDS[size].items() for f in _ask(broker, place, size, count, bytes_)]
    notes = (
        f"{_SLOTS} slots, packed before, one broker on the same machine, a topic of {kafka.PARTITIONS} partitions. The driver is one process with one transaction, over two lines; "
        f"shards are {_SLOTS} processes with a transaction each. Times end with the answer to the last commit.",
    )
    return Answer("kafka-shards", size, tuple(figures), notes, ROUNDS[size])


def _ask(broker: Kafka, place: Path, size: str, count: int, value_bytes: int) -> list[Figure]:
    topic = kafka.topic(broker, f"shards-{value_bytes}")
    paths = [place / f"{value_bytes}-{number}" for number in range(_SLOTS)]
    for path in paths:
        _pack(broker, topic, path, count // _SLOTS, value_bytes)
    seat = kafka.seat(broker.bootstrap, f"driver-{value_bytes}")
    seat.second = Post("bench", seat.post.address)
    with _shards(broker.bootstrap, topic, paths) as send_all:
        sides: dict[str, Callable[[], float]] = {
            "the driver": lambda: timed(lambda: _send(seat, topic, paths)),
            "shards": lambda: timed(send_all),
        }
        took = in_turns(sides, ROUNDS[size])
    n = f"{count:,} records of {value_bytes:,} bytes"
    return [
        Figure(
            f"records/s of the driver against {_SLOTS} shards, {n}",
            Spread.ratio(took["shards"], took["the driver"]),
            "x",
            _ENOUGH,
        ),
        *(Figure(f"{side}, {n}", Spread.of([count / t for t in times]), "rows/s") for side, times in took.items()),
    ]


def _pack(broker: Kafka, topic: str, path: Path, count: int, value_bytes: int) -> None:
    """A file like that of a slot in the spool."""
    batches = kafka.records(count, value_bytes)
    packer = kafka.sink(broker, topic).open_packer(Binding("bench", "shards", ""), batches[0].schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, PACKED) as stream:
        for batch in batches:
            for packed in packer.take(batch):
                stream.write_batch(packed)
        for packed in packer.rest():
            stream.write_batch(packed)


def _send(seat: Seat, topic: str, paths: list[Path]) -> None:
    outbox = seat.outbox(topic, set())
    for path in paths:
        with pa.memory_map(str(path)) as file:
            for packed in pa.ipc.open_stream(file):
                outbox.send(packed)
    outbox.settle()
    seat.post.end(seat.handle, is_commit=True)


@contextmanager
def _shards(servers: str, topic: str, paths: list[Path]) -> Iterator[Callable[[], None]]:
    """A process a slot. What is given has them all send, and waits for them."""
    lines: list[Connection] = []
    processes = []
    context = multiprocessing.get_context("spawn")
    for path in paths:
        ours, theirs = context.Pipe()
        process = context.Process(target=_shard, args=(theirs, servers, topic, path), daemon=True)
        process.start()
        # Theirs alone, so that we see its end if they die.
        theirs.close()
        ours.recv()
        lines.append(ours)
        processes.append(process)

    def send_all() -> None:
        for line in lines:
            line.send("send")
        for line in lines:
            line.recv()

    try:
        yield send_all
    finally:
        for line, process in zip(lines, processes, strict=True):
            with suppress(BrokenPipeError):
                line.send("end")
            process.join()


def _shard(line: Connection, servers: str, topic: str, path: Path) -> None:
    seat = kafka.seat(servers, f"shard-{path.name}")
    line.send("ready")
    while line.recv() == "send":
        _send(seat, topic, [path])
        line.send("sent")
