"""Hard values: what goes in comes out, from Parquet, JSON and CSV, read by others than us."""

import base64
import csv
import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pakka.errors import ConfigError, SchemaError
from pakka.model.outcome import Kind
from pakka.sinks import _text
from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
from tests.unit.sinks.files_kit import Driver, epoch, output, read_pyarrow, staged

AT = datetime(2026, 1, 31, 23, 59, 59, 999999)
HARD = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "big": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "past_double": pa.array([2**53 + 1, None, -(2**53) - 1], pa.int64()),
        "small": pa.array([-128, 127, None], pa.int8()),
        "money": pa.array([Decimal("12345678901234567890.12"), Decimal("-0.01"), None], pa.decimal128(38, 2)),
        "tiny": pa.array([Decimal("1E-37"), Decimal("0"), None], pa.decimal128(38, 37)),
        "ratio": pa.array([0.1 + 0.2, 5.0, None], pa.float64()),
        "wild": pa.array([math.nan, math.inf, -math.inf], pa.float64()),
        "half": pa.array([0.1, 1e20, None], pa.float32()),
        "text": pa.array(['quote " back \\ line\n tab\t nul\0 comma,', "", None]),
        "unicode": pa.array(["नमस्ते 🧾", "\u2028", "é"]),
        "flag": pa.array([True, False, None]),
        "day": pa.array([date(1969, 12, 31), date(9999, 12, 31), None]),
        "at": pa.array([AT, datetime(1900, 1, 1), None], pa.timestamp("us")),
        "at_utc": pa.array([AT, datetime(1900, 1, 1), None], pa.timestamp("us", "UTC")),
        "at_ist": pa.array([AT, datetime(1900, 1, 1), None], pa.timestamp("us", "Asia/Kolkata")),
        "clock": pa.array([time(1, 2, 3, 4), time(23, 59, 59, 999999), None], pa.time64("us")),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "list": pa.array([[1, None, 3], [], None], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1, "b": 'x"'}, {"a": None, "b": None}, None]),
        "map": pa.array([[("k", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int64())),
        "deep": pa.array([[{"xs": [[1.5], None], "m": [("k", [b"\x01"])]}], [None], None],
                         pa.list_(pa.struct([("xs", pa.list_(pa.list_(pa.float64()))),
                                             ("m", pa.map_(pa.string(), pa.list_(pa.binary())))]))),
        "word": pa.array(["a", "b", None]).dictionary_encode(),
        "nothing": pa.nulls(3),
    }
)  # fmt: skip


def deliver(sink, rows):
    driver = Driver(sink, 1)
    writer = driver.writer(0, schema=rows.schema)
    for batch in rows.to_batches():
        writer.write(batch.slice(0, 1))
        writer.write(batch.slice(1))
    assert driver.committer.commit_epoch(epoch(0), [writer.prepare("00")]).kind is Kind.COMMITTED
    return output(sink)


def same(got, expected):
    """Equal, with NaN equal to itself."""
    assert repr(got) == repr(expected)


def test_parquet_gives_hard_values_back_with_their_types(tmp_path):
    path = deliver(ParquetSink(str(tmp_path / "out")), HARD)
    got = read_pyarrow(path).drop_columns("pakka_epoch")
    assert got.schema.types == HARD.schema.types
    same(got.to_pylist(), HARD.to_pylist())


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "lz4", "none"])
def test_every_compression_is_readable(tmp_path, compression):
    path = deliver(ParquetSink(str(tmp_path / "out"), compression=compression), HARD.select(["id", "text"]))
    assert read_pyarrow(path)["text"].to_pylist() == HARD["text"].to_pylist()


