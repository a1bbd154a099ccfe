"""The writer of the file sinks: one attempt's rows, in files of its own in the staging area."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from pakka.errors import FencedError, SchemaError
from pakka.model.id import Slot
from pakka.model.prepared import Prepared
from pakka.points import reach
from pakka.sinks._layout import part_prefix, split
from pakka.sinks._staging import Staging, make_below, refusal
from pakka.sinks._text import NoTextError

# Spark hands over 10,000 rows at a time. Gathered, they make row groups that are written twice as fast and read better.
_GATHER_ROWS = 500_000
_GATHER_BYTES = 64 << 20
_OPEN_FILES_MAX = 256


class Encoder(Protocol):
    """Turns rows into the bytes of one file."""

    def write(self, table: pa.Table) -> None:
        """Append rows."""

    def close(self) -> None:
        """Append what the format needs at its end. The file itself stays open."""


OpenEncoder = Callable[[pa.NativeFile, pa.Schema], Encoder]


class FileWriter:
    """Writes one attempt: gathers rows, splits them by partition, and keeps a bounded number of files open."""

    def __init__(
        self,
        staging: Staging,
        slot: Slot,
        schema: pa.Schema,
        partition_by: Sequence[str],
        extension: str,
        open_encoder: OpenEncoder,
    ) -> None:
        self.staging = staging
        self.slot = slot
        # Spark's "never null" is an optimizer's note, not a promise, and other readers take it for one.
        self.schema = pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
        self.file_schema = pa.schema([field for field in self.schema if field.name not in partition_by])
        self.partition_by = partition_by
        self.extension = extension
        self.open_encoder = open_encoder
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._open: OrderedDict[str, _File] = OrderedDict()
        self._sealed: list[tuple[str, int, int]] = []
        self._count = 0
        self.path = staging.attempt(slot)
        with self._errors():
            staging.begin(slot)
        reach("task.file.begin", slot.epoch)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            rows = self._checked(batch)
            self._gathered.append(rows)
            self._gathered_rows += rows.num_rows
            self._gathered_bytes += rows.nbytes
            # A partition gets only its share of the rows, so there it is memory alone that says stop.
            is_group = not self.partition_by and self._gathered_rows >= _GATHER_ROWS
            if is_group or self._gathered_bytes >= _GATHER_BYTES:
                with self._errors():
                    self._drain()
        reach("task.file.batch", self.slot.epoch)

    def prepare(self, checksum: str) -> Prepared:
        with self._errors():
            self._drain()
            while self._open:
                self._seal_oldest()
            if self._sealed:
                self.staging.finish(self.slot)
            else:
                # Most slots of a small epoch are empty. They leave nothing, so nothing has to be synced for them.
                self.staging.remove(self.slot)
        reach("task.file.prepared", self.slot.epoch)
        rows = sum(rows for _, rows, _ in self._sealed)
        return Prepared(self.slot, rows, checksum, {"files": [list(file) for file in self._sealed]})

    def discard(self) -> None:
        self._gathered.clear()
        while self._open:
            self._open.popitem()[1].abandon()
        # Once a newer driver has raised its fence, what lies here is its litter, and it sweeps.
        with self._errors(), suppress(FencedError):
            self.staging.remove(self.slot)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Refuse what would make a file that readers choke on: it could not be taken back once it is published."""
        what = f"epoch {self.slot.epoch} is not prepared and nothing of it is visible"
        if batch.schema.names != self.schema.names or batch.schema.types != self.schema.types:
            raise SchemaError(
                f"{self.staging.binding}: rows came as {_words(batch.schema)}, and {_words(self.schema)} was declared; {what}"
            )
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{self.staging.binding}: malformed rows: {error}; {what}",
                hint="if a column holds bytes, cast it to BINARY, not to STRING",
            ) from error
        return rows

    def _drain(self) -> None:
        """Write what was gathered."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, self.schema)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        parts = split(table, self.partition_by) if self.partition_by else [("", table)]
        for directory, part in parts:
            try:
                self._file(directory).write(part)
            except NoTextError as error:
                raise SchemaError(
                    f"{self.staging.binding}: column `{error.column}` of epoch {self.slot.epoch} has {error}, for which there is no "
                    "text; the epoch is not prepared and nothing of it is visible",
                    hint="keep such rows out by a rule, or cast the column in `select`",
                ) from error

    def _file(self, directory: str) -> _File:
        """The open file of a partition. Too many partitions at once cost more files, never more memory or handles."""
        file = self._open.get(directory)
        if file is not None:
            self._open.move_to_end(directory)
            return file
        if len(self._open) >= _OPEN_FILES_MAX:
            self._seal_oldest()
        make_below(self.path, directory)
        name = f"{part_prefix(self.slot)}{self._count:04d}.{self.extension}"
        self._count += 1
        file = _File(self.path, os.path.join(directory, name), self.file_schema, self.open_encoder)
        self._open[directory] = file
        return file

    def _seal_oldest(self) -> None:
        directory = next(iter(self._open))
        # Taken out only when it is sealed: if that fails, discard still has to close it.
        self._sealed.append(self._open[directory].seal())
        del self._open[directory]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self.staging.fenced():
                yield
        except OSError as error:
            what = f"epoch {self.slot.epoch} is not prepared and nothing of it is visible"
            raise refusal(self.staging.binding, what, self.path, error) from error


class _File:
    """One open file: the handle is ours, so that it can be synced, and let go of when the encoder fails."""

    def __init__(self, base: Path, name: str, schema: pa.Schema, open_encoder: OpenEncoder) -> None:
        self.name = name
        self.rows = 0
        self.handle = pa.OSFile(str(base / name), "wb")
        self.encoder = open_encoder(self.handle, schema)

    def write(self, table: pa.Table) -> None:
        self.encoder.write(table)
        self.rows += table.num_rows

    def seal(self) -> tuple[str, int, int]:
        """Finish the file and make its contents durable: its name, rows and bytes."""
        self.encoder.close()
        size = self.handle.tell()
        os.fsync(self.handle.fileno())
        self.handle.close()
        return self.name, self.rows, size

    def abandon(self) -> None:
        # The file is about to be removed; a full disk that cannot take its last bytes does not matter any more.
        with suppress(OSError, pa.ArrowException):
            self.encoder.close()
        with suppress(OSError):
            self.handle.close()


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
