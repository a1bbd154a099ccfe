"""The Kafka source on a real broker: what is committed arrives once, and nothing that goes wrong passes in silence."""

import io
import json
import re
import shutil
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

import pakka
from pakka.errors import AbortedError, ConfigError, RefusedError, RegressError, UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.kafka_line import Address
from pakka.model.event import Delivered, Noticed
from pakka.sinks.files import ParquetSink
from pakka.sources.kafka import KafkaSource
from tests.fixtures.kafka import Topics
from tests.integration.conftest import connector, need_connector
from tests.integration.kafka_kit import Clients, settlements
from tests.integration.outputs import read_files

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCHEMA = "id BIGINT, merchant STRING, amount BIGINT"


@pytest.fixture
def clients(kafka_server) -> Clients:
    need_connector()
    return Clients(kafka_server.bootstrap)


@pytest.fixture
def source(kafka_server):
    """Makes a source of this test's broker."""

    def make(topics, **options) -> KafkaSource:
        return KafkaSource(kafka_server.bootstrap, topics, **{"schema": SCHEMA, **options})

    return make


class Told:
    """Runs pipelines and keeps what they tell."""

    def __init__(self) -> None:
        self.events: list = []

    def run(self, pipeline: pakka.Pipeline) -> list[Noticed]:
        """The notices of this run."""
        self.events = []
        pakka.run(pipeline, listen=self.events.append)
        return [event for event in self.events if isinstance(event, Noticed)]


@pytest.fixture
def told() -> Told:
    return Told()


# Not what the schema says, in every way there is. The last two are no text, and nothing at all.
BAD = [
    b'{"id": 1, ',
    b"",
    b"null",
    b'[{"id": 1}]',
    b'{"id": "x"}',
    b'{"id": 1.5}',
    b'{"id": 1} xyz',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1},{"id": 2}',
    b'{"id": 1}}',
    b'{"id": 1},',
    b'{"id": 1},"x":2',
    b'{"id": 1},"end":true}garbage',
    b'{"id": 1}],"items":[{"id": 2}',
    b'"text"',
    b'{"merchant": "\xff\xfe"}',
    None,
]


def letters(rows: list[dict]) -> list[dict]:
    """Dead letters: where each stood in Kafka, and what it was."""
    found = [json.loads(letter["row"]) for letter in rows]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_what_was_committed_arrives_once_and_what_was_aborted_never(spark, here, kafka_topics, clients, source, told):
    topic = kafka_topics.create("in", partitions=2)
    clients.commit(topic, settlements(0, 20))
    clients.abort(topic, settlements(1000, 20))
    clients.commit(topic, settlements(20, 20))
    pipeline = pakka.Pipeline("refunds", source(topic, max_offsets_per_epoch=15), {"out": ParquetSink("out")})
    assert told.run(pipeline) == []
    assert [row["id"] for row in read_files("out")] == list(range(40))
    delivered = [e for e in told.events if isinstance(e, Delivered)]
    assert len(delivered) >= 4
    assert max(e.rows_in for e in delivered) <= 15
    clients.abort(topic, settlements(2000, 5))
    clients.commit(topic, settlements(40, 3))
    told.run(pipeline)
    assert [row["id"] for row in read_files("out")] == list(range(43))


def test_what_cannot_be_decoded_is_a_dead_letter_that_says_where_it_stands(
    spark, here, kafka_topics, clients, source, memory
):
    topic = kafka_topics.create("in")
    clients.send(topic, [*settlements(0, 2), *BAD, *settlements(2, 1)], key=b"k")
    for name, process in (("whole", None), ("part", "SELECT id FROM source")):
        pipeline = pakka.Pipeline(
            name,
            source(topic),
            {"out": memory[name]},
            process,
            dead_letters=memory[f"dead {name}"],
            checkpoint=f"cp/{name}",
        )
        pakka.run(pipeline)
        assert memory.column(name, "id") == [0, 1, 2]
        found = letters(memory.rows(f"dead {name}"))
        assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
            (topic, 0, offset) for offset in range(2, 2 + len(BAD))
        ]
        assert {row["key"] for row in found} == {"k"}
        *text, binary, tombstone = found
        assert [row["value"].encode() for row in text] == BAD[:-2]
        assert (binary["value_hex"], "value" in binary) == (BAD[-2].hex().upper(), False)
        assert not {"value", "value_hex"} & set(tombstone)
        assert {tuple(letter["rules"]) for letter in memory.rows(f"dead {name}")} == {("malformed",)}


