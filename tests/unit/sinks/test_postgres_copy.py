"""The data of one COPY: whole batches, in order, with one beginning and one end."""

import struct
import threading

import psycopg
import pyarrow as pa
import pytest

from pakka.errors import BugError
from pakka.sinks._postgres_copy import CopyStream, SteadyWriter
from tests.fixtures.proxy import Proxy

BATCH = pa.record_batch({"id": pa.array([1, None, 3]), "note": pa.array(["a", "b", None])})


def opened() -> CopyStream:
    stream = CopyStream(BATCH.schema)
    stream.start()
    return stream


def rows_in(data: bytes) -> int:
    """Read the rows as the server does: the number of fields, and each field's length and bytes."""
    rows = at = 0
    while at < len(data):
        (fields,) = struct.unpack_from(">h", data, at)
        assert fields == 2
        at += 2
        for _ in range(fields):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4 + max(size, 0)
        rows += 1
    assert at == len(data)
    return rows


def test_the_statement_quotes_every_name():
    stream = CopyStream(BATCH.schema)
    assert stream.statement('"s"."t"', ["id", 'no"te']) == 'COPY "s"."t" ("id", "no""te") FROM STDIN (FORMAT binary)'


def test_a_statement_for_another_number_of_columns_is_a_bug():
    with pytest.raises(BugError, match="COPY of 2 columns into 1"):
        CopyStream(BATCH.schema).statement("t", ["id"])


def test_the_stream_has_one_beginning_and_one_end():
    stream = CopyStream(BATCH.schema)
    assert stream.start() == b"PGCOPY\n\xff\r\n\0" + bytes(8)
    assert stream.write(BATCH) == (
        b"\0\2\0\0\0\x08" + struct.pack(">q", 1) + b"\0\0\0\1a"
        b"\0\2\xff\xff\xff\xff\0\0\0\1b"
        b"\0\2\0\0\0\x08" + struct.pack(">q", 3) + b"\xff\xff\xff\xff"
    )  # fmt: skip
    assert stream.finish() == b"\xff\xff"


@pytest.mark.parametrize("rows", [0, 1, 2, 10_000, 100_000])
def test_what_is_written_is_returned_at_once(rows):
    """pgpq alone keeps up to a megabyte of rows back, and a stream that ends early is no error to the server."""
    batch = pa.record_batch({"id": pa.array(range(rows), pa.int64()), "note": pa.array(["x" * 10] * rows, pa.string())})
    stream = opened()
    assert rows_in(stream.write(batch)) == rows
    assert rows_in(stream.write(batch.slice(rows // 2))) == rows - rows // 2
    assert stream.finish() == b"\xff\xff"


def test_a_column_without_nulls_may_have_them_later():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string(), nullable=False)])
    stream = CopyStream(schema)
    stream.start()
    assert rows_in(stream.write(BATCH)) == 3


def test_a_batch_of_other_types_is_a_bug():
    with pytest.raises(BugError, match="a batch of"):
        opened().write(pa.record_batch({"id": ["1"], "note": ["a"]}))


def test_a_stream_that_is_used_out_of_turn_is_a_bug():
    with pytest.raises(BugError, match="is made was used as one that is open"):
        CopyStream(BATCH.schema).write(BATCH)
    with pytest.raises(BugError, match="is made was used as one that is open"):
        CopyStream(BATCH.schema).finish()
    stream = opened()
    with pytest.raises(BugError, match="is open was used as one that is made"):
        stream.start()
    stream.finish()
    for use in (lambda: stream.write(BATCH), stream.finish):
        with pytest.raises(BugError, match="is finished was used as one that is open"):
            use()


def test_a_server_that_takes_no_rows_holds_the_writer_up_instead_of_filling_its_memory(postgres_server, postgres_url):
    piece, pieces = b"x" * (1 << 20), 100
    field = struct.pack(">hi", 1, len(piece)) + piece
    sent = []
    with Proxy(("127.0.0.1", postgres_server.port)) as proxy, psycopg.connect(postgres_url) as admin:
        admin.execute("CREATE TABLE t (x text)")
        admin.commit()
        url = postgres_server.url(postgres_url.rpartition("/")[2], proxy.port)

        def load() -> None:
            statement = "COPY t FROM STDIN (FORMAT binary)"
            with (
                psycopg.connect(url) as db,
                db.cursor() as cursor,
                cursor.copy(statement, writer=SteadyWriter(cursor)) as data,
            ):
                data.write(CopyStream(BATCH.schema).start())
                proxy.hold()
                is_held.set()
                for _ in range(pieces):
                    data.write(field)
                    sent.append(1)
                data.write(b"\xff\xff")

        is_held = threading.Event()
        loading = threading.Thread(target=load)
        loading.start()
        is_held.wait()
        loading.join(timeout=2)
        # Some of it is in the sockets on the way.
        assert len(sent) < pieces // 2
        proxy.release()
        loading.join(timeout=60)
        assert admin.execute("SELECT count(*), min(length(x)) FROM t").fetchone() == (pieces, len(piece))
