"""Hard values: each is stored exactly, or refused by name before anything is staged."""

import datetime as dt
import math
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from pakka.errors import SchemaError
from pakka.model.id import Slot
from pakka.model.outcome import COMMITTED, Kind
from pakka.sinks import _sqlite_column as module
from pakka.sinks._sqlite_column import Column
from pakka.sinks.sqlite import SqliteSink
from tests.unit.sinks.spooled_kit import Site, epoch, rows_of


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "audit.db"
    return Site(SqliteSink(str(path), "t"), tmp_path, rows_of(path, "t"))


def prepare(site: Site, batch: pa.RecordBatch, number: int = 0, fence: int = 1):
    writer = site.sink.open_writer(site.binding, Slot("refunds", "audit", number, fence, 0, 0), batch.schema)
    try:
        writer.write(batch)
        return [writer.prepare("0" * 16)]
    except BaseException:
        writer.discard()
        raise


def store(site: Site, batch: pa.RecordBatch) -> list[tuple]:
    assert site.driver(1).commit_epoch(epoch(0), prepare(site, batch)) == COMMITTED
    return site.read()


def column(values: list, kind: pa.DataType, name: str = "x") -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], schema=pa.schema([(name, kind)]))


UTC = dt.UTC
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 7)
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))

EXACT = [
    (pa.int8(), [-128, 127], "INTEGER", [-128, 127]),
    (pa.int64(), [-(2**63), 2**63 - 1], "INTEGER", [-(2**63), 2**63 - 1]),
    (pa.uint64(), [0, 2**63 - 1], "INTEGER", [0, 2**63 - 1]),
    (pa.bool_(), [True, False, None], "INTEGER", [1, 0, None]),
    (pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 5.0], "REAL", None),
    (pa.float32(), [0.5, 2.0**-149], "REAL", [0.5, 2.0**-149]),
    (pa.float16(), [0.5, None], "REAL", [0.5, None]),
    (pa.string(), ["", "007", "1e5", "a\0b", "चाय ☕", "'; DROP TABLE t; --", None], "TEXT", None),
    (pa.large_string(), ["x"], "TEXT", None),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "y", "x"], "TEXT", None),
    (pa.binary(), [b"", b"\0\xff", None], "BLOB", None),
    (pa.binary(3), [b"abc"], "BLOB", None),
    (pa.null(), [None, None], "", None),
    (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal("-12.1"), None], "TEXT", ["0.0000000001", "-12.1000000000", None]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(0)], "TEXT", [str(10**38 - 1), "0"]),
    (pa.decimal256(60, 2), [Decimal("1" * 58 + ".05")], "TEXT", ["1" * 58 + ".05"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None], "TEXT", ["0001-01-01", "9999-12-31", None]),
    (pa.date64(), [dt.date(2024, 2, 29)], "TEXT", ["2024-02-29"]),
    (pa.time64("us"), [dt.time(23, 59, 59, 999999)], "TEXT", ["23:59:59.999999"]),
    (pa.timestamp("us"), [NOON, None], "TEXT", ["2024-05-01 12:00:00.000007", None]),
    (pa.timestamp("us", "Asia/Kolkata"), [NOON.replace(tzinfo=INDIA)], "TEXT", ["2024-05-01 06:30:00.000007Z"]),
    (pa.timestamp("ns", "UTC"), [1], "TEXT", ["1970-01-01 00:00:00.000000001Z"]),
    (pa.timestamp("us", "UTC"), [dt.datetime(1, 1, 1, tzinfo=UTC)], "TEXT", ["0001-01-01 00:00:00.000000Z"]),
    (pa.list_(pa.int64()), [[1, None], [], None], "TEXT", ["[1,null]", "[]", None]),
    (pa.struct([("a", pa.string()), ("b", pa.decimal128(9, 2))]), [{"a": "चा", "b": Decimal("1.50")}], "TEXT", ['{"a":"चा","b":"1.50"}']),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1)]], "TEXT", ['[["k",1]]']),
    (pa.list_(pa.timestamp("us", "UTC")), [[NOON.replace(tzinfo=UTC)]], "TEXT", ['["2024-05-01 12:00:00.000007Z"]']),
    (pa.list_(pa.date32()), [[dt.date(2024, 5, 1)]], "TEXT", ['["2024-05-01"]']),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "values", "declared", "stored"), EXACT, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_a_value_is_stored_exactly(site, kind, values, declared, stored):
    rows = store(site, column(values, kind))
    assert [row[0] for row in rows] == (values if stored is None else stored)
    assert [type(row[0]) for row in rows] == [type(v) for v in (values if stored is None else stored)]
    with closing(sqlite3.connect(site.sink.path)) as db:
        assert db.execute("SELECT type FROM pragma_table_info('t')").fetchall() == [(declared,)]