LONG = {"bytes": b"\xff" * 520_000, "text": b"\x01" * 520_000, "letters": "€".encode() * 200_000}


def test_of_a_long_record_that_cannot_be_decoded_as_much_is_told_as_a_topic_takes(
    spark, here, kafka_topics, clients, source, memory
):
    """Written in full it was twice as long or more, which no topic took, and the pipeline stopped at each restart."""
    from pakka.sinks.kafka import KafkaSink

    topic, dead = kafka_topics.create("in"), kafka_topics.create("dead")
    for value in LONG.values():
        clients.send(topic, [value], key=b"\x01" * 5000)
    clients.send(topic, ["x" * 131_072])
    sink = KafkaSink(clients.servers, dead, ledger=kafka_topics.name("pakka"))
    pakka.run(pakka.Pipeline("refunds", source(topic), {"out": memory["out"]}, dead_letters=sink))
    hexed, controls, euros, whole = letters([json.loads(value) for _, value in clients.read(dead, 1)])
    assert [row["offset"] for row in (hexed, controls, euros, whole)] == [0, 1, 2, 3]
    assert (hexed["value_hex"], "value" in hexed) == ("FF" * 131_072, False)
    assert (controls["value"], controls["key"]) == ("\x01" * 131_072, "\x01" * 4096)
    assert euros["value"] == "€" * 131_072
    assert [(row["value_cut"], row["value_bytes"]) for row in (hexed, controls, euros)] == [
        (True, len(value)) for value in LONG.values()
    ]
    assert (hexed["key_cut"], hexed["key_bytes"]) == (True, 5000)
    assert (len(whole["value"]), {"value_cut", "value_bytes", "key_cut", "key_bytes"} & set(whole)) == (131_072, set())


def test_without_dead_letters_a_record_that_cannot_be_decoded_stops_the_epoch(
    spark, here, kafka_topics, clients, source, memory
):
    topic = kafka_topics.create("in")
    clients.send(topic, [*settlements(0, 2), b"poison"])
    asked = {"strict": "id", "failing": "id", "beside": "_offset", "nothing": "1 AS one"}
    for name, columns in asked.items():
        options = {"metadata": True, **({"corrupt": "fail"} if name == "failing" else {})}
        process = f"SELECT {columns} FROM source"
        pipeline = pakka.Pipeline(name, source(topic, **options), {"out": memory[name]}, process)
        with pytest.raises(
            AbortedError, match=r'cannot be decoded: \{"topic":"[^"]*in","partition":0,"offset":2.*poison'
        ):
            pakka.run(replace(pipeline, checkpoint=f"cp/{name}"))
        assert memory.rows(name) == []
    dropping = pakka.Pipeline("dropping", source(topic, corrupt="drop"), {"out": memory["dropping"]}, checkpoint="cp/d")
    pakka.run(dropping)
    assert memory.column("dropping", "id") == [0, 1]


AVRO = {
    "type": "record",
    "name": "Settlement",
    "fields": [{"name": "id", "type": "long"}, {"name": "merchant", "type": ["null", "string"], "default": None}],
}
OPTIONAL = {"type": "record", "name": "Maybe", "fields": [{"name": "id", "type": ["null", "long"], "default": None}]}


def encoded(schema: dict, row: dict) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, row)
    return buffer.getvalue()


