"""The spool: rows that wait out of sight, and are what they were or nothing at all."""

import errno
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from pakka.errors import BugError, FencedError, SchemaError, SinkError
from pakka.model.id import Binding, Slot
from pakka.sinks import _spool, _staging
from pakka.sinks._spool import CRC32C, SPOOL_BYTES_MAX, SpoolReader, SpoolWriter, staging_of
from tests.unit.sinks.spooled_kit import SCHEMA, refunds


@pytest.fixture
def binding(tmp_path: Path) -> Binding:
    return Binding("refunds", "audit", str(tmp_path / "spool"))


@pytest.fixture
def staging(binding):
    staging = staging_of(binding, 1)
    staging.raise_fence()
    return staging


def slot(number: int = 0, fence: int = 1, attempt: int = 0) -> Slot:
    return Slot("refunds", "audit", 0, fence, number, attempt)


def writer(
    staging, at: Slot | None = None, encode=lambda batch: batch, bytes_max: int = SPOOL_BYTES_MAX, **options
) -> SpoolWriter:
    return SpoolWriter(staging, at or slot(), SCHEMA, encode, bytes_max, **options)


def prepared(staging, number: int = 0, rows: int = 1000, **options):
    one = writer(staging, slot(number), **options)
    one.write(refunds(0, rows, 10_000 * number))
    return one.prepare("0" * 16)


def file_of(staging, record) -> Path:
    return staging.attempt(record.slot) / record.detail["file"]


def read(staging, records) -> list[dict]:
    reader = SpoolReader(staging, records)
    assert reader.verify() is None
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def test_rows_come_back_as_they_were_in_slot_order(staging):
    records = [prepared(staging, n, 300) for n in (2, 0, 1)]
    wanted = [row for n in range(3) for row in refunds(0, 300, 10_000 * n).to_pylist()]
    assert read(staging, records) == wanted


def test_a_prepared_record_says_how_to_know_the_file_again(staging):
    record = prepared(staging)
    path = file_of(staging, record)
    assert record.rows == 1000
    assert record.detail["bytes"] == path.stat().st_size
    assert record.detail["digest"].startswith("sha256:")


def test_a_record_can_be_finished_under_a_newer_fence(staging, binding):
    record = prepared(staging)
    newer = staging_of(binding, 2)
    newer.raise_fence()
    assert len(read(newer, [record])) == 1000


