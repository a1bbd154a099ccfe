"""A slot's file in the spool, read while its writer still writes it.

What is read is whole batches and nothing else, out of the very pages that the writer has filled. Whether it is what was prepared is known when there
is a prepared record: the digest is made of the bytes on their way.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pakka.model.prepared import Prepared
from pakka.sinks._spool import digest_of

_PREFIX = struct.Struct("<Ii")
"""In front of a message: a mark, and the length of its description; 0 for the end of the stream."""


class Tail:
    """One attempt at one slot, from its first byte on. On a local file system only: a network one may take the file away from under its reader."""

    def __init__(self, path: Path, kind: str) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._hash = digest_of(kind)
        self._schema: pa.Schema | None = None
        self.bytes = 0
        """Read so far."""
        self.batches = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """The batches that are whole by now, and were not read before."""
        size = os.fstat(self._fd).st_size
        if size <= self.bytes:
            return
        base = self.bytes - self.bytes % mmap.ALLOCATIONGRANULARITY
        view = pa.py_buffer(mmap.mmap(self._fd, size - base, access=mmap.ACCESS_READ, offset=base))
        while (message := self._message(view.slice(self.bytes - base))) is not None:
            length, content = message
            self._hash.update(view.slice(self.bytes - base, length))
            self.bytes += length
            if content is None:
                continue
            if self._schema is None:
                self._schema = pa.ipc.read_schema(content)
                continue
            self.batches += 1
            yield pa.ipc.read_record_batch(content, self._schema)

    def is_all_of(self, record: Prepared) -> bool:
        """Whether what was read is what was prepared, every byte of it."""
        digest = f"{self._hash.name}:{self._hash.hexdigest()}"
        return (self.bytes, digest) == (record.detail.get("bytes"), record.detail.get("digest"))

    def close(self) -> None:
        """What was read stays readable for as long as somebody has it."""
        os.close(self._fd)

    def _message(self, view: pa.Buffer) -> tuple[int, pa.Message | None] | None:
        """The length of the next message, and what it is; None: it is not there yet, or not all of it."""
        if view.size < _PREFIX.size:
            return None
        _, described = _PREFIX.unpack_from(view)
        if not described:
            return _PREFIX.size, None
        try:
            message = pa.ipc.read_message(view)
        except (pa.ArrowInvalid, OSError):
            return None
        return _PREFIX.size + described + message.body.size, message
