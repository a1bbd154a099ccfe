"""Spark's checkpoint, read from outside: whose it is, what was planned, and what was acknowledged.

`metadata` names the query, `offsets/N` is written before epoch N runs and `commits/N` after our callback has returned.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from pakka.errors import RefusedError, UsageError
from pakka.model.epoch import Checkpoint

_NEWEST = 8


class Files(Protocol):
    """The little that has to be read of a file system."""

    def names(self, path: str) -> list[str]:
        """The names in a directory; none if it is not there."""

    def read(self, path: str) -> bytes | None:
        """A file's contents; None if it is not there."""


class LocalFiles:
    """This machine's files, with no JVM."""

    def names(self, path: str) -> list[str]:
        try:
            return [p.name for p in Path(path).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(path, error) from error

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> RefusedError:
    return RefusedError(
        f"checkpoint: {path} cannot be read: {error.strerror}; nothing was changed",
        hint="let the user that runs pakka read and write there, or choose another place with `checkpoint:`",
    )


class HadoopFiles:
    """Whatever file system Spark can reach: HDFS, an object store."""

    def __init__(self, spark: Any) -> None:
        self.jvm = spark._jvm
        self.settings = spark._jsc.hadoopConfiguration()

    def names(self, path: str) -> list[str]:
        where = self.jvm.org.apache.hadoop.fs.Path(path)
        files = where.getFileSystem(self.settings)
        return [s.getPath().getName() for s in files.listStatus(where)] if files.exists(where) else []

    def read(self, path: str) -> bytes | None:
        where = self.jvm.org.apache.hadoop.fs.Path(path)
        files = where.getFileSystem(self.settings)
        if not files.exists(where):
            return None
        stream = files.open(where)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()


def files_for(path: str, spark: Any = None) -> tuple[Files, str]:
    """The way to read a checkpoint, and its path there."""
    for prefix in ("file://", "file:"):
        path = path.removeprefix(prefix)
    if "://" not in path:
        return LocalFiles(), path
    if spark is None:
        raise UsageError(
            f"checkpoint {path} is not on this machine, and only Spark can read it there; nothing was changed",
            hint="run this where the checkpoint is mounted as a directory",
        )
    return HadoopFiles(spark), path


def read(path: str, spark: Any = None) -> Checkpoint:
    """What a checkpoint says. One that is not there yet is empty."""
    files, root = files_for(path, spark)
    planned = [int(n) for n in files.names(f"{root}/offsets") if n.isdigit()]
    acknowledged = [int(n) for n in files.names(f"{root}/commits") if n.isdigit()]
    metadata = files.read(f"{root}/metadata")
    newest = {b: files.read(f"{root}/offsets/{b}") for b in sorted(planned)[-_NEWEST:]}
    return Checkpoint(
        path=root,
        query=str(json.loads(metadata)["id"]) if metadata else None,
        planned=max(planned, default=-1),
        acknowledged=max(acknowledged, default=-1),
        digests={b: digest(offsets) for b, offsets in newest.items() if offsets is not None},
    )


def digest(offsets: bytes) -> str:
    """A digest of an offset log entry. It holds the batch's time, so that two checkpoints never agree by chance."""
    return hashlib.sha256(offsets).hexdigest()


def source_offsets(offsets: bytes) -> list[str]:
    """The offsets of each source of a query, in the source's own form, from an offset log entry."""
    return offsets.decode().splitlines()[2:]


def planned_files(path: str, offsets: bytes, spark: Any = None) -> list[str]:
    """The files that Spark has planned for a batch, from the log of each file source of its query."""
    files, root = files_for(path, spark)
    planned: list[str] = []
    for number, line in enumerate(source_offsets(offsets)):
        position = json.loads(line) if line.startswith("{") else {}
        if not isinstance(position, dict) or "logOffset" not in position:
            continue
        entry = f"{root}/sources/{number}/{position['logOffset']}"
        # Every tenth time Spark writes all older entries along.
        log = files.read(entry) or files.read(f"{entry}.compact") or b""
        mine = f'"batchId":{position["logOffset"]}}}'
        planned += [unquote(json.loads(text)["path"]) for text in log.decode().splitlines() if text.endswith(mine)]
    return planned


def batch_time_us(offsets: bytes) -> int | None:
    """The time Spark gave the batch, in microseconds. It stays the same when the batch runs again."""
    lines = offsets.decode().splitlines()
    if len(lines) < 2 or not lines[1].startswith("{"):
        return None
    return int(json.loads(lines[1]).get("batchTimestampMs", 0)) * 1000 or None
