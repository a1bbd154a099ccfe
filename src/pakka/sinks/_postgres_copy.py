"""Fitted batches as the data of a binary COPY, encoded by pgpq outside of Python.

pgpq keeps rows back until it has a megabyte of them, or is finished, and the server takes a stream that ends early for a
short one. So every batch has an encoder of its own (2 microseconds), which is finished before `write` returns: what is
returned holds all of the batch, and there is nothing to lose.
"""

from __future__ import annotations

from collections.abc import Sequence

import pgpq
import pyarrow as pa
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter
from psycopg.generators import copy_to

from pakka.errors import BugError
from pakka.sinks._postgres_column import quoted

_TRAILER = b"\xff\xff"
_PIECE_BYTES = 256 << 10


class CopyStream:
    """The bytes of one COPY: `start` once, `write` for each batch, `finish` once; all that they return is sent in that order."""

    def __init__(self, schema: pa.Schema) -> None:
        # Spark's batches do not always keep the nullability that was announced.
        self.schema = pa.schema([pa.field(field.name, field.type) for field in schema])
        self._step = "made"

    def statement(self, target_sql: str, columns: Sequence[str]) -> str:
        if len(columns) != len(self.schema):
            raise BugError(f"COPY of {len(self.schema)} columns into {len(columns)}; nothing was written")
        return f"COPY {target_sql} ({', '.join(map(quoted, columns))}) FROM STDIN (FORMAT binary)"

    def start(self) -> bytes:
        self._move("made", "open")
        return self._encoder().write_header()

    def write(self, batch: pa.RecordBatch) -> bytes:
        self._move("open", "open")
        if batch.schema.types != self.schema.types:
            raise BugError(f"a batch of {batch.schema.types} in a COPY of {self.schema.types}; nothing was committed")
        encoder = self._encoder()
        encoder.write_header()  # which `start` has returned
        begin = encoder.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))
        rest = encoder.finish()
        if not rest.endswith(_TRAILER):
            raise BugError("pgpq ended a batch without the end mark of COPY; nothing was committed")
        return begin + rest[: -len(_TRAILER)]

    def finish(self) -> bytes:
        self._move("open", "finished")
        return _TRAILER

    def _encoder(self) -> pgpq.ArrowToPostgresBinaryEncoder:
        return pgpq.ArrowToPostgresBinaryEncoder(self.schema)

    def _move(self, wanted: str, after: str) -> None:
        if self._step != wanted:
            raise BugError(f"a COPY that is {self._step} was used as one that is {wanted}; nothing was committed")
        self._step = after


class SteadyWriter(LibpqWriter):
    """Hands over to the server what it is given before it takes more: `cursor.copy(statement, writer=SteadyWriter(cursor))`.

    psycopg's own leaves it to libpq, which keeps all that a slower server has not taken. Then memory grows with the rows of the
    slot, and each send moves what is left: that alone cost 0.3 us a row of 8 columns, as much as the encoding. Now 0.06.
    """

    def write(self, data: Buffer) -> None:
        view = memoryview(data)
        for at in range(0, len(view), _PIECE_BYTES):
            self.connection.wait(copy_to(self.connection.pgconn, view[at : at + _PIECE_BYTES], flush=True))
