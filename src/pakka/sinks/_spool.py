"""The spool: a slot's rows in one checked file, out of sight until the commit.

The file is an Arrow IPC stream in the slot's directory of the staging area. Its size and a digest stand in the prepared
record, so a torn, altered or replaced file is found before one row of it reaches a sink. What is spooled may stand for several rows: the
schema says so (`ROWS`).

Measured with a million rows of 8 columns, 96 MB in memory: LZ4 halves the file (47 MB) and costs about 0.05 s more in
all than none on a fast local disk, which any slower disk gives back; zstd makes it a third (30 MB) for twice the time.
SHA-256 is 0.03 s of that, BLAKE2b twice as much, CRC-32 half as much: a difference that cannot be felt. With a gigabyte of
records that go as they are it can, in the task and again in the driver: 1.3 s against 0.1 s of CRC-32C, which a processor has an instruction for.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pakka.errors import BugError, FencedError, SchemaError, SinkError
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared
from pakka.sinks._staging import Staging, begin_sync, refusal

SPOOL_BYTES_MAX = 16 << 30
"""What one slot may spool: some 350 million rows of 8 columns, far above a healthy epoch. It is there for the epoch in
which a source sends all it ever had, so that the error names the reason, and not a full disk somewhere else."""

ROWS = b"pakka.rows"
"""In the metadata of a spooled schema, the column that says for how many rows each of its own stands. Without it that is one."""
CRC32C = "crc32c"
_FILE = "rows.arrow"
_BUFFER_BYTES = 1 << 20
_CLEARER = "pakka-spool-clear"
_SYNC_BYTES = 8 << 20
"""After so many the disk begins, while rows still come. All at the end took 50 to 100 ms for 130 MB, and 1 to 6 ms are left of it."""

Encoder = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Turns rows into the form in which they are spooled, row for row, or refuses them with `SchemaError`."""


def as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The encoder that changes nothing."""
    return batch


def staging_of(binding: Binding, fence: int) -> Staging:
    """Where a spooled sink stages: a directory of its own in the pipeline's spool."""
    return Staging(Path(binding.spool) / f"{binding.pipeline}.{binding.sink}", binding, fence)


@contextmanager
def spool_errors(staging: Staging) -> Iterator[None]:
    """Turn what the file system says into what a user can act on. A path that a newer fence has moved is `FencedError`."""
    try:
        with staging.fenced():
            yield
    except OSError as error:
        raise refusal(staging.binding, "nothing was made visible", staging.path, error) from error


def clear(staging: Staging, slot: Slot) -> None:
    """Remove a slot whose rows are visible. The system takes back the pages of a large file when the last who has it open lets go, a quarter of a
    second a gigabyte, and does that beside what follows.
    """
    held = _held(staging.attempt(slot) / _FILE)
    try:
        staging.remove(slot)
    except OSError:
        # A network file system keeps a name for what is open, and the directory with it.
        if held is None:
            raise
        os.close(held)
        held = None
        staging.remove(slot)
    finally:
        if held is not None:
            _let_go(held)


def _held(path: Path) -> int | None:
    """A file that is worth it, held open. None: it is small or not there, or it cannot be opened, which removing does not need."""
    with suppress(OSError):
        if path.stat().st_size >= _SYNC_BYTES:
            return os.open(path, os.O_RDONLY)
    return None


def _let_go(held: int) -> None:
    try:
        threading.Thread(target=os.close, args=(held,), name=_CLEARER).start()
    except RuntimeError:  # no more threads are to be had
        os.close(held)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows. Made from nulls, because arrays of Python values have Arrow import pandas, for half a second."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _rows(batch: pa.RecordBatch) -> int:
    """How many rows a spooled batch stands for."""
    column = (batch.schema.metadata or {}).get(ROWS)
    # An array's own sum: it imports Arrow's functions when it is called, and an audit of SQLite never waits for that.
    return batch.num_rows if column is None else int(batch.column(column.decode()).sum().as_py() or 0)


