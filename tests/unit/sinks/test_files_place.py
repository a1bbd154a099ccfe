"""Places where an output cannot be: said before anything is written, in words that tell what to do."""

import os
import subprocess
import tempfile
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pakka.errors import ConfigError, PakkaError, SinkError
from pakka.model.outcome import Kind
from pakka.sinks.files import ParquetSink
from tests.unit.sinks.files_kit import BINDING, Driver, epoch, expected_ids, ids, output, staged

NOBODY = 65534


def listing(path):
    return sorted(str(p.relative_to(path)) for p in Path(path).rglob("*"))


def as_an_ordinary_user(work):
    """What `work` returned, or the error it raised, in a child process that is not root."""
    context = get_context("fork")
    answers = context.Queue()

    def child():
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            answers.put(work())
        except PakkaError as error:
            answers.put(error)

    process = context.Process(target=child)
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    return answer


@pytest.fixture
def open_place():
    """A directory that every user may enter; pytest's own are for one user."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_a_directory_without_the_right_to_write_is_refused(open_place):
    (open_place / "locked").mkdir(mode=0o555)
    sink = ParquetSink(str(open_place / "locked" / "deep" / "refunds"))
    error = as_an_ordinary_user(lambda: sink.open_committer(BINDING, 1).raise_fence())
    assert isinstance(error, SinkError)
    assert error.message == f"sink `refunds.out`: {open_place}/locked: Permission denied; nothing was written"
    assert "write there" in error.hint
    assert listing(open_place) == ["locked"]


def test_an_output_without_the_right_to_write_is_refused(open_place):
    (open_place / "free").mkdir()
    os.chmod(open_place / "free", 0o777)
    (open_place / "free" / "refunds").mkdir(mode=0o555)
    sink = ParquetSink(str(open_place / "free" / "refunds"))
    error = as_an_ordinary_user(lambda: sink.open_committer(BINDING, 1))
    assert isinstance(error, SinkError)
    assert listing(open_place) == ["free", "free/refunds"]


def test_an_output_whose_neighbourhood_is_locked_is_refused(open_place):
    """The staging area stands beside the output, so rights on the output alone are not enough."""
    (open_place / "refunds").mkdir()
    os.chmod(open_place / "refunds", 0o777)
    error = as_an_ordinary_user(lambda: ParquetSink(str(open_place / "refunds")).open_committer(BINDING, 1))
    assert isinstance(error, SinkError)
    assert f"{open_place}: Permission denied; the staging area of" in error.message
    assert listing(open_place) == ["refunds"]


@pytest.mark.parametrize("path", ["file", "file/refunds"])
def test_a_file_in_the_way_is_refused(tmp_path, path):
    (tmp_path / "file").write_text("mine")
    sink = ParquetSink(str(tmp_path / path))
    with pytest.raises(SinkError, match="file is a file; nothing was written"):
        sink.open_committer(BINDING, 1)
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("path", ["", "/", "s3://bucket/refunds", "hdfs:///refunds"])
def test_a_path_that_is_no_directory_here_is_refused(path):
    with pytest.raises(ConfigError, match="path"):
        ParquetSink(path)


def test_a_file_url_is_a_path(tmp_path):
    assert ParquetSink(f"file://{tmp_path}/out").target() == f"{tmp_path}/out"


def test_an_executor_that_does_not_see_the_directory_says_so(tmp_path):
    driver = Driver(ParquetSink(str(tmp_path / "out")), 1, raised=False)
    with pytest.raises(SinkError, match="fence 1 does not stand") as caught:
        driver.writer(0)
    assert "every executor must see the same directory" in caught.value.hint


# Small disks and mounts. They need root; where there is none the tests say so, and in CI there must be.


def mount(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to mount: {done.stderr}")
    pytest.skip(f"needs the right to mount a file system: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", path)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def wide(rows=300_000):
    return pa.table({"id": np.arange(rows), "noise": np.random.default_rng(7).random(rows)})


def fill(disk):
    """Leave no room for one more byte."""
    with open(disk / "filler", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return disk / "filler"


def test_a_full_disk_while_staging_leaves_nothing_and_says_what_to_do(disk):
    driver = Driver(ParquetSink(str(disk / "refunds")), 1)
    rows = wide()
    writer = driver.writer(0, schema=rows.schema)
    for batch in rows.to_batches(max_chunksize=10_000):
        writer.write(batch)
    with pytest.raises(SinkError, match="No space left on device; epoch 0 is not prepared") as caught:
        writer.prepare("00")
    assert "make room" in caught.value.hint
    writer.discard()
    writer.discard()
    assert staged(driver.sink) == []
    driver.deliver(0)
    assert ids(driver.sink) == expected_ids(0)


def test_a_disk_that_fills_up_before_the_commit_only_delays_it(disk):
    driver = Driver(ParquetSink(str(disk / "refunds")), 1)
    prepared = driver.prepare(0, 2)
    filler = fill(disk)
    with pytest.raises(SinkError, match="epoch 0 is decided and not published yet"):
        driver.commit(0, prepared)
    assert ids(driver.sink) == {}
    filler.unlink()
    assert driver.commit(0, prepared).kind is Kind.COMMITTED
    assert ids(driver.sink) == expected_ids(0, 2)
    assert staged(driver.sink) == []


def test_a_mount_point_is_refused_before_anything_is_written(disk):
    with pytest.raises(SinkError, match="is a mount point") as caught:
        ParquetSink(str(disk)).open_committer(BINDING, 1)
    assert str(disk / "data") in caught.value.hint
    assert listing(disk) == []
    Driver(ParquetSink(str(disk / "data")), 1).deliver(0)


def test_a_mount_that_looks_like_the_same_file_system_is_found_by_trying(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "bound").mkdir()
    mount("--bind", tmp_path / "real", tmp_path / "bound")
    try:
        committer = ParquetSink(str(tmp_path / "bound")).open_committer(BINDING, 1)
        with pytest.raises(SinkError, match="is a mount point"):
            committer.raise_fence()
        assert listing(tmp_path / "real") == []
    finally:
        subprocess.run(["umount", "-l", tmp_path / "bound"], check=True)


def test_a_read_only_file_system_is_refused(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount("-t", "tmpfs", "-o", "ro", "tmpfs", path)
    try:
        with pytest.raises(SinkError, match="nothing was written"):
            ParquetSink(str(path / "refunds")).open_committer(BINDING, 1)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_what_an_interrupted_probe_left_does_no_harm(tmp_path):
    sink = ParquetSink(str(tmp_path / "out"))
    Driver(sink, 1).deliver(0)
    (output(sink) / ".pakka_probe").mkdir()
    again = Driver(sink, 2)
    assert sorted(os.listdir(output(sink))) == ["pakka_epoch=0"]
    assert again.committer.ledger().last.epoch == epoch(0)
