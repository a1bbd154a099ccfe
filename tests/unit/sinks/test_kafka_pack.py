"""Rows into batches, some of Spark's at a time: none is lost or counted twice on the way into the spool and out of it."""

from collections import Counter

import pyarrow as pa
import pytest
from kafka.record import MemoryRecords

from pakka.errors import BugError
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.sinks import _kafka_pack
from pakka.sinks._kafka_batch import Handle, Press, unpacked
from pakka.sinks._kafka_limit import Limits
from pakka.sinks._kafka_pack import Packer
from pakka.sinks._kafka_record import Recipe, RecordEncoder
from pakka.sinks._spool import SpoolReader, staging_of
from pakka.sinks.kafka import KafkaSink

OURS = Handle("id", 7, 3)
LIMITS = Limits(3, 1_000_000)


def packer_of(schema, recipe=None, place=""):
    recipe = recipe or Recipe("raw", "t")
    return Packer(RecordEncoder(Binding("refunds", "out", str(place)), recipe, schema, lambda _: LIMITS), Press(5000))


def raw(*values):
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def values_of(packs):
    """Where each value goes."""
    batches = [batch for packed in packs for batch in unpacked(packed, "t")]
    return Counter(
        (batch.place[0], record.value)
        for batch in batches
        for found in MemoryRecords(b"".join(batch.signed(OURS, 0)))
        for record in found
    )


def test_every_row_is_packed_once_however_it_comes(monkeypatch):
    monkeypatch.setattr(_kafka_pack, "_BLOCK_ROWS", 100)
    numbers = [b"%d" % n for n in range(1000)]
    packer = packer_of(raw().schema)
    sizes = (0, 1, 99, 100, 101, 350, 349)
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    parts = [raw(*numbers[at : at + size]) for at, size in zip(starts, sizes, strict=True)]
    packs = [packed for part in parts for packed in packer.take(part)]
    assert 0 < sum(values_of(packs).values()) < 1000
    packs += packer.rest()
    assert values_of(packs) == Counter(("t", number) for number in numbers)
    assert list(packer.rest()) == []


@pytest.mark.parametrize("bound", ["_BLOCK_ROWS", "_BLOCK_BYTES"])
def test_no_more_than_a_block_waits(monkeypatch, bound):
    monkeypatch.setattr(_kafka_pack, bound, 50 if bound == "_BLOCK_ROWS" else 60_000)
    packer, most = packer_of(raw().schema), 0
    for _ in range(20):
        list(packer.take(raw(*[b"x" * 1000] * 10)))
        most = max(most, packer._rows)
    assert 10 < most <= 60


def test_batches_of_new_topics_are_packed_together():
    batches = [pa.record_batch({"to": [f"t{n}", "t0"], "x": [n, n]}) for n in range(4)]
    packer = packer_of(batches[0].schema, Recipe("json", topic_column="to"))
    packs = [packed for batch in batches for packed in packer.take(batch)]
    assert packs == []
    assert values_of(packer.rest()) == Counter((to, b'{"x":%d}' % n) for n in range(4) for to in (f"t{n}", "t0"))


@pytest.fixture
def writer(tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.sinks.kafka.limits_of", lambda *_: LIMITS)
    monkeypatch.setattr(_kafka_pack, "_BLOCK_ROWS", 100)
    binding, slot = Binding("refunds", "out", str(tmp_path)), Slot("refunds", "out", 0, 1, 0, 0)
    staging_of(binding, 1).raise_fence()
    return KafkaSink("nowhere:1", "t", format="raw").open_writer(binding, slot, raw().schema)


def test_the_spool_counts_rows_and_not_batches(writer, tmp_path):
    numbers = [b"%d" % n for n in range(250)]
    for at in range(0, 250, 25):
        writer.write(raw(*numbers[at : at + 25]))
    record = writer.prepare("0" * 16)
    assert record.rows == 250
    reader = SpoolReader(writer.spool.staging, [record])
    assert reader.verify() is None
    assert values_of(reader.batches()) == Counter(("t", number) for number in numbers)


def test_a_spool_that_holds_other_rows_than_were_prepared_is_not_committed(writer):
    writer.write(raw(b"a", b"b"))
    record = writer.prepare("0" * 16)
    reader = SpoolReader(writer.spool.staging, [Prepared(record.slot, 3, record.checksum, record.detail)])
    assert reader.verify() is None
    with pytest.raises(BugError, match="does not hold 3 rows"):
        list(reader.batches())


def test_one_bit_that_changed_in_the_spool_is_found_before_it_is_sent(writer):
    """Signing a batch anew would make its checksum right again, and the broker would take it."""
    writer.write(raw(b"a", b"b"))
    record = writer.prepare("0" * 16)
    path = writer.spool.staging.attempt(record.slot) / record.detail["file"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert record.detail["digest"].startswith("crc32c:")
    assert "is not what was prepared" in SpoolReader(writer.spool.staging, [record]).verify()


def test_what_waits_is_discarded_with_the_attempt(writer):
    writer.write(raw(b"a", b"b"))
    writer.discard()
    assert writer.spool.staging.slots() == []


def test_batches_lie_in_the_spool_as_they_are_sent(writer):
    """They are sent from where they lie, and not unpacked on the way."""
    values = [b"%d" % n * 100 for n in range(50)]
    writer.write(raw(*values))
    record = writer.prepare("0" * 16)
    data = (writer.spool.staging.attempt(record.slot) / record.detail["file"]).read_bytes()
    assert all(value in data for value in values)
