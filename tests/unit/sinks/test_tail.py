"""A slot's file is read while it is written: whole batches, each once, and what was read is told from what was prepared."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pakka.model.id import Binding, Slot
from pakka.sinks._spool import CRC32C, FILE, SpoolReader, SpoolWriter, as_it_is, staging_of
from pakka.sinks._tail import Tail

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.large_binary())])
SLOT = Slot("refunds", "out", 0, 1, 0, 0)


def rows(first, count=4, size=1000):
    values = [bytes([n % 256]) * size for n in range(first, first + count)]
    return pa.record_batch([pa.array(range(first, first + count)), pa.array(values, pa.large_binary())], schema=SCHEMA)


def spooled(place, batches):
    """What a writer makes of these batches: the record, and the file."""
    staging = staging_of(Binding("refunds", "out", str(place)), 1)
    staging.raise_fence()
    writer = SpoolWriter(staging, SLOT, SCHEMA, as_it_is, 1 << 30, codec=None, digest=CRC32C)
    for batch in batches:
        writer.write(batch)
    return writer.prepare("0" * 16), staging


@pytest.fixture
def made(tmp_path):
    return spooled(tmp_path, [rows(0), rows(4, size=9000), rows(8)])


@pytest.mark.parametrize("step", [1, 7, 997, 4096, 1 << 20])
def test_whatever_is_there_at_a_look_each_batch_is_read_once_and_whole(made, tmp_path, step):
    record, staging = made
    data = (staging.attempt(SLOT) / FILE).read_bytes()
    path = tmp_path / "growing"
    path.touch()
    tail = Tail(path, CRC32C)
    found = []
    with open(path, "wb", buffering=0) as file:
        for start in range(0, len(data), step):
            assert not tail.is_all_of(record)
            file.write(data[start : start + step])
            found += tail.read()
    assert list(tail.read()) == []
    assert tail.is_all_of(record)
    assert tail.batches == 3
    reader = SpoolReader(staging, [record])
    assert reader.verify() is None
    assert found == list(reader.batches())


def test_what_was_read_stays_when_the_file_is_gone(made):
    _, staging = made
    path = staging.attempt(SLOT) / FILE
    tail = Tail(path, CRC32C)
    batches = list(tail.read())
    path.unlink()
    tail.close()
    assert [batch.column("id")[0].as_py() for batch in batches] == [0, 4, 8]


@pytest.mark.parametrize("at", ["in a row", "in a description", "the end"])
def test_other_bytes_than_were_prepared_are_not_all_of_it(made, at):
    record, staging = made
    path = staging.attempt(SLOT) / FILE
    data = bytearray(path.read_bytes())
    if at == "the end":
        path.write_bytes(data[:-8])
    else:
        place = data.index(b"\x05" * 50) if at == "in a row" else data.index(b"value")
        data[place] ^= 1
        path.write_bytes(data)
    tail = Tail(path, CRC32C)
    list(tail.read())
    assert not tail.is_all_of(record)


def test_a_file_that_is_no_spool_has_no_batches(tmp_path):
    path = tmp_path / "noise"
    path.write_bytes(b"\xff\xff\xff\xff\x40\x00\x00\x00" + b"noise " * 100)
    tail = Tail(path, CRC32C)
    assert list(tail.read()) == []
    assert tail.bytes == 0


def test_a_record_of_no_rows_is_of_no_file(made, tmp_path):
    record, _ = made
    path = tmp_path / "empty"
    path.touch()
    assert not Tail(path, CRC32C).is_all_of(replace(record, rows=0, detail={}))
