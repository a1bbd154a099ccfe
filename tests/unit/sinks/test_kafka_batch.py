"""Batches as brokers keep them, read back by a client that knows nothing of how they were made."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from kafka.record import MemoryRecords

from pakka.sinks._kafka_batch import CODECS, SEQUENCES, Handle, Press, partitions_of, unpacked
from pakka.sinks._kafka_limit import Limits
from pakka.sinks._kafka_record import HEADERS, TOPICS

BINARY = pa.large_binary()
OURS = Handle("id", 7, 3)
NOW = 1_769_860_800_000
PARTITIONS = 5
LIMITS = Limits(PARTITIONS, 1 << 30)

some_bytes = st.none() | st.binary(max_size=300)
header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=200)})
record = st.tuples(
    some_bytes,
    some_bytes,
    st.none() | st.lists(header, max_size=3),
    st.none() | st.integers(0, 1 << 50),
    st.none() | st.integers(0, PARTITIONS - 1),
)


def columns_of(rows):
    keys, values, headers, times, partitions = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, BINARY),
            "value": pa.array(values, BINARY),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array(times, pa.int64()),
            "partition": pa.array(partitions, pa.int32()),
        }
    )


def pressed(records, topic="t", bytes_max=1_000_000):
    return list(unpacked(Press(bytes_max).pack(records, topic, lambda _: LIMITS, NOW), topic or ""))


def read_back(batch, sequence=0):
    """The records of one batch, which must be whole and ours."""
    (found,) = MemoryRecords(b"".join(batch.signed(OURS, sequence)))
    assert found.validate_crc()
    assert found.is_transactional
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 3, sequence)
    records = list(found)
    assert [r.offset for r in records] == list(range(batch.count))
    assert found.max_timestamp == max(r.timestamp for r in records)
    return [(r.key, r.value, list(r.headers), r.timestamp) for r in records]


@settings(deadline=None)
@given(rows=st.lists(record, min_size=1, max_size=60), bytes_max=st.integers(100, 3000), skip=st.integers(0, 3))
def test_every_record_is_read_back_in_its_order_from_its_partition(rows, bytes_max, skip):
    # Where a record goes that has neither key nor partition is nobody's business.
    rows = [(*row[:4], 0 if row[0] is None else row[4]) for row in [*rows[:1] * skip, *rows]]
    batches = pressed(columns_of(rows).slice(skip), bytes_max=bytes_max)
    found = {(topic, number): [] for topic in "t" for number in range(PARTITIONS)}
    for batch in batches:
        assert sum(map(len, batch.signed(OURS, 0))) <= bytes_max or batch.count == 1
        found[batch.place] += read_back(batch)
    wanted = {place: [] for place in found}
    for key, value, headers, time, partition in rows[skip:]:
        chosen = (murmur2(key) & 0x7FFFFFFF) % PARTITIONS if partition is None else partition
        told = [(each["key"], each["value"]) for each in headers or ()]
        wanted["t", chosen].append((key, value, told, NOW if time is None else time))
    assert found == wanted


def test_records_of_several_topics_are_batches_of_their_own():
    topics = pa.array(["a", "b", "a", "c"]).dictionary_encode().cast(TOPICS)
    values = pa.array([b"1", b"2", b"3", b"4"], BINARY)
    batches = pressed(pa.record_batch({"topic": topics, "key": values, "value": values}).slice(0, 3), topic=None)
    found = {}
    for batch in batches:
        found.setdefault(batch.place[0], []).extend(value for _, value, _, _ in read_back(batch))
    assert {topic: sorted(values) for topic, values in found.items()} == {"a": [b"1", b"3"], "b": [b"2"]}


def test_a_topic_that_no_record_names_is_not_asked_for():
    topics = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), pa.array(["gone", "there"])).cast(TOPICS)
    values = pa.array([b"1", b"2"], BINARY)
    asked = []

    def limits(topic):
        asked.append(topic)
        return LIMITS

    Press(1000).pack(pa.record_batch({"topic": topics, "key": values, "value": values}), None, limits, NOW)
    assert asked == ["there"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50))
def test_a_key_has_the_partition_of_a_java_producer(keys):
    counts = pa.array([7] * len(keys)).to_numpy()
    assert partitions_of(pa.array(keys, BINARY), counts, NOW).tolist() == [(murmur2(k) & 0x7FFFFFFF) % 7 for k in keys]


def test_records_without_a_key_are_spread_evenly():
    counts = pa.array([4] * 100).to_numpy()
    found = partitions_of(pa.nulls(100, BINARY), counts, NOW).tolist()
    assert [found.count(number) for number in range(4)] == [25] * 4


def test_a_record_without_a_key_that_comes_alone_does_not_always_go_to_the_same_partition():
    found = [partitions_of(pa.nulls(1, BINARY), pa.array([4]).to_numpy(), NOW + ms).item() for ms in range(100)]
    assert [found.count(number) for number in range(4)] == [25] * 4


def test_one_record_that_is_larger_than_a_batch_goes_alone():
    values = pa.array([b"a", b"x" * 5000, b"b"], BINARY)
    records = pa.record_batch({"key": pa.array([b"k"] * 3, BINARY), "value": values})
    assert [batch.count for batch in pressed(records, bytes_max=1000)] == [1, 1, 1]


@pytest.mark.parametrize("sequence", [0, 5, SEQUENCES - 1])
def test_a_batch_says_how_many_came_before(sequence):
    records = pa.record_batch({"key": pa.array([b"k"], BINARY), "value": pa.array([b"v"], BINARY)})
    (batch,) = pressed(records)
    assert read_back(batch, sequence) == [(b"k", b"v", [], NOW)]


def test_without_a_transactional_id_a_batch_is_of_no_transaction():
    records = pa.record_batch({"key": pa.array([b"k"], BINARY), "value": pa.array([b"v"], BINARY)})
    (batch,) = pressed(records)
    (found,) = MemoryRecords(b"".join(batch.signed(Handle("", 7, 3), 0)))
    assert not found.is_transactional


def test_a_topic_that_takes_less_at_once_gets_smaller_batches_than_its_neighbour():
    topics = pa.array(["narrow", "wide"] * 50).dictionary_encode().cast(TOPICS)
    values = pa.array([b"x" * 100] * 100, BINARY)
    records = pa.record_batch({"topic": topics, "key": pa.array([b"k"] * 100, BINARY), "value": values})
    taken = {"narrow": 500, "wide": 5000}
    packed = Press(3000).pack(records, None, lambda topic: Limits(1, taken[topic]), NOW)
    most = dict.fromkeys(taken, 0)
    for batch in unpacked(packed, ""):
        most[batch.place[0]] = max(most[batch.place[0]], sum(map(len, batch.signed(OURS, 0))))
    assert 300 < most["narrow"] <= 500
    assert 2000 < most["wide"] <= 3000


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_packed_is_read_from_any_slice_of_it(codec):
    values = [b"%d" % n * 40 for n in range(100)]
    records = pa.record_batch({"key": pa.nulls(100, BINARY), "value": pa.array(values, BINARY)})
    packed = Press(1000, codec).pack(records, "t", lambda _: LIMITS, NOW)
    whole = [b"".join(batch.signed(OURS, 0)) for batch in unpacked(packed, "t")]
    assert len(whole) > 5
    assert [
        b"".join(b.signed(OURS, 0)) for at in range(len(whole)) for b in unpacked(packed.slice(at, 1), "t")
    ] == whole


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 2000, 200_000])
def test_compression_makes_no_batch_larger(codec, size):
    """Limits are kept for records as they are, and what looks random grows."""
    values = [os.urandom(size), b"x" * size]
    records = pa.record_batch({"key": pa.nulls(2, BINARY), "value": pa.array(values, BINARY)})
    plain, pressed = (
        list(unpacked(Press(size, each).pack(records, "t", lambda _: Limits(1, 1 << 20), NOW), "t"))
        for each in ("none", codec)
    )
    assert all(len(after.records) <= len(before.records) for before, after in zip(plain, pressed, strict=True))
    assert (pressed[0].codec, read_back(pressed[0])[0][1]) == (CODECS["none"], values[0])
    assert pressed[1].codec == (CODECS[codec] if size > 1 else CODECS["none"])


def test_pandas_is_not_needed():
    """Its import would cost every worker half a second."""
    code = (
        "import sys, numpy as np, pyarrow as pa\n"
        "from pakka.sinks._kafka_batch import Press, unpacked\n"
        "from pakka.sinks._kafka_limit import Limits\n"
        "from pakka.sinks._numpy import text_of\n"
        "records = pa.RecordBatch.from_arrays([text_of(b'k', b'l'), text_of(b'v', b'w')], ['key', 'value'])\n"
        "assert len(list(unpacked(Press(1000).pack(records, 't', lambda _: Limits(1, 1000), 0), 't'))) == 1\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