def test_an_empty_slot_leaves_no_file(staging):
    record = writer(staging).prepare("0" * 16)
    assert (record.rows, dict(record.detail)) == (0, {})
    assert staging.slots() == []
    assert read(staging, [record]) == []


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def tear(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\0" * 8)


def flip(path: Path) -> None:
    """One bit, and the time of the change hidden: only the digest can tell."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(path: Path) -> None:
    other = path.with_name("other")
    with pa.OSFile(str(other), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
        stream.write_batch(refunds(9, 1000))
    os.replace(other, path)


@pytest.mark.parametrize("digest", ["sha256", CRC32C])
@pytest.mark.parametrize("harm", [cut, tear, grow, flip, swap, Path.unlink])
def test_a_harmed_file_is_found_before_any_row_is_read(staging, harm, digest):
    good, bad = prepared(staging, 0, digest=digest), prepared(staging, 1, digest=digest)
    assert SpoolReader(staging, [good, bad]).verify() is None
    harm(file_of(staging, bad))
    trouble = SpoolReader(staging, [good, bad]).verify()
    assert trouble is not None
    assert str(file_of(staging, bad)) in trouble


def test_a_missing_attempt_is_found(staging):
    record = prepared(staging)
    shutil.rmtree(staging.attempt(record.slot))
    assert "is gone" in SpoolReader(staging, [record]).verify()


def test_a_file_changed_after_it_was_verified_is_not_read(staging):
    first, second = prepared(staging, 0), prepared(staging, 1)
    reader = SpoolReader(staging, [first, second])
    assert reader.verify() is None
    batches = reader.batches()
    next(batches)
    swap(file_of(staging, second))
    with pytest.raises(SinkError, match="changed while it was read"):
        list(batches)


def test_a_record_with_another_number_of_rows_is_refused(staging):
    record = prepared(staging)
    object.__setattr__(record, "rows", 999)
    reader = SpoolReader(staging, [record])
    assert reader.verify() is None
    with pytest.raises(BugError, match="does not hold 999 rows"):
        list(reader.batches())


def test_reading_is_refused_once_a_newer_fence_stands(staging, binding):
    record = prepared(staging)
    staging_of(binding, 2).raise_fence()
    with pytest.raises(FencedError):
        SpoolReader(staging, [record]).verify()


def test_an_older_fence_cannot_begin(staging, binding):
    staging_of(binding, 2).raise_fence()
    with pytest.raises(FencedError):
        writer(staging)


@pytest.mark.parametrize("rows", [0, 10])
def test_an_older_fence_cannot_prepare(staging, binding, rows):
    late = writer(staging)
    if rows:
        late.write(refunds(0, rows))
    staging_of(binding, 2).raise_fence()
    with pytest.raises(FencedError):
        late.prepare("0" * 16)
    late.discard()


def test_discard_removes_what_was_staged_at_any_time_and_again(staging):
    for rows, is_prepared in ((0, False), (10, False), (10, True), (0, True)):
        one = writer(staging)
        if rows:
            one.write(refunds(0, rows))
        if is_prepared:
            one.prepare("0" * 16)
        one.discard()
        one.discard()
        assert staging.slots() == []


def test_an_executor_that_sees_no_spool_says_so(binding):
    with pytest.raises(SinkError, match="fence 1 does not stand") as caught:
        writer(staging_of(binding, 1))
    assert "every executor must see the same directory" in caught.value.hint


def test_a_slot_may_not_outgrow_its_bound(staging):
    bounded = writer(staging, bytes_max=20_000)
    bounded.write(refunds(0, 1000))
    with pytest.raises(SinkError, match="more than 20000 bytes of spool") as caught:
        bounded.write(refunds(0, 10_000, 1000))
    assert "spool_bytes_max" in caught.value.hint
    bounded.discard()
    assert staging.slots() == []


def test_a_full_disk_is_a_sink_error_and_leaves_nothing(staging, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = writer(staging)
    one.write(refunds(0, 10))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SinkError, match="No space left on device") as caught:
        one.prepare("0" * 16)
    assert "make room" in caught.value.hint
    one.discard()
    assert staging.slots() == []


def test_a_disk_that_fills_while_rows_are_written_is_a_sink_error(staging, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = writer(staging)
    monkeypatch.setattr(_spool._CheckedFile, "write", full)
    with pytest.raises(SinkError, match="No space left on device"):
        one.write(refunds(0, 10))
    one.discard()
    assert staging.slots() == []


def test_text_that_is_not_utf8_is_refused_before_it_can_break_the_commit(staging):
    offsets = pa.py_buffer(b"\0\0\0\0\2\0\0\0")
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    batch = pa.record_batch([broken, pa.array(["m"]), pa.array([1])], schema=SCHEMA)
    with pytest.raises(SchemaError, match="column `refund_id`"):
        writer(staging).write(batch)


def test_nullability_that_differs_from_what_was_announced_is_no_obstacle(staging):
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    one = SpoolWriter(staging, slot(), strict, lambda batch: batch, SPOOL_BYTES_MAX)
    one.write(refunds(0, 5))
    assert len(read(staging, [one.prepare("0" * 16)])) == 5


def test_columns_that_differ_from_what_was_announced_are_refused(staging):
    with pytest.raises(SchemaError, match="have columns `refund_id` string, `merchant` string, where"):
        writer(staging).write(refunds(0, 5).select(["refund_id", "merchant"]))


def test_an_encoder_may_not_lose_rows(staging):
    with pytest.raises(BugError, match="made 2 rows of 10"):
        writer(staging, encode=lambda batch: batch.slice(0, 2)).write(refunds(0, 10))


def test_an_encoder_that_refuses_leaves_nothing_staged(staging):
    def refuse(batch):
        raise SchemaError("no")

    with pytest.raises(SchemaError):
        writer(staging, encode=refuse)
    assert staging.slots() == []


def test_an_attempt_is_begun_once(staging):
    writer(staging)
    with pytest.raises(SinkError, match="was begun before"):
        writer(staging)


@pytest.mark.parametrize("is_linux", [True, False])
def test_the_disk_begins_before_the_last_row_and_all_of_it_is_synced_in_the_end(staging, monkeypatch, is_linux):
    begun, synced = [], []
    monkeypatch.setattr(_spool, "_SYNC_BYTES", 10_000)

    def begin(fd, start, size, flags):
        assert os.fstat(fd).st_size >= start + size
        begun.append((start, size))

    monkeypatch.setattr(_staging, "_sync_file_range", begin if is_linux else None)
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    one = writer(staging, codec=None)
    for _ in range(20):
        one.write(refunds(0, 1000))
    assert bool(begun) is is_linux
    record = one.prepare("0" * 16)
    assert str(file_of(staging, record)) in synced
    # One piece behind the other.
    assert [start for start, _ in begun] == [sum(size for _, size in begun[:n]) for n in range(len(begun))]
    assert sum(size for _, size in begun) <= record.detail["bytes"]
    assert len(read(staging, [record])) == 20_000


def test_a_committed_slot_is_gone_at_once_and_its_file_is_closed_beside(staging, monkeypatch):
    record = prepared(staging)
    path = file_of(staging, record)
    held, closing = threading.Event(), os.close

    def close(fd):
        if threading.current_thread() is not threading.main_thread():
            held.wait(30)
        closing(fd)

    monkeypatch.setattr(_spool, "_SYNC_BYTES", 1)
    monkeypatch.setattr(os, "close", close)
    _spool.clear(staging, record.slot)
    assert not path.parent.exists()
    assert staging.slots() == []
    assert f"{path} (deleted)" in open_files()
    held.set()
    for thread in [t for t in threading.enumerate() if t.name == _spool._CLEARER]:
        thread.join(30)
    assert f"{path} (deleted)" not in open_files()


def test_what_a_network_file_system_keeps_for_who_has_it_open_is_removed_all_the_same(staging, monkeypatch):
    record = prepared(staging)
    path = file_of(staging, record)
    monkeypatch.setattr(_spool, "_SYNC_BYTES", 1)
    rmtree, tries = shutil.rmtree, []

    def nfs(directory):
        tries.append(directory)
        if str(path) in open_files():
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(directory))
        rmtree(directory)

    monkeypatch.setattr(shutil, "rmtree", nfs)
    _spool.clear(staging, record.slot)
    assert tries == [path.parent] * 2
    assert not path.parent.exists()


def test_a_slot_is_cleared_without_a_thread_too(staging, monkeypatch):
    record = prepared(staging)
    monkeypatch.setattr(_spool, "_SYNC_BYTES", 1)

    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    _spool.clear(staging, record.slot)
    assert staging.slots() == []
    assert not [name for name in open_files() if name.endswith("rows.arrow (deleted)")]


def test_a_file_that_cannot_be_read_is_cleared_too(staging, monkeypatch):
    record = prepared(staging)
    monkeypatch.setattr(_spool, "_SYNC_BYTES", 1)

    def denied(path, flags, *more, **options):
        if str(path).endswith("rows.arrow"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *more, **options)

    opened = os.open
    monkeypatch.setattr(os, "open", denied)
    _spool.clear(staging, record.slot)
    assert staging.slots() == []


def test_linux_takes_the_call_that_has_the_disk_begin(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.write(b"x" * 10_000)
        file.flush()
        assert _staging._sync_file_range(file.fileno(), 0, 10_000, _staging._SYNC_FILE_RANGE_WRITE) == 0


def open_files():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found


def test_a_slot_without_rows_is_cleared_too(staging):
    one = writer(staging)
    record = one.prepare("0" * 16)
    _spool.clear(staging, record.slot)
    assert staging.slots() == []