def test_avro_is_read_and_what_is_not_avro_is_a_dead_letter(spark, here, kafka_topics, clients, source, memory):
    topic, maybe = kafka_topics.create("in"), kafka_topics.create("maybe")
    good = [{"id": 1, "merchant": "m1"}, {"id": 2, "merchant": None}]
    clients.send(
        topic,
        [
            *(encoded(AVRO, row) for row in good),
            b"\xff\xff\xff",
            b"",
            encoded(AVRO, good[0]) + b"\xff",
            b"\0\0\0\0\x05" + encoded(AVRO, good[0]),
        ],
    )
    (here / "settlement.avsc").write_text(json.dumps(AVRO))
    settlement = source(topic, format="avro", schema="settlement.avsc", metadata=True)
    pakka.run(pakka.Pipeline("refunds", settlement, {"out": memory["out"]}, dead_letters=memory["dead"]))
    assert [(row["id"], row["merchant"], row["_offset"]) for row in memory.rows("out")] == [(1, "m1", 0), (2, None, 1)]
    found = letters(memory.rows("dead"))
    assert [row["offset"] for row in found] == [2, 3, 4, 5]
    assert (found[0]["value_hex"], found[1]["value"]) == ("FFFFFF", "")
    clients.send(maybe, [encoded(OPTIONAL, {"id": None}), b"\x07"])
    nulls = source(maybe, format="avro", schema=json.dumps(OPTIONAL))
    pakka.run(pakka.Pipeline("nulls", nulls, {"out": memory["nulls"]}, dead_letters=memory["dead2"], checkpoint="cp/n"))
    assert memory.rows("nulls") == [{"id": None}]
    assert len(memory.rows("dead2")) == 1


# Three bytes that claim to be 2 GiB: of text, of bytes, and of items.
CLAIMS = {
    "string": bytes.fromhex("e0ffffff0f010203"),
    "bytes": bytes.fromhex("e0ffffff0f010203"),
    '{"type": "array", "items": "long"}': bytes.fromhex("e0ffffff0f010203"),
}
READ_CLAIMS = """
import json, sys
from pathlib import Path
from pakka.sources import _kafka_decode as decode
from pakka.sources.kafka import KafkaSource
from pakka.spark.session import open_session

settings, claims = json.loads(sys.argv[1])
needed = KafkaSource("a:1", "t", format="avro", schema="{}").jars_for("4.9.9")
spark = open_session("claims", settings, Path("spark.log"), needed)
columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
found = []
for kind, value in claims.items():
    field = kind if kind.isalpha() else json.loads(kind)
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": field}]}
    records = spark.createDataFrame([(None, bytearray.fromhex(value), "t", 0, 0, None)], columns)
    decoded, struct, is_bad = decode.from_avro(records, json.dumps(schema))
    rows = decode.columns(decoded, struct, is_bad, ["x"], is_strict=False, has_metadata=False, has_headers=False)
    found += [json.loads(row._corrupt_record)["value_hex"].lower() for row in rows.collect()]
asked = spark._jvm.java.lang.System.getProperty
print(json.dumps([found, asked("org.apache.avro.limits.bytes.maxLength"), asked("x")]))
"""


def test_an_avro_value_that_claims_gigabytes_is_a_dead_letter_and_not_the_end_of_the_jvm(here):
    """In a JVM of its own: without the limits it ends there."""
    need_connector()
    settings = {**connector(), "spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Dx=1"}
    settings["spark.driver.extraJavaOptions"] += " -Dorg.apache.avro.limits.bytes.maxLength=1000"
    given = json.dumps([settings, {kind: value.hex() for kind, value in CLAIMS.items()}])
    program = [sys.executable, "-c", READ_CLAIMS, given]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # What the user has set himself counts.
    assert json.loads(done.stdout) == [[value.hex() for value in CLAIMS.values()], "1000", "1"]


def test_keys_headers_and_times_come_along(spark, here, kafka_topics, clients, source, memory):
    topic = kafka_topics.create("in")
    clients.send(topic, settlements(7, 1), key=b"k", headers=[("trace", b"abc")], timestamp=1_700_000_000_123)
    pakka.run(pakka.Pipeline("refunds", source(topic, metadata=True, headers=True), {"out": memory["out"]}))
    [row] = memory.rows("out")
    assert (row["id"], row["_topic"], row["_partition"], row["_offset"], row["_key"]) == (7, topic, 0, 0, b"k")
    assert row["_timestamp"].timestamp() == pytest.approx(1_700_000_000.123)
    assert row["_headers"] == [{"key": "trace", "value": b"abc"}]
    raw = source(topic, format="raw", schema=None, headers=True)
    pakka.run(pakka.Pipeline("raw", raw, {"out": memory["raw"]}, checkpoint="cp/raw"))
    [row] = memory.rows("raw")
    assert list(row) == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    assert json.loads(row["value"]) == settlements(7, 1)[0]


