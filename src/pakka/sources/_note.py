"""What a source remembers between runs: one small JSON file beside the checkpoint, wherever that is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pakka.errors import RefusedError


@dataclass(frozen=True)
class Note:
    """A file of JSON that is whole or not there."""

    spark: Any
    directory: str
    name: str

    def read(self) -> dict[str, Any] | None:
        """None: nothing was noted yet."""
        data = self._read_remote() if "://" in self.directory else self._read_local()
        return None if data is None else dict(json.loads(data))

    def write(self, data: dict[str, Any]) -> None:
        """In place of what was there; a driver that is killed leaves the old one or the new one, or on a remote file system none."""
        text = json.dumps(data, sort_keys=True).encode()
        if "://" in self.directory:
            self._write_remote(text)
        else:
            self._write_local(text)

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    def _read_local(self) -> bytes | None:
        try:
            return Path(self.path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error) from error

    def _write_local(self, data: bytes) -> None:
        partial = Path(f"{self.path}.{os.getpid()}")
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            os.replace(partial, self.path)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> RefusedError:
        return RefusedError(
            f"source: its notes at {self.path} cannot be read or written: {error.strerror}; nothing was started",
            hint="let the user that runs pakka read and write beside the checkpoint",
        )

    def _read_remote(self) -> bytes | None:
        files, path = self._remote(self.path)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def _write_remote(self, data: bytes) -> None:
        files, path = self._remote(self.path)
        _, partial = self._remote(f"{self.path}.{os.getpid()}")
        stream = files.create(partial, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        # Not every file system renames over a file that is there. A driver that dies between the two leaves no note, and the next one
        # has to say that it cannot compare.
        files.delete(path, False)
        files.rename(partial, path)

    def _remote(self, where: str) -> tuple[Any, Any]:
        path = self.spark._jvm.org.apache.hadoop.fs.Path(where)
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration()), path