def test_a_column_that_is_never_null_is_one_that_may_be_for_readers(tmp_path):
    rows = pa.table([pa.array([1])], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert read_pyarrow(deliver(ParquetSink(str(tmp_path / "out")), rows)).schema.field("id").nullable


# JSON


def plain(value):
    """What JSON holds of a value: the rule the sink promises, written once more and without Arrow."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        text = value.astimezone(UTC) if value.tzinfo else value
        return text.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + ("Z" if value.tzinfo else "")
    if isinstance(value, time):
        return value.strftime("%H:%M:%S.%f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {str(k): plain(v) for k, v in value}
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def test_json_holds_hard_values(tmp_path):
    path = deliver(JsonSink(str(tmp_path / "out")), HARD)
    (file,) = path.rglob("part-*.json")
    rows = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    exact = [json.loads(line, parse_float=Decimal) for line in file.read_text().split("\n")[:-1]]
    for row, precise, expected in zip(rows, exact, HARD.to_pylist(), strict=True):
        assert list(row) == HARD.column_names
        for column, value in expected.items():
            if column in ("money", "tiny"):
                assert precise[column] == value
            elif column == "half" and value is not None:
                assert row[column] == float(str(pa.scalar(value, pa.float32()).cast(pa.string())))
            elif column == "map" and value == []:
                assert row[column] == {}
            else:
                assert row[column] == plain(value), column


def test_duckdb_reads_json_with_types(tmp_path):
    path = deliver(
        JsonSink(str(tmp_path / "out")), HARD.select(["id", "big", "ratio", "text", "at_utc", "day", "list"])
    )
    with duckdb.connect() as connection:
        query = f"FROM read_json('{path}/**/*.json', hive_partitioning = true) ORDER BY id"
        rows = connection.sql(query).to_arrow_table()
    assert rows["big"].to_pylist() == HARD["big"].to_pylist()
    assert rows["text"].to_pylist() == HARD["text"].to_pylist()
    assert rows["day"].to_pylist() == HARD["day"].to_pylist()
    assert rows["list"].to_pylist() == HARD["list"].to_pylist()
    assert pa.types.is_floating(rows.schema.field("ratio").type)
    assert rows["pakka_epoch"].to_pylist() == [0, 0, 0]


def test_whole_doubles_stay_doubles_for_readers_that_guess():
    text = bytes(_text.json_lines(pa.record_batch({"x": [5.0, -3.0, 1e20, 0.5]}))).decode()
    assert text == '{"x":5.0}\n{"x":-3.0}\n{"x":1e+20}\n{"x":0.5}\n'


leaf = st.one_of(st.none(), st.text())
VALUES = {
    "text": (pa.string(), leaf),
    "large": (pa.large_string(), leaf),
    "long": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.none() | st.floats()),
    "bytes": (pa.binary(), st.none() | st.binary(max_size=8)),
    "at": (pa.timestamp("us", "UTC"), st.none() | st.datetimes(timezones=st.just(UTC))),
    "texts": (pa.list_(pa.string()), st.none() | st.lists(leaf, max_size=3)),
    "nested": (
        pa.struct([("a", pa.list_(pa.struct([("b", pa.string()), ("c", pa.float64())])))]),
        st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | st.lists(st.none() | st.fixed_dictionaries({"b": leaf, "c": st.floats()}), max_size=3)}
        ),
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_json_of_any_value_reads_back(kind):
    arrow, values = VALUES[kind]

    @settings(deadline=None)
    @given(st.lists(values, min_size=1, max_size=8), st.integers(0, 3), st.text(max_size=5))
    def check(column, skip, name):
        batch = pa.record_batch([pa.array(column, arrow)], names=[name]).slice(skip)
        lines = bytes(_text.json_lines(batch)).decode().split("\n")[:-1]
        got = [json.loads(line)[name] for line in lines]
        assert got == [plain(value) for value in column[skip:]]

    check()


@settings(deadline=None)
@given(st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=3), min_size=1, max_size=4))
def test_json_of_a_map_has_text_for_keys(entries):
    kind = pa.map_(pa.int32(), pa.string())
    batch = pa.record_batch({"m": pa.array([list(entries.items()), None, []], kind)})
    got = [json.loads(line)["m"] for line in bytes(_text.json_lines(batch)).decode().split("\n")[:-1]]
    assert got == [{str(k): v for k, v in entries.items()}, None, {}]


def test_json_of_a_map_writes_its_keys_as_it_writes_values():
    entries = pa.array([0, 1, 2, 3, 4])
    numbers = pa.array([5.0, 0.25, float("nan"), float("inf"), float("-inf")])
    words = pa.array(['a"b', "c\\", "x\ny", "\x01", "चाय"]).dictionary_encode()
    ends = pa.array([0, 5], pa.int32())
    batch = pa.record_batch(
        {name: pa.MapArray.from_arrays(ends, keys, entries) for name, keys in (("n", numbers), ("w", words))}
    )
    got = json.loads(bytes(_text.json_lines(batch)).decode())
    assert list(got["n"]) == ["5.0", "0.25", "NaN", "Infinity", "-Infinity"]
    assert list(got["w"]) == ['a"b', "c\\", "x\ny", "\x01", "चाय"]


# CSV


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(alphabet=st.characters(exclude_characters="\r\0")), st.text(max_size=3)), min_size=1),
    st.sampled_from([",", ";", "|", "\t"]),
)
def test_csv_text_reads_back_by_the_book(rows, delimiter):
    """RFC 4180 as Python's own reader knows it; a lone CR and NUL are beyond that reader."""
    rows = [(a.replace("\r", ""), b.replace("\r", "").replace("\0", "")) for a, b in rows]
    batch = pa.record_batch({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    text = _text.csv_header(["a", "b"], delimiter).decode() + bytes(_text.csv_lines(batch, delimiter)).decode()
    got = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    assert got == [["a", "b"], *([a, b] for a, b in rows)]


def test_csv_tells_a_null_from_an_empty_text():
    batch = pa.record_batch({"a": ["", None], "b": pa.array([None, 1], pa.int64())})
    assert bytes(_text.csv_lines(batch, ",")) == b'"",\n,1\n'


def test_a_null_alone_in_its_csv_row_is_not_an_empty_line():
    """Readers pass over empty lines: the row would be lost."""
    batch = pa.record_batch({"a": pa.array([1, None, 3], pa.int64())})
    assert bytes(_text.csv_lines(batch, ",")) == b'1\n""\n3\n'


def test_csv_holds_hard_values(tmp_path):
    path = deliver(CsvSink(str(tmp_path / "out")), HARD)
    (file,) = path.rglob("*.csv")
    rows = list(csv.DictReader(io.StringIO(file.read_text().replace("\0", "<NUL>"), newline="")))
    assert list(rows[0]) == HARD.column_names
    first = rows[0]
    assert first["big"] == str(2**63 - 1)
    assert first["money"] == "12345678901234567890.12"
    assert float(first["ratio"]) == 0.1 + 0.2
    assert [row["wild"] for row in rows] == ["NaN", "Inf", "-Inf"]
    assert first["at_ist"] == first["at_utc"] == "2026-01-31T23:59:59.999999Z"
    assert first["at"] == "2026-01-31T23:59:59.999999"
    assert base64.b64decode(first["raw"]) == b"\x00\xff"
    assert json.loads(first["list"]) == [1, None, 3]
    assert json.loads(first["map"]) == {"k": 1, '"': None}
    assert first["text"] == 'quote " back \\ line\n tab\t nul<NUL> comma,'
    assert [row["nothing"] for row in rows] == ["", "", ""]


def test_duckdb_reads_csv_with_types(tmp_path):
    columns = ["id", "big", "ratio", "unicode", "text", "at_utc", "day", "flag"]
    table = HARD.select(columns).set_column(4, "text", pa.array(['a "b"\nc', "", None]))
    path = deliver(CsvSink(str(tmp_path / "out")), table)
    with duckdb.connect() as connection:
        rows = connection.sql(
            f"FROM read_csv('{path}/**/*.csv', hive_partitioning = true) ORDER BY id"
        ).to_arrow_table()
    for column in ("id", "big", "ratio", "unicode", "day", "flag"):
        assert rows[column].to_pylist() == table[column].to_pylist(), column
    assert rows["text"].to_pylist()[0] == 'a "b"\nc'
    assert rows["pakka_epoch"].to_pylist() == [0, 0, 0]


def test_csv_without_a_header_has_none(tmp_path):
    path = deliver(CsvSink(str(tmp_path / "out"), header=False, delimiter=";"), HARD.select(["id", "unicode"]))
    (file,) = path.rglob("*.csv")
    assert file.read_text().splitlines()[0] == '1;"नमस्ते 🧾"'


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_a_delimiter_that_cannot_be_one_is_refused(delimiter):
    with pytest.raises(ConfigError, match="delimiter"):
        CsvSink("out", delimiter=delimiter)


# What does not fit


@pytest.mark.parametrize(
    ("kind", "sink"),
    [
        (pa.month_day_nano_interval(), ParquetSink),
        (pa.struct([]), ParquetSink),
        (pa.list_(pa.struct([])), ParquetSink),
        (pa.duration("us"), JsonSink),
        (pa.list_(pa.duration("us")), JsonSink),
        (pa.map_(pa.list_(pa.int32()), pa.int32()), JsonSink),
        (pa.month_day_nano_interval(), CsvSink),
    ],
)
def test_a_type_the_format_has_no_place_for_is_refused_by_column(tmp_path, kind, sink):
    driver = Driver(sink(str(tmp_path / "out")), 1)
    with pytest.raises(SchemaError, match=r"column `odd` is .* cannot hold; nothing was written"):
        driver.writer(0, schema=pa.schema([("id", pa.int64()), ("odd", kind)]))
    assert staged(driver.sink) == []


@pytest.mark.parametrize("sink", [ParquetSink, JsonSink, CsvSink])
def test_text_that_is_not_text_is_refused_before_it_is_staged(tmp_path, sink):
    """Spark lets bytes through as STRING, and DuckDB would refuse to read the whole file."""
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    driver = Driver(sink(str(tmp_path / "out")), 1)
    writer = driver.writer(0, schema=pa.schema([("name", pa.string())]))
    with pytest.raises(SchemaError, match="malformed rows") as caught:
        writer.write(pa.record_batch([bad], names=["name"]))
    assert "BINARY" in caught.value.hint


@pytest.mark.parametrize("kind", [JsonSink, CsvSink])
@pytest.mark.parametrize(
    ("value", "arrow"),
    [(2932897, pa.date32()), (-719163, pa.date32()), (2**62, pa.timestamp("us"))],
)
def test_a_date_that_has_no_text_is_refused_and_not_written_as_a_remark(tmp_path, kind, value, arrow):
    rows = pa.table({"id": [1], "at": pa.array([value], arrow)})
    driver = Driver(kind(str(tmp_path / "out")), 1)
    writer = driver.writer(0, schema=rows.schema)
    (batch,) = rows.to_batches()
    writer.write(batch)
    with pytest.raises(SchemaError, match="column `at` of epoch 0 has a year outside"):
        writer.prepare("00")
    writer.discard()
    assert staged(driver.sink) == []