def test_a_new_pipeline_begins_where_it_is_told_to(spark, here, kafka_topics, clients, source, memory):
    one, two = kafka_topics.create("a", partitions=2), kafka_topics.create("b")
    for partition in (0, 1):
        clients.send(one, settlements(partition * 10, 3), partition=partition, timestamp=1_700_000_000_000)
        clients.send(one, settlements(partition * 10 + 5, 1), partition=partition, timestamp=1_700_000_600_000)
    clients.send(two, settlements(20, 2), timestamp=1_700_000_000_000)
    cases = {
        "latest": ("latest", []),
        "time": ("2023-11-14T22:20:00Z", [5, 15]),
        "offsets": ({one: {"0": 2}, two: {"0": 1}}, [2, 5, 10, 11, 12, 15, 21]),
    }
    for name, (start, ids) in cases.items():
        everything = source((), pattern=f"{kafka_topics.prefix}.", start=start)
        pakka.run(pakka.Pipeline(name, everything, {"out": memory[name]}, checkpoint=f"cp/{name}"))
        assert memory.column(name, "id") == ids, name


def test_a_start_that_the_topic_does_not_have_is_refused_and_can_be_corrected(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic = kafka_topics.create("in")
    clients.send(topic, settlements(0, 8))
    clients.forget(topic, 0, before=3)
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]})
    for offset in (2, 9):
        with pytest.raises(
            RegressError,
            match=f"`start` says offset {offset} of .*, which has offsets from 3 on, and the next one is 8",
        ):
            told.run(replace(pipeline, source=source(topic, start={topic: {"0": offset}})))
    # Nothing was noted of it.
    told.run(replace(pipeline, source=source(topic, start={topic: {"0": 5}})))
    assert memory.column("out", "id") == [5, 6, 7]
    # Nor does one that is behind everything begin anywhere but there.
    ahead = pakka.Pipeline(
        "ahead", source(topic, start={topic: {"0": 8}}), {"out": memory["ahead"]}, checkpoint="cp/ahead"
    )
    told.run(ahead)
    clients.send(topic, settlements(8, 1))
    told.run(ahead)
    assert memory.column("ahead", "id") == [8]


