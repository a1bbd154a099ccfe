"""Partitions: every row in the directory of its value, whatever the value looks like, and read back as it was."""

import os
from collections import Counter
from datetime import date

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pakka.errors import SchemaError, SinkError
from pakka.model.outcome import Kind
from pakka.sinks._layout import check_columns, escape, parse_epoch_directory, split
from tests.unit.sinks.files_kit import Driver, epoch, output, sink_at, staged

ODD = [
    "plain",
    "with space",
    " edges ",
    "a/b",
    "../../up",
    "..",
    ".",
    "100%",
    "%2F",
    "a=b",
    "a:b",
    "back\\slash",
    "'single' \"double\"",
    "#?*",
    "{[^]}",
    "tab\tline\nreturn\r",
    "\x01\x1f\x7f",
    "नमस्ते",
    "emoji 🧾",
    "null",
    "NULL",
    "a&b;c|d<e>f~g`h$i!",
    "+plus+",
    "-1",
    "1e5",
    "true",
]


def unescape(text):
    """Spark's own rule for reading a name: `%XX` is one character."""
    out, i = "", 0
    while i < len(text):
        if text[i] == "%" and i + 2 < len(text):
            out, i = out + chr(int(text[i + 1 : i + 3], 16)), i + 3
        else:
            out, i = out + text[i], i + 1
    return out


def deliver(tmp_path, rows, partition_by):
    sink = sink_at(tmp_path, partition_by=partition_by)
    driver = Driver(sink, 1)
    writer = driver.writer(0, schema=rows.schema)
    for batch in rows.to_batches(max_chunksize=7):
        writer.write(batch)
    assert driver.committer.commit_epoch(epoch(0), [writer.prepare("00")]).kind is Kind.COMMITTED
    return output(sink)


def read_pyarrow(path, columns):
    schema = pa.schema([("pakka_epoch", pa.int64()), *columns.items()])
    return ds.dataset(path, partitioning=ds.partitioning(schema, flavor="hive")).to_table()


def read_duckdb(path, columns):
    names = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.date32(): "DATE", pa.bool_(): "BOOLEAN"}
    types = ", ".join(f"'{column}': {names[kind]}" for column, kind in columns.items())
    with duckdb.connect() as connection:
        query = f"FROM read_parquet('{path}/**/*.parquet', hive_partitioning = true, hive_types = {{{types}}})"
        return connection.sql(query).to_arrow_table()


@pytest.mark.parametrize("reader", [read_pyarrow, read_duckdb])
def test_odd_values_are_read_back_as_they_were(tmp_path, reader):
    values = [*ODD, None] * 2
    path = deliver(tmp_path, pa.table({"id": range(len(values)), "country": values}), ("country",))
    rows = reader(path, {"country": pa.string()})
    assert dict(zip(rows["id"].to_pylist(), rows["country"].to_pylist(), strict=True)) == dict(enumerate(values))
    assert set(rows["pakka_epoch"].to_pylist()) == {0}


@pytest.mark.parametrize("reader", [read_pyarrow, read_duckdb])
def test_several_columns_of_several_types_are_read_back(tmp_path, reader):
    rows = pa.table(
        {
            "id": range(60),
            "day": pa.array([date(2026, 1, 1 + n % 5) if n % 6 else None for n in range(60)]),
            "is_big": pa.array([n % 2 == 0 for n in range(60)]),
            "shop": pa.array([(n % 3 - 1) * 10**12 for n in range(60)], pa.int64()),
            "merchant": pa.array([f"m/{n % 2}" for n in range(60)]).dictionary_encode(),
        }
    )
    path = deliver(tmp_path, rows, ("day", "is_big", "shop", "merchant"))
    columns = {"day": pa.date32(), "is_big": pa.bool_(), "shop": pa.int64(), "merchant": pa.string()}
    got = reader(path, columns).sort_by("id").select(["id", *columns])
    assert got.to_pylist() == rows.to_pylist()


def test_files_do_not_hold_the_partition_columns(tmp_path):
    path = deliver(tmp_path, pa.table({"id": [1, 2], "country": ["IN", "NP"]}), ("country",))
    assert sorted(os.listdir(path / "pakka_epoch=0")) == ["_pakka.manifest", "country=IN", "country=NP"]
    for fragment in ds.dataset(path).get_fragments():
        assert fragment.physical_schema.names == ["id"]


