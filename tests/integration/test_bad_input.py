"""Bad input: a clear error or the dead letters, and nothing lost. Once it is mended, every good row is there once."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pakka
from pakka.errors import AbortedError, ConfigError, PakkaError, QualityError, RefusedError, SchemaError, SinkError
from pakka.model.rule import OnFail, Rule
from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
from pakka.sinks.sqlite import SqliteSink
from tests.integration.conftest import in_turn, write_lines
from tests.integration.outputs import read_files, read_sqlite

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, merchant STRING, amount BIGINT"
MEND = "mend the cause and run again"


def settlements(first: int, count: int) -> list[dict]:
    return [{"id": i, "merchant": f"m{i % 3}", "amount": i * 10} for i in range(first, first + count)]


def files(**options) -> pakka.FilesSource:
    return pakka.FilesSource("data", **{"schema": SCHEMA, **options})


def write(path: str, content: str | bytes) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    in_turn(target)


def write_parquet(path: str, rows: list[dict] | pa.Table) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path)
    in_turn(Path(path))


def refused(pipeline: pakka.Pipeline, kind: type[PakkaError], words: str) -> PakkaError:
    """Run it, and it must be refused with these words and with a hint."""
    with pytest.raises(kind, match=words) as caught:
        pakka.run(pipeline)
    assert caught.value.hint
    return caught.value


# Lines that are no good, and each of them to be kept as it is.
MALFORMED = [
    '{"id": 100, "merchant": ',
    "not JSON at all",
    "[1, 2]",
    "null",
    '"text"',
    '{"id": 9223372036854775808, "merchant": "m1", "amount": 1}',
    '{"id": 1.5, "merchant": "m1", "amount": 1}',
    '{"id": true, "merchant": "m1", "amount": 1}',
    '{"id": 101, "merchant": "m1", "amount": "12"}',
    '{"id": 102, "merchant": "m1", "amount": NaN}',
]


@pytest.mark.parametrize("process", [None, "SELECT id FROM source"], ids=["whole", "one-column"])
def test_malformed_lines_of_every_kind_are_dead_letters_as_they_were(spark, here, memory, process):
    write_lines(here / "data/0.json", [*settlements(0, 5), *MALFORMED, *settlements(5, 5)])
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, process, dead_letters=memory["dead"]))
    assert memory.column("out", "id") == list(range(10))
    assert memory.column("dead", "row") == sorted(MALFORMED)
    assert {tuple(d["rules"]) for d in memory.rows("dead")} == {("malformed",)}


def test_a_file_that_is_mended_in_place_is_delivered_once(spark, here, memory):
    """Spark has planned the epoch and will read the very same file again."""
    write_lines(here / "data/0.json", settlements(0, 5))
    write_lines(here / "data/1.json", [*settlements(5, 5), MALFORMED[0]])
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]})
    error = refused(
        pipeline, AbortedError, r"data/1\.json.*MALFORMED_RECORD.*the epoch was aborted and nothing of it is"
    )
    assert MEND in error.hint
    assert memory.rows("out") == []
    write_lines(here / "data/1.json", settlements(5, 5))
    pakka.run(pipeline)
    assert memory.column("out", "id") == list(range(10))


def test_bytes_that_are_no_text_do_not_hold_up_the_pipeline(spark, here):
    bad = b'{"id": 7, "merchant": "\xff\xfe", "amount": 1}\n'
    good = json.dumps(settlements(1, 1)[0]).encode() + b"\n"
    write("data/0.json", good + bad)
    sinks = {"out": ParquetSink("out/good")}
    pakka.run(pakka.Pipeline("refunds", files(), sinks, dead_letters=SqliteSink("out/dead.db", "dead")))
    assert [row["id"] for row in read_files("out/good")] == [1]
    [letter] = read_sqlite("out/dead.db", "dead")
    assert letter["row"] == '{"id": 7, "merchant": "\\xff\\xfe", "amount": 1}'


def test_an_archive_that_was_cut_off_is_an_error_that_names_it(spark, here, memory):
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in settlements(0, 5000)).encode())
    write("data/0.json.gz", whole[:-100])
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]}, dead_letters=memory["dead"])
    refused(pipeline, AbortedError, r"data/0\.json\.gz.*Unexpected end of input stream")
    assert memory.rows("out") == memory.rows("dead") == []
    write("data/0.json.gz", whole)
    pakka.run(pipeline)
    assert memory.column("out", "id") == list(range(5000))


def test_a_json_document_of_many_lines_wants_an_option_and_is_not_lost_without_it(spark, here, memory):
    write("data/0.json", json.dumps(settlements(0, 2), indent=1))
    pipeline = pakka.Pipeline("one", files(), {"out": memory["out"]}, dead_letters=memory["dead"])
    pakka.run(pipeline)
    assert memory.rows("out") == []
    assert "".join(memory.column("dead", "row")).count('"amount"') == 2
    whole = pakka.Pipeline("two", files(options={"multiLine": "true"}), {"out": memory["out2"]})
    pakka.run(whole)
    assert memory.column("out2", "id") == [0, 1]


def test_a_column_that_is_missing_breaks_the_rule_that_requires_it(spark, here, memory):
    write_lines(
        here / "data/0.json", [*settlements(0, 3), {"id": 3, "amount": 1}, {"id": 4, "merchant": None, "amount": 1}]
    )
    rules = (Rule.not_null("merchant"),)
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, None, rules, dead_letters=memory["dead"]))
    assert memory.column("out", "id") == [0, 1, 2]
    assert memory.column("dead", "row") == [
        '{"id":3,"merchant":null,"amount":1}',
        '{"id":4,"merchant":null,"amount":1}',
    ]


def test_nulls_in_a_required_column_stop_the_epoch_until_they_are_mended(spark, here, memory):
    write_lines(here / "data/0.json", [*settlements(0, 3), {"id": 3, "merchant": None, "amount": 1}])
    rules = (Rule.not_null("merchant", OnFail.FAIL),)
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]}, None, rules)
    error = refused(pipeline, QualityError, r"1 rows break not_null\(merchant\).*the epoch was aborted")
    assert "on_fail: dead_letter" in error.hint
    assert memory.rows("out") == []
    write_lines(here / "data/0.json", settlements(0, 4))
    pakka.run(pipeline)
    assert memory.column("out", "id") == list(range(4))


def test_a_type_that_changed_between_json_files_goes_to_the_dead_letters(spark, here, memory):
    pipeline = pakka.Pipeline(
        "refunds", files(max_files_per_epoch=1), {"out": memory["out"]}, dead_letters=memory["dead"]
    )
    write_lines(here / "data/0.json", settlements(0, 3))
    pakka.run(pipeline)
    changed = {"id": "R-3", "merchant": "m", "amount": 1}
    write_lines(here / "data/1.json", [changed, *settlements(4, 2)])
    pakka.run(pipeline)
    assert memory.column("out", "id") == [0, 1, 2, 4, 5]
    [letter] = memory.rows("dead")
    assert (json.loads(letter["row"]), letter["epoch"]) == (changed, 1)


# A Parquet file has no lines that could be set aside: it is read whole, or the epoch waits until it is mended.
BAD_PARQUET = {
    "text for a number": (pa.table({"id": ["x"], "merchant": ["m"], "amount": [1]}), r"column \[id\].*bigint.*BINARY"),
    "a number for text": (pa.table({"id": [1], "merchant": [5], "amount": [1]}), r"column \[merchant\].*string.*INT64"),
    "a fraction": (pa.table({"id": [1.5], "merchant": ["m"], "amount": [1]}), r"column \[id\].*bigint.*DOUBLE"),
    "two of one name": (pa.table({"id": [1], "ID": [2], "merchant": ["m"], "amount": [1]}), "duplicate field"),
    "cut off": (None, "is not a Parquet file"),
}


@pytest.mark.parametrize("name", BAD_PARQUET)
def test_a_parquet_file_that_does_not_fit_stops_the_epoch_until_it_is_mended(spark, here, memory, name):
    table, words = BAD_PARQUET[name]
    write_parquet("data/0.parquet", settlements(0, 3))
    write_parquet("data/1.parquet", settlements(3, 3) if table is None else table)
    if table is None:
        write("data/1.parquet", Path("data/1.parquet").read_bytes()[:-50])
    source = files(format="parquet", max_files_per_epoch=1)
    pipeline = pakka.Pipeline("refunds", source, {"out": memory["out"]}, dead_letters=memory["dead"])
    error = refused(pipeline, AbortedError, rf"data/1\.parquet.*{words}.*nothing of it is visible")
    assert MEND in error.hint
    assert memory.column("out", "id") == [0, 1, 2]
    write_parquet("data/1.parquet", settlements(3, 3))
    pakka.run(pipeline)
    assert memory.column("out", "id") == list(range(6))


def test_parquet_files_that_only_look_different_are_read(spark, here, memory):
    """A narrower number, other letters in the names, a column less, no rows, and nothing at all."""
    narrow = pa.table({"ID": pa.array([0], pa.int32()), "Merchant": ["m"], "amount": pa.array([1], pa.int32())})
    write_parquet("data/0.parquet", narrow)
    write_parquet("data/1.parquet", pa.table({"id": [1], "amount": [1]}))
    write_parquet("data/2.parquet", pa.Table.from_pylist(settlements(9, 1)).slice(0, 0))
    write("data/3.parquet", b"")
    pakka.run(pakka.Pipeline("refunds", files(format="parquet"), {"out": memory["out"]}))
    assert memory.column("out", "id") == [0, 1]
    assert {row["id"]: row["merchant"] for row in memory.rows("out")} == {0: "m", 1: None}


def csv(**options) -> pakka.FilesSource:
    return files(format="csv", **options)


def test_csv_lines_of_the_wrong_length_or_type_are_dead_letters(spark, here, memory):
    bad = ["2,m", "3,m,1,9", "4", "5,m,many", '6,"m', '7",1']
    write("data/0.csv", "id,merchant,amount\n0,m,1\n" + "\n".join(bad) + '\n\n1,"a ""good"", one",2\n')
    pakka.run(pakka.Pipeline("refunds", csv(), {"out": memory["out"]}, dead_letters=memory["dead"]))
    assert sorted((r["id"], r["merchant"], r["amount"]) for r in memory.rows("out")) == [
        (0, "m", 1),
        (1, 'a "good", one', 2),
    ]
    assert memory.column("dead", "row") == sorted(bad)


def test_csv_with_line_breaks_in_quotes_is_read_with_an_option(spark, here, memory):
    write("data/0.csv", 'id,merchant,amount\n0,"two\nlines",1\n1,m,2\n')
    pakka.run(pakka.Pipeline("refunds", csv(options={"multiLine": "true"}), {"out": memory["out"]}))
    assert {row["id"]: row["merchant"] for row in memory.rows("out")} == {0: "two\nlines", 1: "m"}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("merchant,id,amount", "Header: merchant, id, amount Schema: id, merchant, amount"),
        ("id,merchant", "Number of column in CSV header is not equal to number of fields in the schema"),
        ("0,m0,0", "Header: 0, m0, 0 Schema: id, merchant, amount"),
    ],
    ids=["other-order", "one-less", "no-header-at-all"],
)
def test_a_csv_header_that_names_other_columns_is_refused(spark, here, memory, header, words):
    """Spark alone would go by the places, and put merchants into amounts, or pass over the first row."""
    write("data/0.csv", f"{header}\n1,m,1\n")
    pipeline = pakka.Pipeline("refunds", csv(), {"out": memory["out"]}, dead_letters=memory["dead"])
    refused(pipeline, AbortedError, rf"data/0\.csv.*{words}")
    assert memory.rows("out") == memory.rows("dead") == []
    write("data/0.csv", "id,merchant,amount\n1,m,1\n")
    pakka.run(pipeline)
    assert memory.column("out", "id") == [1]


def test_csv_without_a_header_is_read_when_that_is_said(spark, here, memory):
    write("data/0.csv", "0,m,1\n1,m,1\n")
    write("data/1.csv", "")
    pakka.run(pakka.Pipeline("refunds", csv(options={"header": "false"}), {"out": memory["out"]}))
    assert memory.column("out", "id") == [0, 1]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_empty_files_are_epochs_without_rows(spark, here, memory, format):
    write(f"data/0.{format}", "")
    write(f"data/1.{format}", "id,merchant,amount\n" if format == "csv" else "\n\n")
    sinks = {"out": ParquetSink("out/rows"), "table": SqliteSink("out/rows.db", "rows")}
    source = files(format=format, max_files_per_epoch=1)
    pipeline = pakka.Pipeline("refunds", source, sinks, dead_letters=JsonSink("out/dead"))
    assert pakka.run(pipeline).rows_in == 0
    assert read_files("out/rows") == read_files("out/dead") == []
    write(f"data/2.{format}", "id,merchant,amount\n1,m,1\n" if format == "csv" else json.dumps(settlements(1, 1)[0]))
    pakka.run(pipeline)
    assert (
        [row["id"] for row in read_files("out/rows")]
        == [row["id"] for row in read_sqlite("out/rows.db", "rows")]
        == [1]
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id BIGNT", "schema 'id BIGNT' is not understood: .*BIGNT"),
        ("id", "schema 'id' is not understood: .*SYNTAX"),
        ("a`b INT", "is not understood: .*SYNTAX"),
        ("id BIGINT, ID STRING", "columns `id` and `ID`, which Spark does not tell apart"),
        ("id BIGINT, _corrupt_record STRING", "column `_corrupt_record`"),
        ("id BIGINT, _pakka_raw STRING", "column `_pakka_raw`, and pakka uses names that begin with `_pakka_`"),
    ],
)
@pytest.mark.parametrize("has_dead_letters", [True, False])
def test_a_schema_that_cannot_be_is_refused_before_anything_starts(
    spark, here, memory, schema, words, has_dead_letters
):
    write_lines(here / "data/0.json", settlements(0, 3))
    dead = memory["dead"] if has_dead_letters else None
    refused(
        pakka.Pipeline("refunds", files(schema=schema), {"out": memory["out"]}, dead_letters=dead), ConfigError, words
    )
    assert not Path(".pakka/state.db").exists()
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, dead_letters=dead))
    assert memory.column("out", "id") == [0, 1, 2]


def test_a_column_misspelt_in_select_is_named_with_the_right_one_and_nothing_is_lost(spark, here):
    write_lines(here / "data/0.json", settlements(0, 3))
    wrong = pakka.Output(ParquetSink("out/rows"), ("id", "merchnat"))
    error = refused(pakka.Pipeline("refunds", files(), {"out": wrong}), ConfigError, r"sinks\.out\.select.*merchnat")
    assert error.hint == "did you mean `merchant`?"
    assert not Path("out").exists()
    pakka.run(pakka.Pipeline("refunds", files(), {"out": pakka.Output(ParquetSink("out/rows"), ("id", "merchant"))}))
    assert [row["merchant"] for row in read_files("out/rows")] == ["m0", "m1", "m2"]


def blocked(kind: str):
    """A sink whose path lies under a file, where nobody can make anything, root neither."""
    Path("file").write_text("in the way")
    return {
        "parquet": lambda: ParquetSink("file/rows"),
        "json": lambda: JsonSink("file/deep/rows"),
        "csv": lambda: CsvSink("file"),
        "sqlite": lambda: SqliteSink("file/rows.db", "rows"),
        "not a database": lambda: SqliteSink("file", "rows"),
    }[kind]()


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "sqlite", "not a database"])
def test_a_sink_that_cannot_be_written_to_is_refused_and_nothing_is_lost(spark, here, kind):
    write_lines(here / "data/0.json", settlements(0, 3))
    other = ParquetSink("out/other")
    error = refused(
        pakka.Pipeline("refunds", files(), {"other": other, "out": blocked(kind)}), PakkaError, "`refunds.out`"
    )
    assert isinstance(error, RefusedError)
    assert "nothing was" in error.message
    assert Path("file").read_text() == "in the way"
    assert read_files("out/other") == []
    pakka.run(pakka.Pipeline("refunds", files(), {"other": other, "out": ParquetSink("out/rows")}))
    assert [row["id"] for row in read_files("out/rows")] == [row["id"] for row in read_files("out/other")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "sqlite:///file/state.db"}, "state store"),
        ({"spool": "file/spool"}, "`refunds.out`"),
        ({"checkpoint": "file/checkpoint"}, "checkpoint|Spark"),
    ],
)
def test_state_spool_and_checkpoint_that_cannot_be_written_to_are_refused(spark, here, change, words):
    Path("file").write_text("in the way")
    write_lines(here / "data/0.json", settlements(0, 3))
    sinks = {"out": SqliteSink("out/rows.db", "rows")}
    error = refused(pakka.Pipeline("refunds", files(), sinks, **change), PakkaError, words)
    assert error.exit_code == 1
    pakka.run(pakka.Pipeline("refunds", files(), sinks))
    assert [row["id"] for row in read_sqlite("out/rows.db", "rows")] == [0, 1, 2]


@pytest.mark.parametrize(
    "name", ["", "a b", "../up", "a/b", "naïve", "x" * 64, "a.b", "-a", "a;DROP", "a\n", "`a`", "😀"]
)
def test_a_pipeline_with_an_odd_name_is_refused_with_one_that_would_do(memory, name):
    with pytest.raises(ConfigError, match="is not allowed: letters, digits") as caught:
        pakka.Pipeline(name, files(), {"out": memory["out"]})
    likely = caught.value.hint.split("`")[1]
    assert pakka.Pipeline(likely, files(), {"out": memory["out"]}).name == likely


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink, CsvSink])
def test_two_pipelines_in_one_directory_are_refused_and_the_second_is_not_lost(spark, here, kind):
    write_lines(here / "data/0.json", settlements(0, 3))
    pakka.run(pakka.Pipeline("first", files(), {"out": kind("out/rows")}))
    second = pakka.Pipeline("second", files(), {"out": kind("out/../out/rows")})
    error = refused(second, SinkError, "belongs to sink `first.out`|holds epochs of sink `first.out`")
    assert "an output of its own" in error.hint
    assert [int(row["id"]) for row in read_files("out/rows")] == [0, 1, 2]
    pakka.run(pakka.Pipeline("second", files(), {"out": kind("out/second")}))
    assert [int(row["id"]) for row in read_files("out/second")] == [0, 1, 2]


def test_two_pipelines_may_fill_one_table_each_by_its_own_ledger(spark, here):
    write_lines(here / "data/0.json", settlements(0, 3))
    sinks = {"out": SqliteSink("out/rows.db", "rows")}
    for name in ("first", "second", "first", "second"):
        pakka.run(pakka.Pipeline(name, files(), sinks))
    assert sorted(row["id"] for row in read_sqlite("out/rows.db", "rows")) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("change", "words", "hint", "mend"),
    [
        (
            "ALTER TABLE rows RENAME COLUMN merchant TO shop",
            "has no column `merchant`",
            "ALTER TABLE",
            "ALTER TABLE rows RENAME COLUMN shop TO merchant",
        ),
        (
            "ALTER TABLE rows ADD COLUMN extra TEXT",
            r"has a column `extra` \(TEXT\) that the rows lack",
            "add it with `select`",
            "ALTER TABLE rows DROP COLUMN extra",
        ),
        (
            "DROP TABLE rows; CREATE TABLE rows (id TEXT, merchant TEXT, amount INTEGER)",
            "column `id` of table `rows` .* is declared TEXT, and the rows have INTEGER",
            "cast it in `select`",
            "DROP TABLE rows",
        ),
        (
            "DROP TABLE rows; CREATE TABLE rows (id INTEGER, merchant TEXT NOT NULL, amount INTEGER)",
            "column `merchant` .* has 1 nulls, which its table refuses",
            "add a `not_null` rule",
            "DROP TABLE rows",
        ),
        (
            "DROP TABLE rows; CREATE VIEW rows AS SELECT 1 AS id, 'm' AS merchant, 2 AS amount",
            "cannot take rows: cannot modify rows because it is a view",
            "a table that rows can be inserted into",
            "DROP VIEW rows",
        ),
    ],
    ids=["renamed", "added", "other-type", "not-null", "view"],
)
def test_a_sqlite_table_that_no_longer_fits_stops_the_epoch_until_it_is_mended(spark, here, change, words, hint, mend):
    pipeline = pakka.Pipeline("refunds", files(), {"out": SqliteSink("out/rows.db", "rows")})
    write_lines(here / "data/0.json", settlements(0, 3))
    pakka.run(pipeline)
    with closing(sqlite3.connect("out/rows.db")) as db:
        db.executescript(change)
    write_lines(here / "data/1.json", [{"id": 3, "merchant": None, "amount": 1}])
    error = refused(pipeline, SchemaError, words)
    assert hint in error.hint
    assert "nothing was written" in error.message
    with closing(sqlite3.connect("out/rows.db")) as db:
        db.executescript(mend)
    pakka.run(pipeline)
    assert [row["id"] for row in read_sqlite("out/rows.db", "rows")][-1] == 3


ODD_NAMES = [
    "a`b",
    'a"b',
    "a'b",
    "a;DROP TABLE rows;--",
    "a.b",
    "a b",
    "a/b",
    "a\\b",
    "ünï₹😀",
    "1",
    "select",
    "%s",
    "${env:HOME}",
]


def odd_rows(count: int) -> list[dict]:
    return [{"id": i, **{name: f"{i} {name}" for name in ODD_NAMES}} for i in range(count)]


@pytest.mark.parametrize("is_inferred", [True, False])
def test_names_of_columns_reach_no_sql_unquoted(spark, here, is_inferred):
    write_lines(here / "data/0.json", odd_rows(3))
    columns = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in ODD_NAMES)
    sinks = {
        "parquet": ParquetSink("out/parquet"),
        "json": JsonSink("out/json"),
        "csv": CsvSink("out/csv"),
        "sqlite": SqliteSink("out/rows.db", "rows"),
    }
    source = files(schema=None if is_inferred else f"id BIGINT, {columns}")
    rules = tuple(Rule.not_null(name) for name in ODD_NAMES if "." not in name)
    pakka.run(pakka.Pipeline("refunds", source, sinks, None, rules, dead_letters=JsonSink("out/dead")))
    wanted = odd_rows(3)
    assert read_files("out/parquet") == wanted
    assert read_files("out/json") == wanted
    assert read_sqlite("out/rows.db", "rows") == wanted
    assert [{**row, "id": int(row["id"])} for row in read_files("out/csv")] == wanted
    assert read_files("out/dead") == []


def test_a_row_of_odd_names_that_breaks_a_rule_is_a_whole_dead_letter(spark, here, memory):
    rows = [{**row, "a`b": None} for row in odd_rows(2)]
    write_lines(here / "data/0.json", rows)
    columns = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in ODD_NAMES)
    rules = (
        Rule.not_null("a`b"),
        Rule.regex("a'b", '^it\'s \\\\ "no"; --$'),
        Rule.one_of("a;DROP TABLE rows;--", ["'"]),
    )
    source = files(schema=f"id BIGINT, {columns}")
    pakka.run(pakka.Pipeline("refunds", source, {"out": memory["out"]}, None, rules, dead_letters=memory["dead"]))
    assert memory.rows("out") == []
    assert sorted((json.loads(d["row"]) for d in memory.rows("dead")), key=lambda r: r["id"]) == rows
    assert all(len(d["rules"]) == 3 for d in memory.rows("dead"))


@pytest.mark.parametrize("table", ['rows"; DROP TABLE rows; --', "a'b`c;d", "ünï ₹😀", "select", "%s ?", "a.b"])
def test_the_name_of_a_table_is_only_a_name(spark, here, table):
    write_lines(here / "data/0.json", settlements(0, 3))
    pakka.run(pakka.Pipeline("refunds", files(), {"out": SqliteSink("out/rows.db", table)}))
    assert [row["id"] for row in read_sqlite("out/rows.db", table)] == [0, 1, 2]


@pytest.mark.parametrize(
    "name",
    ["a b", 'it\'s "so"; `x`', "ünï₹😀", "100%41", "a#b&c=d", "~", "a?b", "[a] {b,c} *", "new\\nline", "$HOME ${x}"],
)
def test_paths_may_have_any_name(spark, tmp_path, monkeypatch, name):
    """The current directory, and with it source, checkpoint, state, spool and sinks, relative and absolute."""
    root = tmp_path / name
    root.mkdir()
    monkeypatch.chdir(root)
    write_lines(root / "data" / f"{name}.json", settlements(0, 3))
    write_lines(root / "data" / "bad.json", [MALFORMED[0]])
    sinks = {"files": ParquetSink(f"out/{name}"), "table": SqliteSink(str(root / f"out/{name}.db"), "rows")}
    dead = JsonSink(f"dead/{name}")
    pipeline = pakka.Pipeline("refunds", files(max_files_per_epoch=1), sinks, dead_letters=dead)
    pakka.run(pipeline)
    pakka.run(pipeline)
    assert [row["id"] for row in read_files(root / "out" / name)] == [0, 1, 2]
    assert [row["id"] for row in read_sqlite(root / f"out/{name}.db", "rows")] == [0, 1, 2]
    assert [row["row"] for row in read_files(root / "dead" / name)] == [MALFORMED[0]]


ODD_FILES = ["plain.json", "odd [1].json", "{3f2504e0}.json", "really?.json"]


def write_odd_files(here: Path) -> list[int]:
    for number, name in enumerate(ODD_FILES):
        write_lines(here / "data" / name, [*settlements(number * 3, 3), f'{{"id": {number}, "merchant": 1'])
    return list(range(len(ODD_FILES) * 3))


@pytest.mark.parametrize("process", [None, "SELECT id FROM source"], ids=["whole", "one-column"])
def test_files_that_spark_reads_several_times_are_delivered_once(spark, here, memory, process):
    """Of several files, some with names that could be globs, Spark 4.3 alone would hand over rows many times."""
    wanted = write_odd_files(here)
    write_lines(here / "data/wrong.json", ['{"id": 99, "merchant": "m", "amount": "many"}'])
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]}, process, dead_letters=memory["dead"])
    assert pakka.run(pipeline).epochs == 1
    assert memory.column("out", "id") == wanted
    assert len(memory.rows("dead")) == len(ODD_FILES) + 1


def test_a_stream_of_files_that_spark_reads_several_times_is_refused(spark, here, memory):
    wanted = write_odd_files(here)

    def run(name: str, **options) -> None:
        callback = pakka.deliver(to=[memory["out"]], pipeline=name)
        stream = spark.readStream.schema(SCHEMA).options(mode="DROPMALFORMED", **options).json(str(here / "data"))
        writer = stream.writeStream.option("checkpointLocation", str(here / name)).trigger(availableNow=True)
        try:
            writer.foreachBatch(callback).start().awaitTermination()
        finally:
            callback.close()

    with pytest.raises(Exception, match=r"Spark reads some of its 4 files several times.*\.json could be a glob"):
        run("together")
    assert memory.rows("out") == []
    run("one-by-one", maxFilesPerTrigger=1)
    assert memory.column("out", "id") == wanted


def test_a_directory_whose_name_is_no_glob_is_still_searched_by_one(spark, here, memory):
    write_lines(here / "data {1}/a/0.json", settlements(0, 3))
    write_lines(here / "data {1}/b/1.json", settlements(3, 3))
    source = pakka.FilesSource("data {1}/[ab]/*.json", schema=SCHEMA, max_files_per_epoch=1)
    pakka.run(pakka.Pipeline("refunds", source, {"out": memory["out"]}))
    assert memory.column("out", "id") == list(range(6))