def test_a_start_that_is_changed_after_a_first_run_that_delivered_nothing_says_what_to_remove(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic = kafka_topics.create("in")
    clients.send(topic, [*settlements(0, 3), b"poison", *settlements(4, 2)])
    pipeline = pakka.Pipeline("refunds", source(topic, start={topic: {"0": 2}}), {"out": memory["out"]})
    with pytest.raises(AbortedError, match="cannot be decoded"):
        told.run(pipeline)
    behind = replace(pipeline, source=source(topic, start={topic: {"0": 4}}))
    with pytest.raises(RegressError, match=r"offset 4 of .*, of which nothing is delivered, begins at 2") as caught:
        told.run(behind)
    assert f"or remove the directory {pipeline.checkpoint_path} to begin where it says now" in caught.value.hint
    with pytest.raises(RegressError, match=r"the earliest, which is 0, of .* begins at 2"):
        told.run(replace(pipeline, source=source(topic)))
    shutil.rmtree(pipeline.checkpoint_path)
    told.run(behind)
    assert memory.column("out", "id") == [4, 5]


def test_a_topic_that_was_made_again_is_refused_with_what_to_do(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic, other = kafka_topics.create("in"), kafka_topics.create("other")
    clients.send(topic, settlements(0, 3))
    clients.send(other, settlements(100, 2))
    pipeline = pakka.Pipeline("refunds", source((topic, other)), {"out": memory["out"]})
    told.run(pipeline)
    kafka_topics.delete(topic)
    with pytest.raises(RefusedError, match="there is no topic"):
        told.run(pipeline)
    kafka_topics.create("in")
    clients.send(topic, settlements(10, 5))
    with pytest.raises(
        RegressError, match=f"topic `{topic}` was deleted and made again.*nothing was written"
    ) as caught:
        told.run(pipeline)
    assert memory.column("out", "id") == [0, 1, 2, 100, 101]
    # What the hint says is enough to go on.
    start = json.loads(caught.value.hint.partition("start: ")[2].partition("`")[0])
    assert start == {topic: {"0": 0}, other: {"0": 2}}
    assert "pakka reset refunds --checkpoint --yes" in caught.value.hint
    reset(pipeline)
    told.run(replace(pipeline, source=source((topic, other), start=start)))
    assert memory.column("out", "id") == [0, 1, 2, 10, 11, 12, 13, 14, 100, 101]


def test_a_topic_that_was_made_again_before_the_first_epoch_was_planned_is_refused(
    spark, here, kafka_topics, clients, source, memory, told
):
    """A driver that died when Spark had noted where it begins, and nothing else."""
    topic = kafka_topics.create("in")
    clients.send(topic, [*settlements(0, 3), b"poison"])
    pipeline = pakka.Pipeline("refunds", source(topic, start={topic: {"0": 3}}), {"out": memory["out"]})
    with pytest.raises(AbortedError, match="cannot be decoded"):
        told.run(pipeline)
    for name in ("0", ".0.crc"):
        (Path(pipeline.checkpoint_path) / "offsets" / name).unlink()
    kafka_topics.delete(topic)
    kafka_topics.create("in")
    clients.send(topic, settlements(10, 8))
    with pytest.raises(RegressError, match=f"topic `{topic}` was deleted and made again"):
        told.run(pipeline)
    assert memory.rows("out") == []


def test_a_topic_that_is_made_again_under_a_running_pipeline_stops_it(
    spark, here, kafka_topics, clients, source, memory
):
    topic = kafka_topics.create("in")
    clients.send(topic, settlements(0, 3))
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]}, trigger=pakka.Trigger(0.2))
    first, stop = threading.Event(), threading.Event()

    def listen(event) -> None:
        if isinstance(event, Delivered):
            first.set()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pakka.run, pipeline, listen=listen, stop=stop)
        try:
            assert first.wait(120)
            kafka_topics.delete(topic)
            kafka_topics.create("in")
            clients.send(topic, settlements(10, 50))
            error = running.exception(timeout=120)
        finally:
            stop.set()
    assert isinstance(error, RegressError), error
    assert "was deleted and made again" in error.message or "is not there any more" in error.message
    assert memory.column("out", "id") == [0, 1, 2]


def reset(pipeline: pakka.Pipeline) -> None:
    """As `pakka reset NAME --checkpoint --yes` does, after the checkpoint was removed."""
    from contextlib import closing

    from pakka.contract.state import Owner
    from pakka.coordinator.reset import Reset
    from pakka.spark import checkpoint
    from pakka.state import open_store

    shutil.rmtree(pipeline.checkpoint_path)
    sinks = {name: output.sink for name, output in pipeline.outputs.items()}
    with closing(open_store(pipeline.state)) as store, ThreadPoolExecutor(2) as pool:
        person = Reset(pipeline.name, sinks, store, pipeline.spool_path, Owner("h", 1, 0.0), lambda _: None, pool)
        person.accept_checkpoint(checkpoint.read(pipeline.checkpoint_path)).apply()


def test_records_that_retention_took_before_they_were_read_are_named(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic = kafka_topics.create("in", partitions=2)
    clients.send(topic, settlements(0, 3), partition=1)
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]})
    told.run(pipeline)
    clients.send(topic, settlements(3, 7), partition=1)
    clients.forget(topic, 1, before=8)
    with pytest.raises(
        RegressError, match=f"topic `{topic}` partition 1: the records from offset 3 to 7 are gone"
    ) as caught:
        told.run(pipeline)
    start = json.loads(caught.value.hint.partition("start: ")[2].partition("`")[0])
    assert start == {topic: {"0": 0, "1": 8}}
    reset(pipeline)
    told.run(replace(pipeline, source=source(topic, start=start)))
    assert memory.column("out", "id") == [0, 1, 2, 8, 9]