def test_an_empty_text_is_a_null_as_in_hive_and_spark(tmp_path):
    """Spark cannot read a directory `country=` at all, so it writes both to the same place, and so do we."""
    path = deliver(tmp_path, pa.table({"id": [1, 2], "country": ["", None]}), ("country",))
    assert "country=__HIVE_DEFAULT_PARTITION__" in os.listdir(path / "pakka_epoch=0")
    rows = read_duckdb(path, {"country": pa.string()})
    assert Counter(rows["country"].to_pylist()) == {None: 2}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("x=y", "x%3Dy"),
        ("12:30", "12%3A30"),
        ("a b", "a b"),
        ("\"#'*?\\{[]^", "%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
        ("\n\x7f\x00", "%0A%7F%00"),
        ("ü&;|<>~", "ü&;|<>~"),
    ],
)
def test_names_are_escaped_by_sparks_rules(value, name):
    assert escape(value) == name


@settings(deadline=None)
@given(st.text())
def test_every_name_is_one_part_of_a_path_and_reads_back(text):
    name = escape(text)
    assert "/" not in name
    assert "\0" not in name
    assert unescape(name) == text


keys = st.lists(st.tuples(st.none() | st.text(max_size=2), st.none() | st.integers(-2, 2)), min_size=1, max_size=40)


@settings(deadline=None)
@given(keys, st.integers(1, 5))
def test_split_keeps_every_row_once_in_its_own_place(rows, chunk):
    texts, numbers = zip(*rows, strict=True)
    whole = pa.table({"a": pa.array(texts, pa.string()), "id": range(len(rows)), "b": pa.array(numbers, pa.int32())})
    table = pa.Table.from_batches(whole.to_batches(max_chunksize=chunk))
    got = {}
    for directory, part in split(table, ("a", "b")):
        assert part.column_names == ["id"]
        for number in part["id"].to_pylist():
            assert number not in got
            got[number] = directory
    default = "__HIVE_DEFAULT_PARTITION__"
    expected = {
        i: f"a={escape(a) if a else default}/b={b if b is not None else default}" for i, (a, b) in enumerate(rows)
    }
    assert got == expected


def test_a_column_that_is_not_there_is_refused_with_the_nearest_name():
    with pytest.raises(SchemaError, match="partition_by names `contry`") as caught:
        check_columns("sink `refunds.out`", pa.schema([("id", pa.int64()), ("country", pa.string())]), ("contry",))
    assert caught.value.hint == "did you mean `country`?"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("id", "country"), "names every column"),
        (("country", "country"), "a column twice"),
        (("_hidden",), "begin with `_`"),
        (("amount",), "which is double"),
        (("tags",), "which is list"),
        (("raw",), "which is binary"),
        (("at",), "which is timestamp"),
    ],
)
def test_columns_that_no_reader_could_read_back_are_refused(columns, words):
    kinds = {
        "_hidden": pa.string(),
        "amount": pa.float64(),
        "tags": pa.list_(pa.string()),
        "raw": pa.binary(),
        "at": pa.timestamp("us"),
    }
    fields = [("id", pa.int64()), ("country", pa.string()), *((c, kinds[c]) for c in columns if c in kinds)]
    with pytest.raises(SchemaError, match=words):
        check_columns("sink `refunds.out`", pa.schema(fields), columns)


@pytest.mark.parametrize("name", ["id", "ID"])
def test_two_columns_that_readers_take_for_one_are_refused(name):
    with pytest.raises(SchemaError, match=f"two columns `id` and `{name}`"):
        check_columns("sink `refunds.out`", pa.schema([("id", pa.int64()), (name, pa.string())]), ())


@pytest.mark.parametrize("name", ["pakka_epoch", "Pakka_Epoch"])
def test_a_column_named_like_the_epochs_directory_is_refused(tmp_path, name):
    driver = Driver(sink_at(tmp_path), 1)
    with pytest.raises(SchemaError, match="which is the column that readers get"):
        driver.writer(0, schema=pa.schema([("id", pa.int64()), (name, pa.int64())]))
    assert staged(driver.sink) == []


def test_a_value_too_long_for_a_name_is_refused_and_says_so(tmp_path):
    driver = Driver(sink_at(tmp_path, partition_by=("country",)), 1)
    rows = pa.record_batch({"id": [1], "country": ["x" * 300]})
    writer = driver.writer(0, schema=rows.schema)
    writer.write(rows)
    with pytest.raises(SinkError, match="File name too long") as caught:
        writer.prepare("00")
    assert "partition by another column" in caught.value.hint
    writer.discard()
    assert staged(driver.sink) == []


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_the_name_of_an_epochs_directory_reads_back(number):
    assert parse_epoch_directory(f"pakka_epoch={number}") == number
    assert parse_epoch_directory(f"pakka_epoch=0{number}") is None