REFUSED = [
    (pa.float64(), [1.0, math.nan], "NaN"),
    (pa.uint64(), [2**63], "9223372036854775808"),
    (pa.date32(), [2932897], "a year outside 1 to 9999"),
    (pa.timestamp("us"), [-(2**62)], "a year outside 1 to 9999"),
    (pa.list_(pa.float64()), [[math.nan]], "Out of range float"),
    (pa.list_(pa.date32()), [[2932897]], "column `x`"),
    (pa.duration("us"), [1], "duration"),
    (pa.month_day_nano_interval(), [None], "interval"),
    (pa.list_(pa.binary()), [[b"x"]], "list"),
    (pa.list_(pa.duration("s")), [[1]], "list"),
]


@pytest.mark.parametrize(
    ("kind", "values", "words"), REFUSED, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_a_value_that_sqlite_would_change_is_refused_before_it_is_staged(site, kind, values, words):
    site.driver(1)
    with pytest.raises(SchemaError, match="column `x`") as caught:
        prepare(site, column(values, kind))
    assert words in caught.value.message
    assert caught.value.hint
    assert site.staged() == []


def test_a_value_longer_than_sqlite_takes_is_refused(site, monkeypatch):
    monkeypatch.setattr(module, "_VALUE_BYTES_MAX", 100)
    site.driver(1)
    prepare(site, column(["x" * 60, "y" * 60], pa.string()))
    with pytest.raises(SchemaError, match="a value of 101 bytes"):
        prepare(site, column(["x" * 101], pa.string()), number=1)


@pytest.mark.parametrize("names", [("a", "a"), ("Id", "id")])
def test_two_columns_of_one_name_are_refused(site, names):
    site.driver(1)
    with pytest.raises(SchemaError, match="twice"):
        prepare(site, pa.record_batch([pa.array([1]), pa.array([2])], names=list(names)))


def test_names_that_differ_for_sqlite_are_two_columns(site):
    assert store(site, pa.record_batch([pa.array([1]), pa.array([2])], names=["É", "é"])) == [(1, 2)]


@pytest.mark.parametrize("name", ['a "b"', "x) VALUES (1); --", "select", "rowid", "चाय", "", "a.b", "?"])
def test_odd_column_names_are_just_names(site, name):
    assert store(site, column([1, 2], pa.int64(), name)) == [(1,), (2,)]


@pytest.mark.parametrize("names", [[], [f"c{n}" for n in range(2001)], ["a\0b"]])
def test_columns_that_no_table_can_have_are_refused(site, names):
    site.driver(1)
    with pytest.raises(SchemaError):
        prepare(site, pa.record_batch([pa.array([1])] * len(names), names=names))


# --- A table that is already there


def make(site: Site, columns: str) -> None:
    with closing(sqlite3.connect(site.sink.path)) as db:
        db.execute("DROP TABLE IF EXISTS t")
        db.execute(f"CREATE TABLE t ({columns})")
        db.commit()


def order(n: int = 1) -> pa.RecordBatch:
    return pa.record_batch([pa.array([f"O-{n}"]), pa.array([n])], names=["order_id", "amount"])


def test_columns_are_matched_by_name_in_any_order_and_case(site):
    make(site, "AMOUNT BIGINT, order_id VARCHAR(20)")
    assert store(site, order(7)) == [(7, "O-7")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("order_id TEXT", "has no column `amount`"),
        ("order_id TEXT, amuont INTEGER", "did you mean `amuont`?"),
        ("order_id TEXT, amount INTEGER, note TEXT", "column `note` (TEXT) that the rows lack"),
        ("order_id TEXT, amount TEXT", "column `amount` of table `t`"),
        ("order_id TEXT, amount REAL", "is declared REAL, and the rows have INTEGER"),
        ("order_id DECIMAL(10,2), amount INTEGER", "is declared DECIMAL(10,2), and the rows have TEXT"),
        ("order_id INTEGER, amount INTEGER", "is declared INTEGER, and the rows have TEXT"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_before_they_are_staged(site, columns, words):
    make(site, columns)
    site.driver(1)
    with pytest.raises(SchemaError) as caught:
        prepare(site, order())
    assert words in caught.value.message
    assert site.sink.path in caught.value.message
    assert site.staged() == []


def test_a_table_that_was_changed_after_prepare_stops_the_commit_until_it_is_mended(site):
    make(site, "order_id TEXT, amount INTEGER")
    driver = site.driver(1)
    records = prepare(site, order())
    make(site, "order_id TEXT, amount INTEGER, note TEXT")
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.RETRY
    assert "column `note`" in outcome.reason
    assert driver.ledger().last is None
    make(site, "order_id TEXT, amount INTEGER")
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == [("O-1", 1)]


def test_nulls_are_refused_before_they_are_staged_where_the_table_has_none(site):
    site.driver(1)
    nothing = pa.record_batch([pa.array(["O-1"]), pa.array([None], pa.int64())], names=["order_id", "amount"])
    for columns in ("order_id TEXT, amount INTEGER NOT NULL", "order_id TEXT, amount INTEGER PRIMARY KEY"):
        make(site, columns)
        with pytest.raises(SchemaError, match=r"column `amount`.*1 nulls"):
            prepare(site, nothing)
    assert site.staged() == []


def test_a_null_key_is_refused_before_it_is_staged(tmp_path):
    path = tmp_path / "audit.db"
    site = Site(SqliteSink(str(path), "t", mode="upsert", key=("ORDER_ID",)), tmp_path, rows_of(path, "t"))
    site.driver(1)
    batch = pa.record_batch([pa.array([None], pa.string()), pa.array([1])], names=["order_id", "amount"])
    with pytest.raises(SchemaError, match=r"column `order_id`.*1 nulls"):
        prepare(site, batch)
    with pytest.raises(SchemaError, match="lack key column `order_id`"):
        prepare(site, batch.select(["amount"]), number=1)


def test_a_view_is_not_a_table_for_rows(site):
    make(site, "order_id TEXT, amount INTEGER")
    with closing(sqlite3.connect(site.sink.path)) as db:
        db.execute("ALTER TABLE t RENAME TO u")
        db.execute("CREATE VIEW t AS SELECT * FROM u")
        db.commit()
    site.driver(1)
    with pytest.raises(SchemaError, match="view"):
        prepare(site, order())


def test_a_table_is_not_made_unless_it_may_be(tmp_path):
    path = tmp_path / "audit.db"
    site = Site(SqliteSink(str(path), "t", create=False), tmp_path, rows_of(path, "t"))
    sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    site.driver(1)
    with pytest.raises(SchemaError, match="there is no table `t`"):
        prepare(site, order())


def test_moments_fit_the_columns_that_people_declare_for_them(site):
    make(site, "a DATETIME, b DATE, c TIMESTAMP")
    now, today = NOON, NOON.date()
    batch = pa.record_batch([pa.array([now]), pa.array([today]), pa.array([now])], names=["a", "b", "c"])
    text = "2024-05-01 12:00:00.000007"
    assert store(site, batch) == [(text, "2024-05-01", text)]


def test_affinity_is_what_sqlite_says_it_is():
    """SQLite converts '1' by a column's affinity, which shows in the type of what is stored."""
    shown = {"INTEGER": "integer", "TEXT": "text", "BLOB": "text", "REAL": "real", "NUMERIC": "integer"}
    with closing(sqlite3.connect(":memory:")) as db:
        for declared in (
            "INT", "BIGINT", "VARCHAR(9)", "NCHAR", "CLOB", "TEXT", "BLOB", "", "REAL", "DOUBLE PRECISION", "FLOAT",
            "NUMERIC", "DECIMAL(9,2)", "BOOLEAN", "DATE", "DATETIME", "FLOATING POINT", "CHARINT", "STRING", "anything",
        ):  # fmt: skip
            db.execute(f"CREATE TABLE t (x {declared})")
            db.execute("INSERT INTO t VALUES ('1')")
            found = db.execute("SELECT typeof(x) FROM t").fetchone()[0]
            assert found == shown[Column("x", declared, False).affinity], declared
            db.execute("DROP TABLE t")