def test_a_record_whose_time_spark_cannot_hold_is_named_and_can_be_passed_without_losing_another(
    spark, here, kafka_topics, clients, source, memory, told
):
    """In nanoseconds. Each hint is followed to the letter."""
    topic = kafka_topics.create("in", partitions=2, message_timestamp_after_max_ms=str(2**63 - 1))
    clients.send(topic, settlements(0, 2), partition=1)
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]}, dead_letters=memory["dead"])
    told.run(pipeline)
    clients.send(topic, settlements(2, 3), partition=1)
    clients.send(topic, settlements(5, 1), partition=1, timestamp=1_767_261_600_000_000_000)
    clients.send(topic, settlements(6, 2), partition=1)
    clients.send(topic, settlements(10, 40), partition=0)
    place = f"topic `{topic}` partition 1: the record at offset 5 has the time 1767261600000000000 ms"
    stopped: list[RefusedError] = []
    while len(stopped) < 10:
        try:
            told.run(pipeline)
            break
        except RefusedError as error:
            stopped.append(error)
        hint = stopped[-1].hint
        start = json.loads(hint.partition("start: ")[2].partition("`")[0])
        limit = re.search("`max_offsets_per_epoch: ([0-9]+)`", hint)
        reset(pipeline)
        made = source(topic, start=start, max_offsets_per_epoch=int(limit[1]) if limit else None)
        pipeline = replace(pipeline, source=made)
    assert 2 <= len(stopped) < 10
    assert all(place in error.message for error in stopped)
    assert memory.column("out", "id") == [*range(5), 6, 7, *range(10, 50)]
    assert memory.rows("dead") == []


def test_a_record_whose_time_spark_cannot_hold_is_named_also_in_the_first_epoch(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic = kafka_topics.create("in", message_timestamp_after_max_ms=str(2**63 - 1))
    clients.send(topic, settlements(0, 2), timestamp=1_767_261_600_000_000_000)
    pipeline = pakka.Pipeline("refunds", source(topic, format="raw", schema=None), {"out": memory["out"]})
    for hint in ("nothing is delivered yet: run again", "to go on without it: remove the checkpoint directory"):
        with pytest.raises(RefusedError, match=f"topic `{topic}` partition 0: the record at offset 0 has") as caught:
            told.run(pipeline)
        assert caught.value.hint.startswith(hint)


def test_what_was_delivered_and_not_acknowledged_may_be_gone(spark, here, kafka_topics, clients, source, memory, told):
    """A driver that died between commit and acknowledge: Spark plans its last epoch again, and nobody reads it again."""
    topic = kafka_topics.create("in", partitions=2)
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]})
    for first in (0, 2):
        clients.send(topic, settlements(first, 2), partition=0)
        clients.send(topic, settlements(first + 10, 2), partition=1)
        told.run(pipeline)
    unacknowledge(pipeline, 1)
    clients.forget(topic, 0, before=4)
    clients.send(topic, settlements(4, 2), partition=0)
    assert told.run(pipeline) == []
    assert memory.column("out", "id") == [*range(6), *range(10, 14)]
    # What was not delivered is missed, and what to type delivers nothing twice.
    unacknowledge(pipeline, 2)
    clients.send(topic, settlements(6, 2), partition=0)
    clients.forget(topic, 0, before=7)
    with pytest.raises(RegressError, match="partition 0: the records from offset 6 to 6 are gone") as caught:
        told.run(pipeline)
    start = json.loads(caught.value.hint.partition("start: ")[2].partition("`")[0])
    assert start == {topic: {"0": 7, "1": 4}}
    reset(pipeline)
    told.run(replace(pipeline, source=source(topic, start=start)))
    assert memory.column("out", "id") == [*range(6), 7, *range(10, 14)]


def unacknowledge(pipeline: pakka.Pipeline, batch: int) -> None:
    """Spark never heard that this batch is done."""
    for name in (f"{batch}", f".{batch}.crc"):
        (Path(pipeline.checkpoint_path) / "commits" / name).unlink()


