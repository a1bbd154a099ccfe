"""What goes into a column of MySQL comes out equal, or is refused before a row of it is visible."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from pakka.errors import SchemaError, SinkError
from tests.unit.sinks.mysql_kit import Site, rows

pytestmark = pytest.mark.mysql
UTC = dt.UTC


@pytest.fixture(params=["parameters", "LOAD DATA", "INSERT"])
def site(request, mysql_url, tmp_path, monkeypatch):
    """All ways of sending rows, to a table that a user has made."""
    if request.param != "parameters":
        monkeypatch.setattr("pakka.sinks._mysql_line.Line.takes_bulk", False)
    if request.param == "INSERT":
        monkeypatch.setattr("pakka.sinks._mysql_load._NOT_ALLOWED", frozenset({1064}))
        monkeypatch.setattr("pakka.sinks._mysql_load.Loader._load", _not_allowed)
    return Site.of(mysql_url, tmp_path, way="prepared")


def _not_allowed(loader, batches):
    return loader.line.do("LOAD DATA is not allowed")


def at(*texts: str, zone=None) -> list[dt.datetime]:
    return [dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]


KEPT = [
    ("tinyint", pa.array([-128, 127, None], pa.int8())),
    ("tinyint", pa.array([-128, 127], pa.int64())),
    ("tinyint unsigned", pa.array([0, 255], pa.int64())),
    ("smallint", pa.array([-(2**15), 2**15 - 1])),
    ("mediumint", pa.array([-(2**23), 2**23 - 1])),
    ("int", pa.array([-(2**31), 2**31 - 1])),
    ("int unsigned", pa.array([0, 2**32 - 1])),
    ("bigint", pa.array([-(2**63), 2**63 - 1])),
    ("bigint unsigned", pa.array([0, 2**64 - 1], pa.uint64())),
    ("decimal(5,2)", pa.array([999, -999])),
    ("decimal(65,30)", pa.array([Decimal("9" * 20 + "." + "9" * 18), Decimal("1E-18"), None], pa.decimal128(38, 18))),
    ("decimal(20,6)", pa.array([Decimal(0), Decimal("-0.000001")], pa.decimal128(20, 6))),
    ("decimal(20,7)", pa.array([Decimal(0), Decimal("-0.0000001")], pa.decimal128(20, 7))),
    ("decimal(4,1)", pa.array([Decimal("999.90"), Decimal("-0.10")], pa.decimal128(10, 2))),
    ("double", pa.array([0.1 + 0.2, 5e-324, 1.7976931348623157e308, -1e-7, 1e22])),
    ("varchar(3)", pa.array(["🧾🧾🧾", "", None, "a\0b", "\\N", "NULL"][:5])),
    ("varchar(20) CHARACTER SET latin1", pa.array(["é€", "plain"])),
    ("varchar(20) CHARACTER SET utf8mb3", pa.array(["नमस्ते", "e\u0301"])),
    ("varchar(20) CHARACTER SET utf16", pa.array(["🧾", "é"])),
    ("char(5)", pa.array(["ab", "abcde", " a"])),
    ("tinytext", pa.array(["x" * 255])),
    ("text", pa.array(["é" * 32767])),
    ("enum('chai','Samosa','it''s')", pa.array(["chai", "it's", None])),
    ("varbinary(4)", pa.array([b"\0\xff\n\\", b""])),
    ("binary(2)", pa.array([b"\0\xff", b"\\\t"])),
    ("blob", pa.array([bytes(range(256)), None])),
    ("date", pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)])),
    ("datetime(6)", pa.array(at("0001-01-01", "9999-12-31T23:59:59.999999"), pa.timestamp("us"))),
    ("datetime(3)", pa.array(at("2026-01-31T23:59:59.999"), pa.timestamp("us"))),
    ("datetime", pa.array(at("2026-01-31T23:59:59"), pa.timestamp("s"))),
    ("time(6)", pa.array([dt.time(23, 59, 59, 999999), None], pa.time64("us"))),
]


@pytest.mark.parametrize(("declared", "values"), KEPT, ids=[f"{d}-{v.type}" for d, v in KEPT])
def test_what_a_column_can_hold_comes_back_equal(site, declared, values):
    site.ask(f"CREATE TABLE refund (n int, v {declared}) ENGINE=InnoDB")
    site.deliver(0, rows(n=range(len(values)), v=values))
    found = [value for (value,) in site.ask("SELECT v FROM refund ORDER BY n")]
    if declared.startswith("time("):
        found = [None if v is None else (dt.datetime.min + v).time() for v in found]
    assert found == values.to_pylist()


def test_instants_are_kept_in_utc_whatever_the_server_s_zone_is(site):
    site.ask("CREATE TABLE refund (n int, v timestamp(6) NULL, w datetime(6)) ENGINE=InnoDB")
    moment = at("2026-01-31T12:00:00.123456", zone=UTC)
    instants = pa.array(moment, pa.timestamp("us", "Asia/Kolkata"))
    site.deliver(0, rows(n=[1], v=instants, w=instants))
    assert site.ask("SELECT unix_timestamp(v), w FROM refund") == [
        (Decimal(str(moment[0].timestamp())), moment[0].replace(tzinfo=None))
    ]


def test_a_boolean_goes_into_a_bit_and_into_a_tinyint(site):
    site.ask("CREATE TABLE refund (n int, v bit(1), w tinyint(1)) ENGINE=InnoDB")
    flags = pa.array([True, False, None])
    site.deliver(0, rows(n=[1, 2, 3], v=flags, w=flags))
    assert site.ask("SELECT v + 0, w FROM refund ORDER BY n") == [(1, 1), (0, 0), (None, None)]


def test_a_float_keeps_its_32_bits(site):
    site.ask("CREATE TABLE refund (n int, v float, w double) ENGINE=InnoDB")
    values = pa.array([0.1, -1.25, 3.4028234663852886e38], pa.float32())
    site.deliver(0, rows(n=[1, 2, 3], v=values, w=values))
    exact = [(v, v) for v in values.to_pylist()]
    assert site.ask("SELECT v + 0.0e0, w FROM refund ORDER BY n") == exact


REFUSED = [
    ("tinyint", pa.array([128]), "128, and tinyint"),
    ("int unsigned", pa.array([-1]), "-1, and int"),
    ("decimal(3,2)", pa.array([10]), "10, and decimal"),
    ("decimal(4,2)", pa.array([Decimal("1.234")], pa.decimal128(10, 3)), "does not fit decimal"),
    ("decimal(4,2)", pa.array([Decimal("100.00")], pa.decimal128(10, 2)), "does not fit decimal"),
    ("decimal(4,2) unsigned", pa.array([Decimal("-1.00")], pa.decimal128(4, 2)), "nothing below 0"),
    ("double", pa.array([float("nan")]), "NaN or an infinity"),
    ("double", pa.array([float("-inf")]), "NaN or an infinity"),
    ("float", pa.array([0.1]), "would not keep exactly"),
    ("double", pa.array([1]), "would not keep exactly"),
    ("double(8,2)", pa.array([1.5]), "would not keep exactly"),
    ("bigint", pa.array([1.5]), "would not keep exactly"),
    ("varchar(20)", pa.array([7]), "would not keep exactly"),
    ("bigint", pa.array(["7"]), "would not keep exactly"),
    ("varchar(3)", pa.array(["🧾🧾🧾🧾"]), "4 characters"),
    ("tinytext", pa.array(["é" * 128]), "256 bytes"),
    ("char(5)", pa.array(["a "]), "ends with a space"),
    ("varchar(20) CHARACTER SET latin1", pa.array(["🧾"]), "character that latin1 lacks"),
    ("varchar(20) CHARACTER SET utf8mb3", pa.array(["🧾"]), "lacks"),
    ("varchar(20) CHARACTER SET gbk", pa.array(["a"]), "would not keep exactly"),
    ("enum('chai')", pa.array(["Chai"]), "does not list it"),
    ("varbinary(2)", pa.array([b"abc"]), "3 bytes"),
    ("binary(3)", pa.array([b"ab"]), "would fill up"),
    ("blob", pa.array(["text"]), "would not keep exactly"),
    ("text", pa.array([b"bytes"]), "would not keep exactly"),
    ("date", pa.array([-719163], pa.date32()), "year outside"),
    ("date", pa.array(at("2026-01-31"), pa.timestamp("us")), "would not keep exactly"),
    ("datetime(3)", pa.array(at("2026-01-31T00:00:00.0001"), pa.timestamp("us")), "more digits of a second"),
    ("datetime", pa.array(at("2026-01-31T00:00:00.5"), pa.timestamp("us")), "more digits of a second"),
    ("timestamp NULL", pa.array(at("2026-01-31"), pa.timestamp("us")), "would not keep exactly"),
    ("timestamp NULL", pa.array(at("2038-01-19T03:14:08", zone=UTC), pa.timestamp("us", "UTC")), "moment outside"),
    ("timestamp NULL", pa.array(at("1970-01-01", zone=UTC), pa.timestamp("us", "UTC")), "moment outside"),
    ("time(3)", pa.array([dt.time(0, 0, 0, 1)], pa.time64("us")), "more digits of a second"),
    ("year", pa.array([2026]), "would not keep exactly"),
    ("bigint NOT NULL", pa.array([None, 1]), "1 nulls"),
    ("bigint GENERATED ALWAYS AS (n + 1) VIRTUAL", pa.array([1]), "generated by the server"),
]


@pytest.mark.parametrize(("declared", "values", "message"), REFUSED, ids=[f"{d}-{v.type}" for d, v, _ in REFUSED])
def test_what_a_column_would_change_is_refused_by_name_and_leaves_nothing(
    mysql_url, tmp_path, declared, values, message
):
    for way in ("prepared", "spooled"):
        site = Site.of(mysql_url, tmp_path / way, way=way)
        site.ask("DROP TABLE IF EXISTS refund")
        site.ask(f"CREATE TABLE refund (n int, v {declared}) ENGINE=InnoDB")
        site.driver(1 if way == "prepared" else 2).close()
        with pytest.raises(SchemaError, match="`v`") as refused:
            site.prepare(site.slot(0, fence=1 if way == "prepared" else 2), rows(n=range(len(values)), v=values))
        assert message in refused.value.message
        assert site.ask("SELECT * FROM refund") == []
        assert site.prepared_branches() == []


def test_text_that_is_not_utf_8_is_refused(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.driver().close()
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    with pytest.raises(SchemaError, match="cast it to BINARY"):
        site.prepare(site.slot(0), rows(v=broken))


def test_random_text_and_bytes_come_back_equal(site):
    chance = random.Random(4)
    letters = "\\\t\n\0'\"N🧾é%_`\r\x1a "
    texts = [
        None if chance.random() < 0.05 else "".join(chance.choices(letters, k=chance.randrange(9))) for _ in range(3000)
    ]
    codes = [0, 9, 10, 13, 39, 92, 0x41, 0xC3, 0xA9, 0xE0, 0xF0, 0x9F, 0xFF, 0x80]
    values = [None if chance.random() < 0.05 else bytes(chance.choices(codes, k=chance.randrange(9))) for _ in texts]
    batch = rows(n=range(len(texts)), t=texts, b=pa.array(values, pa.binary()))
    site.deliver(0, batch.slice(0, 7), batch.slice(7))
    assert site.ask("SELECT t, b FROM refund ORDER BY n") == list(zip(texts, values, strict=True))


def test_a_value_beyond_the_server_s_packet_is_refused_and_says_what_to_raise(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.driver().close()
    with pytest.raises(SchemaError, match="`v`") as refused:
        site.prepare(
            site.slot(0),
            rows(v=["x" * (17 << 20) if "MariaDB" in site.ask("SELECT version()")[0][0] else "x" * (65 << 20)]),
        )
    assert "max_allowed_packet" in refused.value.hint


# --- Tables


def test_names_may_hold_quotes_reserved_words_and_any_case(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, table="select `from`", way="prepared")
    site.deliver(
        0, rows(**{"order": [1], "it`s": ["a"], "Ünïcode": ["b"], "sp ace": [True], "a.b": [b"c"], "%s": [2.5]})
    )
    assert site.ask("SELECT `order`, `it``s`, `Ünïcode`, `sp ace`, `a.b` FROM `select ``from```") == [
        (1, "a", "b", 1, b"c")
    ]


def test_columns_are_matched_by_name_in_any_order_and_case(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.ask(
        "CREATE TABLE refund (id bigint AUTO_INCREMENT PRIMARY KEY, Amount bigint, note text, kind varchar(9) NOT NULL DEFAULT 'new', "
        "twice bigint AS (Amount * 2) STORED) ENGINE=InnoDB"
    )
    site.deliver(0, rows(note=["a", "b"], AMOUNT=[1, 2]))
    assert site.ask("SELECT id, Amount, note, kind, twice FROM refund ORDER BY id") == [
        (1, 1, "a", "new", 2),
        (2, 2, "b", "new", 4),
    ]


def test_zero_is_kept_in_a_numbered_column(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.ask("CREATE TABLE refund (id bigint AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB")
    site.deliver(0, rows(id=[0, 7]))
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(0,), (7,)]


@pytest.mark.parametrize(
    ("made", "batch", "message"),
    [
        ("(id bigint)", rows(id=[1], amont=[2]), "has no column `amont`"),
        ("(id bigint, amount bigint NOT NULL)", rows(id=[1]), "`amount` (bigint"),
        ("(id bigint)", rows(id=[1], ID=[2]), "twice"),
        ("(id bigint)", rows(**{"id": [1], "x" * 65: [1]}), "65 characters"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_before_the_first_one(mysql_url, tmp_path, made, batch, message):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.ask(f"CREATE TABLE refund {made} ENGINE=InnoDB")
    site.driver().close()
    with pytest.raises(SchemaError) as refused:
        site.sink.open_writer(site.binding, site.slot(0), batch.schema)
    assert message in refused.value.message
    assert refused.value.hint


def test_a_missing_table_is_refused_where_none_is_to_be_made(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared", create=False)
    site.driver().close()
    with pytest.raises(SchemaError, match="there is no table"):
        site.prepare(site.slot(0), rows(id=[1]))


@pytest.mark.parametrize("way", ["prepared", "spooled"])
def test_columns_are_added_where_that_is_asked_for(mysql_url, tmp_path, way):
    site = Site.of(mysql_url, tmp_path, way=way, evolve="add_columns")
    site.deliver(0, rows(id=[1]))
    site.deliver(1, rows(id=[2], note=["new"]), fence=2)
    assert site.ask("SELECT id, note FROM refund ORDER BY id") == [(1, None), (2, "new")]


@pytest.mark.parametrize("way", ["prepared", "spooled"])
@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_a_table_without_transactions_is_refused_and_the_story_told(mysql_url, tmp_path, way, engine):
    site = Site.of(mysql_url, tmp_path, way=way)
    if not site.ask(f"SELECT 1 FROM information_schema.engines WHERE engine = '{engine}'"):
        pytest.skip(f"this server has no {engine}")
    site.driver().close()
    site.ask(f"CREATE TABLE refund (id bigint) ENGINE={engine}")
    told = f"engine {engine}, which has no transactions: rows would be visible as soon as they are written, and stay after an abort"
    with pytest.raises(SchemaError) as refused:
        site.sink.open_writer(site.binding, site.slot(0), rows(id=[1]).schema)
    assert told in refused.value.message
    assert "ENGINE=InnoDB" in refused.value.hint
    with pytest.raises(SchemaError) as refused:
        site.sink.open_committer(site.binding, 2).raise_fence()
    assert told in refused.value.message


def test_a_view_is_refused(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, way="prepared")
    site.ask("CREATE TABLE real_one (id bigint) ENGINE=InnoDB")
    site.ask("CREATE VIEW refund AS SELECT * FROM real_one")
    with pytest.raises(SchemaError, match="is a view"):
        site.driver()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("CREATE TABLE refund (id bigint PRIMARY KEY) ENGINE=InnoDB", ["Duplicate entry '7'", "PRIMARY"]),
        ("CREATE TABLE refund (id bigint, CONSTRAINT small_ones CHECK (id < 5)) ENGINE=InnoDB", ["small_ones"]),
        (
            "CREATE TABLE refund (id bigint, CONSTRAINT of_an_order FOREIGN KEY (id) REFERENCES orders (id)) ENGINE=InnoDB",
            ["of_an_order"],
        ),
    ],
)
def test_a_broken_constraint_fails_the_slot_and_is_named_with_a_row_that_breaks_it(site, made, told):
    site.ask("CREATE TABLE orders (id bigint PRIMARY KEY) ENGINE=InnoDB")
    site.ask("INSERT INTO orders VALUES (1)")
    site.ask(made)
    site.driver().close()
    with pytest.raises(SinkError) as refused:
        site.prepare(site.slot(0), rows(id=[1, 7, 7]))
    assert all(word in refused.value.message for word in told)
    assert "the row is {id: '7'}" in refused.value.message
    assert "dead letters" in refused.value.hint
    assert site.ask("SELECT * FROM refund") == []
    assert site.prepared_branches() == []


def test_texts_and_bytes_of_all_lengths_arrive_with_nulls_between_them(site):
    sizes = [0, 1, 250, 251, 252, 65_535, 65_536]
    texts = [value for size in sizes for value in ("x" * size, None)]
    site.ask("CREATE TABLE refund (n int, v longtext, w longblob) ENGINE=InnoDB")
    site.deliver(0, rows(n=range(len(texts)), v=texts, w=[t and t.encode() for t in texts]))
    assert site.ask("SELECT v, w FROM refund ORDER BY n") == [(t, None if t is None else t.encode()) for t in texts]


def test_rows_that_fill_many_packets_and_one_that_fills_more_than_one_arrive_once(site, monkeypatch):
    monkeypatch.setattr("pakka.sinks._mysql_load._BULK_BYTES", 1000)
    monkeypatch.setattr("pakka.sinks._mysql_load._INSERT_BYTES", 1000)
    site.ask("CREATE TABLE refund (n int, v text) ENGINE=InnoDB")
    short, long = range(500), range(500, 502)
    site.deliver(0, rows(n=short, v=["x"] * len(short)))
    site.deliver(1, rows(n=long, v=["y" * 5000] * len(long)))
    assert site.ask("SELECT n, length(v) FROM refund ORDER BY n") == [
        *((n, 1) for n in short),
        *((n, 5000) for n in long),
    ]


def test_a_server_that_has_not_agreed_to_parameters_by_the_packet_gets_a_file(site, monkeypatch):
    monkeypatch.setattr("pakka.sinks._mysql_line._TAKES_BULK", 0)
    site.ask("CREATE TABLE refund (n int) ENGINE=InnoDB")
    site.deliver(0, rows(n=[1, 2]))
    assert site.ask("SELECT n FROM refund ORDER BY n") == [(1,), (2,)]