class SpoolWriter:
    """Writes one attempt at one slot to its file in the spool."""

    def __init__(
        self,
        staging: Staging,
        slot: Slot,
        schema: pa.Schema,
        encode: Encoder,
        bytes_max: int,
        codec: str | None = "lz4",
        digest: str = "sha256",
    ) -> None:
        self.staging = staging
        self.slot = slot
        self.encode = encode
        self.rows = 0
        # Encoding no rows tells the schema, and refuses what cannot be stored before anything is staged.
        spooled = encode(no_rows(schema)).schema
        # Spark's batches do not always keep the nullability that was announced, and a stream has one schema.
        self.schema = pa.schema([field.with_nullable(True) for field in spooled], metadata=spooled.metadata)
        with spool_errors(staging):
            self._file = _CheckedFile(staging.begin(slot) / _FILE, slot, bytes_max, digest)
            self._stream = pa.ipc.new_stream(self._file, self.schema, options=pa.ipc.IpcWriteOptions(compression=codec))

    def write(self, batch: pa.RecordBatch) -> None:
        rows = self.encode(batch)
        if rows.num_rows != batch.num_rows:
            raise BugError(
                f"{self.staging.binding}: its encoder made {rows.num_rows} rows of {batch.num_rows}; nothing was prepared"
            )
        if (rows.schema.names, rows.schema.types) != (self.schema.names, self.schema.types):
            raise SchemaError(
                f"{self.staging.binding}: rows of epoch {self.slot.epoch} have columns {_words(rows.schema)}, where "
                f"{_words(self.schema)} were announced; nothing was prepared",
                hint="every batch of a slot must have the columns that its writer was opened with",
            )
        rows = pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)
        self._check(rows)
        with spool_errors(self.staging):
            self._stream.write_batch(rows)
        self.rows += _rows(rows)

    def prepare(self, checksum: str) -> Prepared:
        with spool_errors(self.staging):
            if not self.rows:
                # Most slots of a small epoch are empty. They leave no file, so nothing has to be synced for them.
                self._close()
                self.staging.remove(self.slot)
                return Prepared(self.slot, 0, checksum)
            self._stream.close()
            self._file.sync()
            self.staging.finish(self.slot)
        detail = {"file": _FILE, "bytes": self._file.bytes, "digest": self._file.digest}
        return Prepared(self.slot, self.rows, checksum, detail)

    def discard(self) -> None:
        self._close()
        # Once a newer driver has raised its fence, what lies here is its litter, and it sweeps.
        with spool_errors(self.staging), suppress(FencedError):
            self.staging.remove(self.slot)

    def _close(self) -> None:
        # The stream is not closed: that would write its end, and fail again on a disk that is full.
        self._file.abandon()

    def _check(self, rows: pa.RecordBatch) -> None:
        """Text that is not UTF-8 passes through Spark and Arrow unnoticed, and would break the commit."""
        for field, column in zip(rows.schema, rows.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SchemaError(
                    f"{self.staging.binding}: column `{field.name}` ({field.type}) of epoch {self.slot.epoch} is malformed: "
                    f"{error}; nothing was prepared",
                    hint="if the column holds bytes, cast it to BINARY, not to STRING",
                ) from error


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {field.type}" for field in schema)


def _hash(kind: str) -> Any:
    if kind == CRC32C:
        # Who asks for it has it. It is not among what every sink needs.
        from crc32c import CRC32CHash

        return CRC32CHash()
    return hashlib.new(kind)


class _CheckedFile:
    """A file that Arrow writes to: counts and digests the very bytes on their way, and keeps the bound."""

    def __init__(self, path: Path, slot: Slot, bytes_max: int, digest: str) -> None:
        self.file = io.BufferedWriter(io.FileIO(path, "x"), _BUFFER_BYTES)
        self.slot = slot
        self.bytes = 0
        self.begun = 0
        """What the disk was told to take."""
        self.bytes_max = bytes_max
        self._hash = _hash(digest)

    @property
    def digest(self) -> str:
        return f"{self._hash.name}:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        if self.bytes > self.bytes_max:
            raise SinkError(
                f"sink `{self.slot.pipeline}.{self.slot.sink}`: slot {self.slot.number} of epoch {self.slot.epoch} needs more "
                f"than {self.bytes_max} bytes of spool; nothing was made visible",
                hint="take less in one epoch (`max_files_per_epoch` of the source), use more `slots`, or raise "
                "`spool_bytes_max` of this sink",
            )
        self._hash.update(data)
        written = self.file.write(data)
        if self.bytes - self.begun >= _SYNC_BYTES:
            self.file.flush()
            begin_sync(self.file.fileno(), self.begun, self.bytes - self.begun)
            self.begun = self.bytes
        return written

    def sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def abandon(self) -> None:
        """Close without a word: what could not be written is being thrown away."""
        with suppress(OSError):
            self.file.close()

    # What Arrow asks of a file beside `write`. It must not close the file before it is synced.
    closed = False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _Stamp(NamedTuple):
    """Which file, and which state of it, was verified."""

    device: int
    inode: int
    size: int
    changed_ns: int


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return _Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


class SpoolReader:
    """The spooled rows of an epoch's slots, in slot order. `verify` first: it looks at every byte before any row is read."""

    def __init__(self, staging: Staging, prepared: Sequence[Prepared]) -> None:
        self.staging = staging
        self.records = sorted((p for p in prepared if p.rows), key=lambda p: p.slot.number)
        self._seen: dict[Slot, _Stamp] = {}

    def verify(self) -> str | None:
        """Why these records can no longer be committed, naming the file; None if each is what its writer prepared."""
        # A digest is made of a file outside of Python's lock, so several are made at once.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return next(filter(None, pool.map(self._trouble, self.records)), None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every row, one file open at a time, nothing in memory but the batch at hand."""
        for record in self.records:
            path = self._path(record)
            with spool_errors(self.staging), pa.memory_map(str(path)) as file:
                if _stamp(path) != self._seen[record.slot]:
                    raise SinkError(
                        f"{self.staging.binding}: {path} was changed while it was read; nothing was committed"
                    )
                left = record.rows
                for batch in pa.ipc.open_stream(file):
                    left -= _rows(batch)
                    yield batch
            if left:
                raise BugError(
                    f"{self.staging.binding}: {path} does not hold {record.rows} rows; nothing was committed"
                )

    def _trouble(self, record: Prepared) -> str | None:
        with spool_errors(self.staging):
            try:
                with self.staging.fenced():
                    return self._look(record)
            except FileNotFoundError:
                return f"{self._path(record)} is gone"

    def _look(self, record: Prepared) -> str | None:
        path = self._path(record)
        self._seen[record.slot] = stamp = _stamp(path)
        if stamp.size != record.detail["bytes"]:
            return f"{path} has {stamp.size} bytes, and {record.detail['bytes']} were prepared"
        kind, _, _ = str(record.detail["digest"]).partition(":")
        with open(path, "rb") as file:
            digest = f"{kind}:{hashlib.file_digest(file, lambda: _hash(kind)).hexdigest()}"
        if digest != record.detail["digest"]:
            return (
                f"{path} is not what was prepared: its digest is {digest}, and {record.detail['digest']} was prepared"
            )
        return None

    def _path(self, record: Prepared) -> Path:
        return self.staging.attempt(record.slot) / str(record.detail["file"])