def test_new_partitions_are_told_of_and_read_from_their_beginning(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic = kafka_topics.create("in")
    clients.send(topic, settlements(0, 3))
    pipeline = pakka.Pipeline("refunds", source(topic, start="latest"), {"out": memory["out"]})
    assert told.run(pipeline) == []
    clients.grow(topic, 3)
    clients.send(topic, settlements(3, 4), partition=2)
    [notice] = told.run(pipeline)
    assert (notice.about, "had 1 partitions and has 3" in notice.message) == ("partitions", True)
    assert memory.column("out", "id") == [3, 4, 5, 6]
    assert told.run(pipeline) == []


def test_a_topic_that_is_added_and_has_lost_its_first_records_is_refused_with_the_way_on(
    spark, here, kafka_topics, clients, source, memory, told
):
    topic, other = kafka_topics.create("in"), kafka_topics.create("other")
    clients.send(topic, settlements(0, 3))
    clients.send(other, settlements(100, 6))
    clients.forget(other, 0, before=4)
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]})
    told.run(pipeline)
    clients.send(topic, settlements(3, 1))
    both = replace(pipeline, source=source((topic, other)))
    with pytest.raises(
        RegressError, match=f"topic `{other}` partition 0 is new to this pipeline and begins at offset 4"
    ) as caught:
        told.run(both)
    # Nothing was started, so that it may be taken out again.
    told.run(pipeline)
    assert memory.column("out", "id") == [0, 1, 2, 3]
    with pytest.raises(RegressError, match="begins at offset 4") as caught:
        told.run(both)
    start = json.loads(caught.value.hint.partition("start: ")[2].partition("`")[0])
    assert start == {topic: {"0": 4}, other: {"0": 4}}
    reset(pipeline)
    told.run(replace(both, source=source((topic, other), start=start)))
    assert memory.column("out", "id") == [0, 1, 2, 3, 104, 105]


def test_a_topic_without_its_first_records_that_comes_to_match_under_a_running_pipeline_stops_it_with_the_way_on(
    spark, here, kafka_topics, clients, source, memory
):
    topic = kafka_topics.create("a")
    clients.send(topic, settlements(0, 3))
    every = source((), pattern=f"{kafka_topics.prefix}.")
    pipeline = pakka.Pipeline("refunds", every, {"out": memory["out"]}, trigger=pakka.Trigger(0.2))

    def listen(event) -> None:
        # Spark waits here, and sees the topic as it is afterwards.
        if isinstance(event, Delivered) and event.epoch == 0:
            made = kafka_topics.create("b")
            clients.send(made, settlements(100, 6))
            clients.forget(made, 0, before=4)

    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pakka.run, pipeline, listen=listen, stop=stop)
        try:
            error = running.exception(timeout=180)
        finally:
            stop.set()
    made = kafka_topics.name("b")
    assert isinstance(error, RegressError), error
    assert f"topic `{made}` partition 0 is new to this pipeline and begins at offset 4" in error.message
    start = json.loads(error.hint.partition("start: ")[2].partition("`")[0])
    assert start == {topic: {"0": 3}, made: {"0": 4}}
    assert memory.column("out", "id") == [0, 1, 2]


def test_a_pattern_takes_every_topic_but_those_that_brokers_keep_for_themselves(
    spark, here, kafka_server, clients, source, memory, told
):
    """Others begin names with `__` too. Spark reads such topics, so they must be looked after."""
    topics = Topics(kafka_server.bootstrap, f"__{uuid.uuid4().hex[:12]}.")
    topic = topics.create("in")
    try:
        # The first transaction of a cluster brings a topic of its own.
        clients.commit(topic, settlements(0, 3))
        own = clients.admin.list_topics(timeout=30).topics.keys() - Cluster(Address(kafka_server.bootstrap)).names()
        assert own <= {"__consumer_offsets", "__transaction_state", "__share_group_state"}
        assert "__transaction_state" in own
        pipeline = pakka.Pipeline("refunds", source((), pattern=f"{topics.prefix}.*"), {"out": memory["out"]})
        told.run(pipeline)
        topics.delete(topic)
        topics.create("in")
        clients.send(topic, settlements(100, 5))
        with pytest.raises(RegressError, match=f"topic `{topic}` was deleted and made again"):
            told.run(pipeline)
        assert memory.column("out", "id") == [0, 1, 2]
    finally:
        topics.drop()


