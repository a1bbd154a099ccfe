"""Rows into a MySQL table at full speed: many rows of parameters at once where MariaDB answers, else LOAD DATA from memory
where the server allows it, else INSERT with many rows.

The lines of a whole batch are made by one Arrow kernel, and what it makes stands in memory as the server wants to read it, so
that not a byte is copied on the way to the socket.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pakka.errors import PakkaError, SchemaError, SinkError
from pakka.sinks._columns import Place
from pakka.sinks._mysql_bulk import bulk_rows, bulk_types
from pakka.sinks._mysql_column import quoted
from pakka.sinks._mysql_line import Done, DriverError, Line, code_of, text_of

_FLUSH_BYTES = 8 << 20
"""How much is sent by one LOAD DATA. Memory for it is held once; the answer to it is waited for once."""
_TURN_BYTES = 2 << 20
"""How much is sent in one turn: while one writer has its turn, the others make what they send in theirs."""
_TURN_S = 5
_BULK_BYTES = 4 << 20
_INSERT_BYTES = 1 << 20
_NOT_ALLOWED = frozenset({1047, 1148, 1295, 3948, 4166})
"""Numbers under which servers say that LOAD DATA LOCAL is switched off, or that they do not know what was sent."""
_CONSTRAINTS = frozenset({1048, 1062, 1216, 1217, 1451, 1452, 1586, 1859, 3819, 4025})
OF_A_ROW = _CONSTRAINTS | {1264, 1265, 1292, 1300, 1366, 1406, 1644}
"""What the server says of one row and not of the statement; 1644 is what a trigger says."""
_BEFORE = "pakka_before"
_SHOWN, _SHOWN_LENGTH = 8, 40
_LOAD_ESCAPES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\0", b"\\0"))
_INSERT_ESCAPES = ((b"\\", b"\\\\"), (b"'", b"\\'"), (b"\0", b"\\0"))
_BYTES = pa.large_binary()
_VALUE_BYTES = 13
"""The most that a value of fixed size takes, and more than a length does."""
Told = list[tuple[int, str]]
"""What the server says of rows: numbers and words."""
Send = Callable[[Sequence[pa.RecordBatch]], tuple[int, Told]]
"""How many rows have arrived, and what the server has to say of them."""


@dataclass(frozen=True)
class Server:
    """What of a server matters to the way in which rows are sent."""

    is_mariadb: bool
    version: tuple[int, ...]
    takes_files: bool
    packet_bytes: int

    @classmethod
    def of(cls, line: Line) -> Server:
        ((version, takes_files, packet_bytes),) = line.ask("SELECT version(), @@local_infile, @@max_allowed_packet")
        numbers = version.partition("-")[0].split(".")
        return cls("mariadb" in version.lower(), tuple(map(int, numbers)), bool(takes_files), int(packet_bytes))


class Loader:
    """Sends batches of text to one table, in one transaction that its caller has begun, and counts what arrives."""

    def __init__(self, place: Place, line: Line, server: Server, into: str, turn: str = "") -> None:
        """`turn` names a lock of the server that whoever loads into the same place takes in turns."""
        self.place = place
        self.line = line
        self.turn = turn
        self.flush_bytes = _TURN_BYTES if turn else _FLUSH_BYTES
        self.takes_files = server.takes_files
        self.insert_bytes = min(_INSERT_BYTES, server.packet_bytes // 2)
        self.packet_bytes = min(_BULK_BYTES, server.packet_bytes // 2)
        self.into = into
        self._refused: set[Send] = set()
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self.flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Send what waits, in the best way that the server allows."""
        batches, self._waiting, self._bytes = self._waiting, [], 0
        for send in self._ways(batches):
            try:
                self._send(send, batches)
                return
            except DriverError as error:
                if code_of(error) not in _NOT_ALLOWED:
                    raise
                self._refused.add(send)
        for batch in batches:
            self._insert(batch)

    def _ways(self, batches: Sequence[pa.RecordBatch]) -> list[Send]:
        ways: list[Send] = []
        if self.line.takes_bulk and all(_row_bytes_max(batch) <= self.packet_bytes for batch in batches):
            ways.append(self._bulk)
        if self.takes_files:
            ways.append(self._load)
        return [way for way in ways if batches and way not in self._refused]

    def _send(self, send: Send, batches: Sequence[pa.RecordBatch]) -> None:
        """LOAD DATA LOCAL makes a warning of every error and goes on: what it warns of is not what was sent."""
        self.line.do(f"SAVEPOINT {_BEFORE}")
        sent, taken = sum(b.num_rows for b in batches), 0
        try:
            taken, found = send(batches)
            if taken == sent and not found:
                return
        except DriverError as error:
            if code_of(error) not in OF_A_ROW:
                raise
            found = [(code_of(error), text_of(error))]
        self.line.do(f"ROLLBACK TO SAVEPOINT {_BEFORE}")
        # An INSERT of the same rows stops at the first one that is wrong, so that it can be shown.
        for batch in batches:
            self._insert(batch)
        raise self._short(sent, taken, found)

    def _warnings(self, done: Done) -> Told:
        """They have to be asked for before anything else is."""
        if not done.warnings:
            return []
        found = [(code, text) for _, code, text in self.line.ask("SHOW WARNINGS LIMIT 3")]
        return found or [(0, f"{done.warnings} warnings")]

    def _short(self, sent: int, taken: int, found: Told) -> PakkaError:
        told = "; ".join(text for _, text in found) or "the server does not say why"
        return trouble(self.place, {code for code, _ in found}, f"{sent} rows were sent and {taken} were taken: {told}")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until nobody else loads here. It is for speed only, so a turn that does not come is done without, once and for all."""
        if self.turn and self.line.ask("SELECT GET_LOCK(%s, %s)", (self.turn, _TURN_S)) != [(1,)]:
            self.turn = ""
        try:
            yield
        finally:
            if self.turn and self.line.is_open:
                self.line.ask("SELECT RELEASE_LOCK(%s)", (self.turn,))

    def _bulk(self, batches: Sequence[pa.RecordBatch]) -> tuple[int, Told]:
        schema = batches[0].schema
        marks = ", ".join("?" * len(schema))
        statement = f"INSERT INTO {self.into} ({', '.join(map(quoted, schema.names))}) VALUES ({marks})"
        # Ready before the turn: while it is taken the server has nothing else to do.
        packets = [content(part) for b in batches for part in _parts(bulk_rows(b), self.packet_bytes)]
        with self._turn():
            done = self.line.bulk(statement, bulk_types(schema), packets)
            return done.rows, self._warnings(done)

    def _load(self, batches: Sequence[pa.RecordBatch]) -> tuple[int, Told]:
        # Everything comes in UTF-8. MySQL reads bytes as such too, and refuses those that are none, so they come as digits.
        fields = [quoted(f.name) if not _is_bytes(f.type) else f"@pakka_{n}" for n, f in enumerate(batches[0].schema)]
        sets = [f"{quoted(f.name)} = UNHEX(@pakka_{n})" for n, f in enumerate(batches[0].schema) if _is_bytes(f.type)]
        into = (
            f"INTO TABLE {self.into} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
            f"({', '.join(fields)}){' SET ' if sets else ''}{', '.join(sets)}"
        )
        done = self.line.load(into, (memoryview(content(load_lines(batch))) for batch in batches))
        return done.rows, self._warnings(done)

    def _insert(self, batch: pa.RecordBatch) -> None:
        """As many rows a statement as fit; a statement has to fit into one packet of the server."""
        at = 0
        for part in _parts(insert_rows(batch), self.insert_bytes):
            self._insert_part(batch.slice(at, len(part)), part)
            at += len(part)

    def _insert_part(self, batch: pa.RecordBatch, rows: pa.Array) -> None:
        """One statement. If it fails, halves of it, until the row is found that it fails for."""
        names = ", ".join(quoted(name) for name in batch.schema.names)
        values = content(rows).to_pybytes().removesuffix(b",")
        try:
            done = self.line.do(f"INSERT INTO {self.into} ({names}) VALUES ".encode() + values)
        except DriverError as error:
            if code_of(error) not in OF_A_ROW:
                raise
            if len(rows) == 1:
                raise trouble(
                    self.place, {code_of(error)}, f"{text_of(error)}; the row is {shown(_first(batch))}"
                ) from error
            half = len(rows) // 2
            for start, size in ((0, half), (half, len(rows) - half)):
                self._insert_part(batch.slice(start, size), rows.slice(start, size))
            # Nothing is wrong with any row of it alone: it is told as it was.
            raise
        found = self._warnings(done)
        if done.rows != len(rows) or found:
            raise self._short(len(rows), done.rows, found)


def shown(cells: Sequence[tuple[str, Any]]) -> str:
    """One row, as an example: enough of it to find it by."""
    more = ", ..." if len(cells) > _SHOWN else ""
    told = ", ".join(f"{name}: {str(value)[:_SHOWN_LENGTH]!r}" for name, value in cells[:_SHOWN])
    return f"{{{told}{more}}}"


def _first(batch: pa.RecordBatch) -> list[tuple[str, Any]]:
    return [(name, column[0].as_py()) for name, column in zip(batch.schema.names, batch.columns, strict=True)]


def trouble(place: Place, codes: set[int], what: str) -> PakkaError:
    """A constraint that rows break, or a value that the server would change."""
    message = f"{place.binding}: {place} does not take the rows: {what}; nothing was made visible"
    if codes & _CONSTRAINTS:
        return SinkError(
            message,
            hint="send such rows to the dead letters by a rule, or change the table; if rows may come again, use `mode: upsert` "
            "with their key",
        )
    return SchemaError(
        message, hint="cast the column in `select`, or keep such rows out by a rule; see the triggers of the table"
    )


def load_lines(batch: pa.RecordBatch) -> pa.Array:
    """A line each, as LOAD DATA reads it: tabs between, and a backslash before what would be misread."""
    parts: list[pa.Array | pa.Scalar] = []
    for column in batch.columns:
        parts += [_escaped(column, _LOAD_ESCAPES), _scalar(b"\t")]
    parts[-1] = _scalar(b"\n")
    return pc.binary_join_element_wise(*parts, _scalar(b""), null_handling="replace", null_replacement=b"\\N")


def insert_rows(batch: pa.RecordBatch) -> pa.Array:
    """A row each, as VALUES has it, with a comma behind. All values are quoted: the server knows what its columns are."""
    parts: list[pa.Array | pa.Scalar] = []
    for column in batch.columns:
        before = _scalar(b"x'" if _is_bytes(column.type) else b"'")
        text = _escaped(column, _INSERT_ESCAPES)
        value = pc.binary_join_element_wise(before, text, _scalar(b"'"), _scalar(b""))
        parts += [_scalar(b"," if parts else b"("), value]
    return pc.binary_join_element_wise(
        *parts, _scalar(b"),"), _scalar(b""), null_handling="replace", null_replacement=b"NULL"
    )


def _parts(rows: pa.Array, bytes_max: int) -> Iterator[pa.Array]:
    """As many rows at once as fit, and at least one."""
    at = 0
    while at < len(rows):
        size = len(rows) - at
        while size > 1 and content(rows.slice(at, size)).size > bytes_max:
            size = max(1, size // 2)
        yield rows.slice(at, size)
        at += size


def _row_bytes_max(batch: pa.RecordBatch) -> int:
    """The most that a row can take, or a little more; of a small batch, all of it."""
    if batch.nbytes <= _INSERT_BYTES:
        return int(batch.nbytes)
    longest = (pc.max(pc.binary_length(c)).as_py() or 0 for c in batch.columns if not pt.is_primitive(c.type))
    return int(sum(longest)) + _VALUE_BYTES * int(batch.num_columns)


def content(lines: pa.Array) -> pa.Buffer:
    """The lines as they stand in memory, one after another, and nothing that belongs to other slices."""
    _, offsets, data = lines.buffers()
    if not len(lines) or data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], 0, lines.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return data.slice(first, last - first)


def _escaped(column: pa.Array, escapes: Sequence[tuple[bytes, bytes]]) -> pa.Array:
    """One look at the bytes spares most columns all of it. Values that are bytes become hexadecimal digits."""
    if _is_bytes(column.type):
        return _digits(column.cast(_BYTES))
    if pt.is_primitive(column.type):
        return column.cast(pa.large_string()).cast(_BYTES)
    column = column.cast(_BYTES)
    raw = content(column).to_pybytes()
    for mark, escape in escapes:
        if mark in raw:
            column = pc.replace_substring(column, mark, escape)
    return column


def _digits(column: pa.Array) -> pa.Array:
    """All values at once: twice the bytes, with ends that are twice as far."""
    column = pa.concat_arrays([column])  # which leaves no offset
    valid, offsets, _ = column.buffers()
    ends = np.frombuffer(offsets, np.int64, len(column) + 1)
    data = binascii.hexlify(content(column))
    return pa.Array.from_buffers(_BYTES, len(column), [valid, pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(data)])


def _scalar(data: bytes) -> pa.Scalar:
    return pa.scalar(data, _BYTES)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))
