"""Rows of very many columns: what is let through, the server takes."""

import psycopg
import pyarrow as pa
import pytest

from pakka.errors import SchemaError
from pakka.sinks import _postgres_page as module
from tests.unit.sinks.postgres_kit import copy, make

pytestmark = pytest.mark.postgres


def wide(count: int, kind: pa.DataType, value) -> pa.RecordBatch:
    return pa.record_batch({f"c{n}": pa.array([value], kind) for n in range(count)})


WIDE = [
    (1600, pa.bool_(), True, True),
    (950, pa.int64(), 1, True),
    (1100, pa.int64(), 1, False),
    (1600, pa.int32(), 1, True),
    (1600, pa.int64(), None, True),
    (330, pa.string(), "x" * 23, True),
    (400, pa.string(), "x" * 23, False),
    (330, pa.string(), "x" * 100, True),
    (1600, pa.string(), "abc", True),
    (1600, pa.string(), "abcde", False),
]


@pytest.mark.parametrize(("count", "kind", "value", "fits"), WIDE)
def test_a_wide_row_is_taken_by_the_server_or_refused_before(pg, count, kind, value, fits):
    batch = wide(count, kind, value)
    make(pg, batch.schema)
    if fits:
        copy(pg, batch)
        assert pg.execute("SELECT count(*) FROM t").fetchone() == (1,)
    else:
        with pytest.raises(SchemaError, match="bytes of a page, which has room for 8160"):
            copy(pg, batch)


@pytest.mark.parametrize(("count", "kind", "value", "fits"), [case for case in WIDE if not case[3]])
def test_the_server_refuses_what_is_refused(pg, monkeypatch, count, kind, value, fits):
    monkeypatch.setattr(module, "PAGE_BYTES", 10**6)
    batch = wide(count, kind, value)
    make(pg, batch.schema)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="row is too big"):
        copy(pg, batch)


def test_what_the_server_fills_in_takes_room_too(pg):
    names = ", ".join(f"d{n} bigint DEFAULT 1" for n in range(600))
    pg.execute(f"CREATE TABLE t ({', '.join(f'c{n} bigint' for n in range(500))}, {names})")
    with pytest.raises(SchemaError, match="bytes of a page"):
        copy(pg, wide(500, pa.int64(), 1))