def test_a_topic_that_only_java_finds_by_the_pattern_is_not_read(
    spark, here, kafka_topics, clients, source, memory, told
):
    """`\\101`: Java repeats the first group, and Python takes the character of that number."""
    topic = kafka_topics.create("aa01")
    clients.send(topic, settlements(0, 3))
    every = source((), pattern=f"{re.escape(kafka_topics.prefix)}(a)\\101")
    with pytest.raises(RefusedError, match=f"Spark reads topic `{topic}`, which pakka does not see by the pattern"):
        told.run(pakka.Pipeline("refunds", every, {"out": memory["out"]}))
    assert memory.rows("out") == []
    with pytest.raises(ConfigError, match="is not a regular expression of Java"):
        told.run(pakka.Pipeline("named", source((), pattern="(?P<n>a)"), {"out": memory["out"]}))


def test_a_transaction_that_hangs_upstream_is_told_of(spark, here, kafka_topics, clients, source, memory, told):
    topic = kafka_topics.create("in")
    clients.commit(topic, settlements(0, 3))
    pipeline = pakka.Pipeline("refunds", source(topic), {"out": memory["out"]})
    with clients.transaction(topic, settlements(1000, 1), "hanging") as hanging:
        clients.commit(topic, settlements(3, 3))
        [notice] = told.run(pipeline)
        assert memory.column("out", "id") == [0, 1, 2]
        assert notice.about == "stalled"
        assert f"topic `{topic}` partition 0" in notice.message
        assert "from offset 4 on, 5 offsets up to now" in notice.message
        hanging.abort_transaction(30)
    assert told.run(pipeline) == []
    assert memory.column("out", "id") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
def test_kafka_to_kafka_the_offsets_of_the_group_come_with_the_rows(
    spark, here, kafka_topics, clients, source, told, way
):
    from pakka.sinks.kafka import KafkaSink

    topic = kafka_topics.create("in", partitions=2)
    out, audit = kafka_topics.create("out", partitions=2), kafka_topics.create("audit")
    clients.commit(topic, settlements(0, 50))
    clients.abort(topic, settlements(1000, 5))
    group = kafka_topics.name("group")
    sink = KafkaSink(clients.servers, topic_column="topic", key="id", way=way, ledger=kafka_topics.name("pakka"))
    process = f"""SELECT id, amount, explode(array('{out}', '{audit}')) AS topic FROM source"""
    pipeline = pakka.Pipeline("refunds", source(topic, group=group, max_offsets_per_epoch=30), {"kafka": sink}, process)
    told.run(pipeline)
    for name, partitions in ((out, 2), (audit, 1)):
        assert sorted(json.loads(value)["id"] for _, value in clients.read(name, partitions)) == list(range(50))
    assert clients.group(group) == {(topic, p): end for p, end in clients.ends(topic, 2).items()}


def test_a_topic_that_is_not_there_and_a_broker_that_is_not_there_are_told_apart(
    spark, here, kafka_topics, source, memory, monkeypatch
):
    with pytest.raises(RefusedError, match=r"there is no topic `.*missing`; nothing was started"):
        pakka.run(pakka.Pipeline("refunds", source(kafka_topics.name("missing")), {"out": memory["out"]}))
    monkeypatch.setattr("pakka.kafka_cluster.ANSWER_S", 2.0)
    nowhere = KafkaSource("127.0.0.1:1", "in", schema=SCHEMA)
    with pytest.raises(UnavailableError, match="nothing was started"):
        pakka.run(pakka.Pipeline("refunds", nowhere, {"out": memory["out"]}))
    with pytest.raises(ConfigError, match="is not understood"):
        pakka.run(
            pakka.Pipeline(
                "refunds", replace(source(kafka_topics.create("in")), schema="id BIGINTEGER"), {"o": memory["o"]}
            )
        )
