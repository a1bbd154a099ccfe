"""A directory to which files are added: JSON lines, CSV or Parquet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pakka.errors import ConfigError, SchemaError
from pakka.model.guarantee import Part
from pakka.model.rule import OnFail
from pakka.model.word import check_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CORRUPT = "_corrupt_record"
_GLOB = re.compile(r"[\\{}\[\]*?]")
"""What means something in a glob of Hadoop's."""
# Spark goes by the place of a column and passes over the header, even one that names other columns or is a row. And it
# escapes a quote by a backslash, where RFC 4180, and nearly everybody who writes CSV, doubles it.
_CSV = {"header": "true", "enforceSchema": "false", "escape": '"'}


@dataclass(frozen=True)
class FilesSource:
    """Read the files of a directory, each once, as they appear."""

    path: str
    """A directory or a glob. Files are read once and must not change afterwards."""
    format: Literal["json", "csv", "parquet"] = "json"
    schema: str | None = None
    """Columns and types, as in `CREATE TABLE`: `id BIGINT, name STRING`. Inferred from the files there are, and
    remembered, if not given."""
    max_files_per_epoch: int | None = None
    """At most so many files an epoch: the knob between large epochs and early results."""
    corrupt: Literal["dead_letter", "drop", "fail"] = "dead_letter"
    """What becomes of a line that is not valid, or whose values do not fit the types."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader for this format, such as `multiLine: "true"` for CSV with line breaks in quotes. CSV files
    begin with a header, which must name the columns of the schema, unless `header` is `"false"`."""

    def __post_init__(self) -> None:
        check_words("source files", self)

    def replayable(self) -> Part:
        return Part("source", True, f"files are kept, so an epoch's files can be read again: {self.path}")

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"

    @property
    def corrupt_column(self) -> str | None:
        return None if self.format == "parquet" else _CORRUPT

    @property
    def on_corrupt(self) -> OnFail:
        return OnFail(self.corrupt)

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        from pyspark.errors import AnalysisException

        reader = spark.readStream.format(self.format).options(**self._reader_options(is_strict))
        if self.max_files_per_epoch is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files_per_epoch)
        try:
            return reader.schema(self._columns(spark, notes, is_strict)).load(self._place)
        except AnalysisException as error:
            raise ConfigError(
                f"source files: {self.path} cannot be read: {str(error).splitlines()[0]}; nothing was started",
                hint="make the directory first; it may be empty if `schema` is given",
            ) from error

    def read_files(self, spark: SparkSession, notes: str, is_strict: bool, paths: Sequence[str]) -> DataFrame:
        """These very files, each once, whatever their names could match as globs."""
        reader = spark.read.format(self.format).options(**self._reader_options(is_strict))
        if not _GLOB.search(self._place):
            reader = reader.option("basePath", self._place)
        return reader.schema(self._columns(spark, notes, is_strict)).load([_literal(path) for path in paths])

    def _columns(self, spark: SparkSession, notes: str, is_strict: bool) -> StructType:
        from pyspark.sql.types import StringType, StructType

        schema = self._declared() if self.schema else self._inferred(spark, notes)
        if self.corrupt_column is not None and not is_strict:
            schema = StructType([*schema.fields]).add(_CORRUPT, StringType())
        return schema

    @property
    def _place(self) -> str:
        """Where to read, the same for Spark's JVM, whose current directory may be another one."""
        if "://" in self.path:
            return self.path
        path = Path(self.path).absolute()
        # A directory that is there is that directory, whatever its name would match as a glob; and all above it are.
        there = next((p for p in (path, *path.parents) if p.is_dir()), Path("/"))
        return str(Path(_literal(str(there))) / path.relative_to(there))

    def _reader_options(self, is_strict: bool) -> dict[str, Any]:
        if self.corrupt_column is None:
            return dict(self.options)
        defaults = {"mode": "FAILFAST"} if is_strict else {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        return {**defaults, **(_CSV if self.format == "csv" else {}), **self.options}

    def _declared(self) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            schema = StructType.fromDDL(str(self.schema))
        except PySparkException as error:
            raise ConfigError(
                f"source files: schema {self.schema!r} is not understood: {str(error).strip().splitlines()[0]}",
                hint="write it as in CREATE TABLE: `id BIGINT, name STRING`",
            ) from error
        assert isinstance(schema, StructType)
        if any(name.lower() == _CORRUPT for name in schema.names):
            raise ConfigError(
                f"source files: schema {self.schema!r} has a column `{_CORRUPT}`, which is where Spark puts malformed records",
                hint="leave it out: malformed records go to the dead letters by themselves",
            )
        return schema

    def _inferred(self, spark: SparkSession, notes: str) -> StructType:
        """Inferred once, then remembered: files that come later must not change the types of a running pipeline."""
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        if "://" in notes:
            raise ConfigError(
                f"source files: an inferred schema is remembered beside the checkpoint, and {notes} is not on this machine",
                hint="declare it with `schema: id BIGINT, name STRING`",
            )
        note = Path(notes) / "schema.json"
        if note.exists():
            return StructType.fromJson(json.loads(note.read_text()))
        reader = spark.read.format(self.format).options(**self._reader_options(is_strict=False))
        if self.format == "csv":
            reader = reader.option("inferSchema", "true")
        try:
            schema = reader.load(self._place).schema
        except AnalysisException as error:
            raise SchemaError(
                f"source files: no schema can be inferred from {self.path}: {str(error).splitlines()[0]}",
                hint="declare it with `schema: id BIGINT, name STRING`, or put the first files there",
            ) from error
        fields = [f for f in schema.fields if f.name != _CORRUPT]
        if not fields:
            raise SchemaError(
                f"source files: the files in {self.path} have no columns to infer a schema from",
                hint="declare it with `schema: id BIGINT, name STRING`",
            )
        inferred = StructType(fields)
        note.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: a driver killed here must not leave a note that the next one stumbles over.
        partial = note.with_name(f"{note.name}.{os.getpid()}")
        partial.write_text(inferred.json())
        os.replace(partial, note)
        return inferred


def _literal(path: str) -> str:
    """A path that means itself where a glob is expected."""
    return _GLOB.sub(r"\\\g<0>", path)
