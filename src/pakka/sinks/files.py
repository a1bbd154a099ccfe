"""Parquet, JSON and CSV files in a directory that any reader can read as it is.

Each epoch is one directory, `pakka_epoch=N`, and becomes visible by one rename; see `pakka.sinks._publish`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pakka.contract.audit import Probe, Scratch
from pakka.durability import case_probe, one_file_system_probe, place_probes, rename_probe
from pakka.errors import ConfigError, SchemaError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.word import check_words
from pakka.sinks import _text
from pakka.sinks._files import Encoder, FileWriter
from pakka.sinks._layout import check_columns
from pakka.sinks._publish import Publisher, check_place
from pakka.sinks._staging import Staging

# Columns of mostly different values fill their dictionary and are then written plainly. With pyarrow's limit of 1 MB
# that happens late in every row group, and costs half the speed of the whole file; low-cardinality columns never get there.
_DICTIONARY_BYTES = 128 << 10
# Text is made from so many rows at a time: enough for Arrow, and small beside the rows that are gathered.
_TEXT_ROWS = 64 << 10


@dataclass(frozen=True)
class FileSink(ABC):
    """What the file sinks share: where the files go, and how an epoch of them becomes visible."""

    path: str
    """The directory that readers read. Relative to where the pipeline is started; made if it is not there."""
    partition_by: tuple[str, ...] = ()
    """Columns that become directories, `day=2026-01-31`, as in Hive and Spark; they are not in the files themselves."""

    def __post_init__(self) -> None:
        check_words(self._extension, self)
        scheme, separator, rest = self.path.partition("://")
        if separator and scheme != "file":
            raise ConfigError(
                f"path `{self.path}` is on {scheme}, and file sinks write to local and mounted file systems",
                hint="give a directory",
            )
        path = os.path.expanduser(rest if separator else self.path)
        if not path or not Path(os.path.abspath(path)).name:
            raise ConfigError(
                f"path `{self.path}` is no directory that could be made", hint="give it a name: `path: out/rows`"
            )
        # The sink travels to executors, whose working directory is another one.
        object.__setattr__(self, "path", os.path.abspath(path))

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(
            Level.EXACTLY_ONCE,
            Way.PUBLISHED,
            "files are staged out of sight and synced; an epoch and its ledger entry become visible by one rename of one "
            "directory, which fails if the epoch is there or the fence was raised",
        )

    def target(self) -> str:
        """With links resolved, so that one directory has one name and its staging area is on the same file system."""
        return os.path.realpath(self.path)

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> FileWriter:
        check_columns(binding, schema, self.partition_by)
        self._check_types(binding, schema)
        staging = self._staging(binding, slot.fence)
        return FileWriter(staging, slot, schema, self.partition_by, self._extension, self._open_encoder)

    def open_committer(self, binding: Binding, fence: int) -> Publisher:
        path = Path(self.target())
        check_place(binding, path)
        return Publisher(path, self._staging(binding, fence))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`parquet:out/refunds`, for an audit."""
        return cls(url.partition(":")[2])

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._files_scratch import FileScratch

        return FileScratch.of(self, token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._files_scratch import FileScratch

        return FileScratch.tokens(self)

    def probes(self) -> Sequence[Probe]:
        path = Path(self.target())
        return (
            *place_probes(path),
            rename_probe(path),
            one_file_system_probe(path),
            case_probe(path, bool(self.partition_by)),
        )

    def _staging(self, binding: Binding, fence: int) -> Staging:
        # Beside the output and not in it: DuckDB's `**` looks into hidden directories too.
        path = Path(self.target())
        return Staging(path.with_name(f".{path.name}.pakka"), binding, fence)

    @property
    @abstractmethod
    def _extension(self) -> str:
        """How the names of the files end."""

    @abstractmethod
    def _check_types(self, binding: Binding, schema: pa.Schema) -> None:
        """Refuse a column that the format has no place for."""

    @abstractmethod
    def _open_encoder(self, file: pa.NativeFile, schema: pa.Schema) -> Encoder:
        """Begin a file."""


@dataclass(frozen=True)
class ParquetSink(FileSink):
    """Parquet files, one a slot and partition."""

    compression: Literal["snappy", "zstd", "gzip", "lz4", "none"] = "snappy"
    """`snappy` is the fastest, and what Spark writes; `zstd` makes files about a third smaller for a fifth less speed."""

    @property
    def _extension(self) -> str:
        return "parquet"

    def _check_types(self, binding: Binding, schema: pa.Schema) -> None:
        for field in schema:
            try:
                pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
            except pa.ArrowNotImplementedError as error:
                raise _no_place(binding, field, "Parquet") from error

    def _open_encoder(self, file: pa.NativeFile, schema: pa.Schema) -> Encoder:
        writer: Encoder = pq.ParquetWriter(
            file, schema, compression=self.compression, dictionary_pagesize_limit=_DICTIONARY_BYTES
        )
        return writer


@dataclass(frozen=True)
class JsonSink(FileSink):
    """Newline-delimited JSON: one object a row, nulls included. Bytes are base64, NaN and infinities are strings, as in Spark."""

    @property
    def _extension(self) -> str:
        return "json"

    def _check_types(self, binding: Binding, schema: pa.Schema) -> None:
        _check_text(binding, schema, "JSON")

    def _open_encoder(self, file: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _JsonEncoder(file)


@dataclass(frozen=True)
class CsvSink(FileSink):
    """CSV by RFC 4180: text is quoted, a null is nothing at all, and nested columns are JSON."""

    header: bool = True
    """Write the column names as the first line of every file."""
    delimiter: str = ","
    """One character between two values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ConfigError(
                f"delimiter {self.delimiter!r} is not one character that may stand between values",
                hint="use `,`, `;`, `|` or a tab",
            )

    @property
    def _extension(self) -> str:
        return "csv"

    def _check_types(self, binding: Binding, schema: pa.Schema) -> None:
        _check_text(binding, schema, "CSV")

    def _open_encoder(self, file: pa.NativeFile, schema: pa.Schema) -> Encoder:
        if self.header:
            file.write(_text.csv_header(schema.names, self.delimiter))
        return _CsvEncoder(file, self.delimiter)


@dataclass(frozen=True)
class _JsonEncoder:
    file: pa.NativeFile

    def write(self, table: pa.Table) -> None:
        for batch in table.combine_chunks().to_batches(max_chunksize=_TEXT_ROWS):
            self.file.write(_text.json_lines(batch))

    def close(self) -> None:
        """A line is complete by itself."""


@dataclass(frozen=True)
class _CsvEncoder:
    file: pa.NativeFile
    delimiter: str

    def write(self, table: pa.Table) -> None:
        for batch in table.combine_chunks().to_batches(max_chunksize=_TEXT_ROWS):
            self.file.write(_text.csv_lines(batch, self.delimiter))

    def close(self) -> None:
        """A line is complete by itself."""


def _check_text(binding: Binding, schema: pa.Schema, format: str) -> None:
    for field in schema:
        if _text.unwritable(field.type) is not None:
            raise _no_place(binding, field, format)


def _no_place(binding: Binding, field: pa.Field, format: str) -> SchemaError:
    return SchemaError(
        f"{binding}: column `{field.name}` is {field.type}, which {format} cannot hold; nothing was written",
        hint=f"cast it: `select: [..., cast({field.name} AS string) AS {field.name}]`",
    )
