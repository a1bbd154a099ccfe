"""Whole pipelines on Spark into real sinks, read back by Spark, DuckDB, pandas and sqlite3."""

import base64
import datetime
import json
import os
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pakka
from pakka.errors import SchemaError
from pakka.model.event import Delivered, Started, Stopped
from pakka.model.rule import Rule
from pakka.sinks.console import ConsoleSink
from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
from pakka.sinks.sqlite import SqliteSink
from tests.integration.conftest import write_lines
from tests.integration.outputs import read_files, read_sqlite

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, merchant STRING, amount BIGINT"


def settlements(first: int, count: int) -> list[dict]:
    return [{"id": i, "merchant": f"m{i % 3}", "amount": i * 10} for i in range(first, first + count)]


def files(**options) -> pakka.FilesSource:
    return pakka.FilesSource("data", **{"schema": SCHEMA, **options})


# One row of hard values and one of nulls. What a format cannot tell apart is said in its test.
COLUMNS = {
    "tiny": "CAST(-128 AS TINYINT)",
    "small": "CAST(32767 AS SMALLINT)",
    "whole": "-2147483648",
    "long": "-9223372036854775807L - 1",
    "single": "CAST(1.5 AS FLOAT)",
    "double": "0.1D",
    "nan": "CAST('NaN' AS DOUBLE)",
    "endless": "CAST('-Infinity' AS DOUBLE)",
    "big": "CAST('-12345678901234567890123456789012345678' AS DECIMAL(38,0))",
    "money": "CAST('99999999999999999999.999999999999999999' AS DECIMAL(38,18))",
    "fee": "CAST('-0.01' AS DECIMAL(9,2))",
    "most": "CAST('-99999999999999.9999' AS DECIMAL(18,4))",
    "more": "CAST('999999999999999.9999' AS DECIMAL(19,4))",
    "truth": "true",
    "old": "DATE'1500-01-01'",
    "far": "DATE'9999-12-31'",
    "at": "TIMESTAMP'2026-11-15 01:02:03.456789'",
    "early": "TIMESTAMP'1001-01-01 00:00:00'",
    "wall": "TIMESTAMP_NTZ'2026-11-15 01:02:03.000001'",
    "text": "concat('quote \" apostrophe \\' comma, line', chr(10), 'tab', chr(9), ' \\U0001F600 ₹ ', chr(13), chr(10), 'end ')",
    "empty": "''",
    "bytes": "X'00FF22'",
    "list": "array(1, NULL, 3)",
    "map": "map('b', 1, 'a', NULL)",
    "deep": 'from_json(\'{"x": 1, "y": [{"k": "k", "v": 1.50}]}\', \'x INT, y ARRAY<STRUCT<k STRING, v DECIMAL(9,2)>>, z STRING\')',
}
HARD = "SELECT id, " + ", ".join(f"IF(id = 0, {sql}, NULL) AS {name}" for name, sql in COLUMNS.items()) + " FROM source"


def deliver_hard(here: Path, sink: pakka.Output | ParquetSink | JsonSink | CsvSink | SqliteSink) -> None:
    write_lines(here / "data/0.json", settlements(0, 2))
    pakka.run(pakka.Pipeline("refunds", files(), {"out": sink}, HARD))


def hard_rows(spark) -> pa.Table:
    """The same rows as Spark alone makes them."""
    return spark.sql(HARD.replace("FROM source", "FROM (SELECT explode(array(0L, 1L)) AS id)")).toArrow()


def same(found: pa.Table, wanted: pa.Table) -> None:
    """Value for value and type for type; through text, because NaN is not equal to itself."""
    found = found.select(wanted.column_names).sort_by("id")
    for name in wanted.column_names:
        assert repr(found[name].to_pylist()) == repr(wanted[name].to_pylist()), name
        assert found.schema.field(name).type == wanted.schema.field(name).type, name


def test_hard_values_come_back_from_parquet_by_every_reader(spark, here):
    deliver_hard(here, ParquetSink("out"))
    wanted = hard_rows(spark)
    same(spark.read.parquet(str(here / "out")).toArrow(), wanted)
    in_pandas = pd.read_parquet("out", dtype_backend="pyarrow").sort_values("id")
    for name in wanted.column_names:
        assert repr(pa.array(in_pandas[name], from_pandas=False).to_pylist()) == repr(wanted[name].to_pylist()), name
    with closing(duckdb.connect()) as db:
        db.execute("SET TimeZone = 'UTC'")
        found = db.sql("SELECT * FROM read_parquet('out/*/*.parquet') ORDER BY id").to_arrow_table()
    for name in set(wanted.column_names) - {"early"}:
        assert repr(_plain(found[name].to_pylist())) == repr(_plain(wanted[name].to_pylist())), name


def _plain(values: list) -> list:
    """DuckDB names the zone of an instant otherwise; it is the same instant."""
    return [v.astimezone(datetime.UTC) if isinstance(v, datetime.datetime) and v.tzinfo else v for v in values]


def test_hard_values_come_back_from_json(spark, here):
    deliver_hard(here, JsonSink("out"))
    wanted = hard_rows(spark)
    schema = spark.sql(HARD.replace("FROM source", "FROM (SELECT 0L AS id)")).schema
    same(spark.read.schema(schema).json(str(here / "out")).toArrow(), wanted)
    lines = [
        json.loads(line, parse_float=Decimal)
        for p in Path("out").rglob("*.json")
        for line in p.read_text().splitlines()
    ]
    hard, nothing = sorted(lines, key=lambda row: row["id"])
    assert nothing == {"id": 1, **dict.fromkeys(COLUMNS)}
    assert hard["big"] == -12345678901234567890123456789012345678
    assert hard["money"] == Decimal("99999999999999999999.999999999999999999")
    assert base64.b64decode(hard["bytes"]) == b"\x00\xff\x22"
    assert hard["deep"] == {"x": 1, "y": [{"k": "k", "v": Decimal("1.50")}], "z": None}


def test_hard_values_come_back_from_csv(spark, here):
    """Nested values and bytes are only text in CSV. And Spark takes an empty text for a null, whatever is said."""
    flat = [name for name in COLUMNS if name not in ("bytes", "list", "map", "deep")]
    deliver_hard(here, pakka.Output(CsvSink("out"), ("id", *flat)))
    wanted = hard_rows(spark).select(["id", *flat])
    schema = spark.sql(HARD.replace("FROM source", "FROM (SELECT 0L AS id)")).select("id", *flat).schema
    reader = spark.read.schema(schema).options(header=True, multiLine=True, escape='"', enforceSchema=False)
    same(reader.csv(str(here / "out")).toArrow(), wanted.drop_columns("empty"))
    hard, nothing = read_files("out")
    assert nothing == {"id": "1", **dict.fromkeys(flat)}
    assert (hard["text"], hard["empty"]) == (wanted["text"][0].as_py(), "")
    [path] = Path("out").rglob("*.csv")
    in_pandas = pd.read_csv(path, dtype=str, keep_default_na=False).sort_values("id")
    assert list(in_pandas["text"]) == [wanted["text"][0].as_py(), ""]
    assert in_pandas["money"][0] == "99999999999999999999.999999999999999999"


def test_hard_values_come_back_from_sqlite(spark, here):
    fits = [name for name in COLUMNS if name not in ("nan", "bytes")]
    deliver_hard(here, pakka.Output(SqliteSink("out.db", "rows"), ("id", *fits, "bytes")))
    hard, nothing = sorted(read_sqlite("out.db", "rows"), key=lambda row: row["id"])
    assert nothing == {"id": 1, **dict.fromkeys([*fits, "bytes"])}
    wanted = {name: values[0] for name, values in hard_rows(spark).to_pydict().items()}
    for name in ("tiny", "small", "whole", "long", "single", "double", "endless", "truth", "text", "empty", "bytes"):
        assert hard[name] == wanted[name], name
    for name in ("big", "money", "fee", "most", "more"):
        assert Decimal(hard[name]) == wanted[name]
    assert (hard["old"], hard["far"], hard["wall"]) == ("1500-01-01", "9999-12-31", "2026-11-15 01:02:03.000001")
    assert (hard["at"], hard["early"]) == ("2026-11-15 01:02:03.456789Z", "1001-01-01 00:00:00.000000Z")
    assert json.loads(hard["list"]) == [1, None, 3]
    assert json.loads(hard["deep"]) == {"x": 1, "y": [{"k": "k", "v": "1.50"}], "z": None}
    assert dict(json.loads(hard["map"])) == {"b": 1, "a": None}


def test_a_computed_decimal_is_the_same_for_every_sink_that_takes_it_and_for_none_of_a_dead_row(spark, here):
    write_lines(here / "data/0.json", settlements(0, 4))
    fee = "CAST(amount * -0.015 AS DECIMAL(10,3)) AS fee"
    sinks = {
        "all": pakka.Output(ParquetSink("out/all"), ("id", fee)),
        "some": pakka.Output(ParquetSink("out/some"), ("id", fee), where="id > 1"),
    }
    rules = (Rule.range("amount", 0, 20),)
    pakka.run(pakka.Pipeline("refunds", files(), sinks, quality=rules, dead_letters=ParquetSink("out/dead")))
    assert pq.read_table("out/dead").num_rows == 1
    rows = {i: Decimal(i * 10) * Decimal("-0.015") for i in range(3)}
    for name, ids in (("all", (0, 1, 2)), ("some", (2,))):
        found = pq.read_table(f"out/{name}").select(["id", "fee"]).sort_by("id")
        assert found.to_pydict() == {"id": list(ids), "fee": [rows[i] for i in ids]}
        assert found.schema.field("fee").type == pa.decimal128(10, 3)


def test_a_struct_that_is_null_has_fields_that_are_never_null(spark, here):
    """Spark calls the fields of this struct never null, and the struct itself is: their nulls must not count."""
    write_lines(here / "data/0.json", settlements(0, 2))
    strict = "struct(7 AS x, array(struct('k' AS k)) AS y, map('a', struct(1 AS one)) AS z)"
    process = f"SELECT id, IF(id = 0, {strict}, NULL) AS deep FROM source"
    sinks = {"parquet": ParquetSink("out/parquet"), "json": JsonSink("out/json"), "table": SqliteSink("out.db", "rows")}
    pakka.run(pakka.Pipeline("refunds", files(), sinks, process))
    wanted = {"x": 7, "y": [{"k": "k"}], "z": {"a": {"one": 1}}}
    rows = spark.read.parquet(str(here / "out/parquet")).orderBy("id").collect()
    assert [row.deep and row.deep.asDict(recursive=True) for row in rows] == [wanted, None]
    assert [row["deep"] for row in read_files("out/json")] == [wanted, None]
    table = {row["id"]: row["deep"] for row in read_sqlite("out.db", "rows")}
    assert (json.loads(table[0])["y"], table[1]) == ([{"k": "k"}], None)


def test_a_value_that_a_sink_cannot_hold_stops_the_epoch_until_it_is_left_out(spark, here):
    """SQLite would store NaN as NULL. The other sink of the epoch does not get it either, until both can."""
    write_lines(here / "data/0.json", settlements(0, 2))
    other = ParquetSink("out")
    with pytest.raises(SchemaError, match=r"column `nan` .* has NaN, which SQLite stores as NULL; nothing was written"):
        pakka.run(pakka.Pipeline("refunds", files(), {"other": other, "table": SqliteSink("out.db", "rows")}, HARD))
    assert read_files("out") == []
    table = pakka.Output(SqliteSink("out.db", "rows"), ("id", "nanvl(nan, 0) AS nan"))
    pakka.run(pakka.Pipeline("refunds", files(), {"other": other, "table": table}, HARD))
    assert len(read_files("out")) == 2
    assert read_sqlite("out.db", "rows") == [{"id": 0, "nan": 0.0}, {"id": 1, "nan": None}]


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink, CsvSink])
def test_partitions_are_directories_that_every_reader_understands(spark, here, kind):
    write_lines(here / "data/0.json", [*settlements(0, 6), {"id": 6, "merchant": None, "amount": 60}])
    write_lines(here / "data/1.json", [{"id": 7, "merchant": "a/b=c %41 ₹", "amount": 70}, *settlements(8, 2)])
    process = "SELECT *, DATE'2026-01-30' + INT(id % 2) AS day FROM source"
    sink = kind("out", partition_by=("merchant", "day"))
    pakka.run(pakka.Pipeline("refunds", files(max_files_per_epoch=1), {"out": sink}, process))
    wanted = {i: (f"m{i % 3}", i * 10, datetime.date(2026, 1, 30 + i % 2)) for i in range(10)}
    wanted |= {6: (None, 60, datetime.date(2026, 1, 30)), 7: ("a/b=c %41 ₹", 70, datetime.date(2026, 1, 31))}
    format = {ParquetSink: "parquet", JsonSink: "json", CsvSink: "csv"}[kind]
    schema = "id BIGINT, amount BIGINT, merchant STRING, day DATE, pakka_epoch INT"
    frame = spark.read.format(format).schema(schema).options(header=True).load(str(here / "out"))
    assert {r.id: (r.merchant, r.amount, r.day) for r in frame.collect()} == wanted
    epochs = {r.id: r.pakka_epoch for r in frame.collect()}
    assert sorted([{epochs[i] for i in range(7)}, {epochs[i] for i in range(7, 10)}], key=min) == [{0}, {1}]
    reader = {"parquet": "read_parquet", "json": "read_json", "csv": "read_csv"}[format]
    with closing(duckdb.connect()) as db:
        query = f"SELECT id, merchant, amount, day FROM {reader}('out/**/*.{format}', hive_partitioning = true)"
        found = {i: (merchant, amount, day) for i, merchant, amount, day in db.execute(query).fetchall()}
    assert found == wanted
    if kind is ParquetSink:
        in_pandas = pd.read_parquet("out", filters=[("merchant", "==", "m1")])
        assert sorted(in_pandas["id"]) == [1, 4]
    assert "merchant" not in _columns_of_files(format)


def _columns_of_files(format: str) -> list[str]:
    """The columns in the files themselves."""
    path = next(Path("out").rglob(f"*.{format}"))
    if format == "parquet":
        return list(pq.read_schema(path).names)
    first = path.read_text().splitlines()[0]
    return list(json.loads(first)) if format == "json" else first.replace('"', "").split(",")


def test_all_sinks_and_the_dead_letters_get_an_epoch_together(spark, here):
    write_lines(
        here / "data/0.json", [*settlements(0, 10), {"id": 10, "merchant": None, "amount": 1}, '{"id": 11, "mer']
    )
    sinks = {
        "parquet": ParquetSink("out/parquet", compression="zstd"),
        "json": pakka.Output(JsonSink("out/json"), ("id", "upper(merchant) AS shop"), "amount >= 50"),
        "csv": pakka.Output(CsvSink("out/csv", delimiter=";"), ("id", "amount / 100 AS rupees")),
        "sqlite": SqliteSink("out/rows.db", "rows", mode="upsert", key=("merchant",)),
        "second": pakka.Output(SqliteSink("out/rows.db", "ids"), ("id",)),
    }
    events = []
    rules = (Rule.not_null("merchant"),)
    pipeline = pakka.Pipeline("refunds", files(), sinks, quality=rules, dead_letters=ParquetSink("out/dead"))
    pakka.run(pipeline, listen=events.append)
    write_lines(here / "data/1.json", settlements(12, 5))
    pakka.run(pipeline, listen=events.append)
    good = [i for i in range(17) if i not in (10, 11)]
    assert [row["id"] for row in read_files("out/parquet")] == good
    assert [(row["id"], row["shop"]) for row in read_files("out/json")] == [(i, f"M{i % 3}") for i in good if i >= 5]
    assert sorted(float(row["rupees"]) for row in read_files("out/csv")) == [i / 10 for i in good]
    assert sorted(row["id"] for row in read_sqlite("out/rows.db", "ids")) == good
    newest = {row["merchant"]: row["id"] // 12 for row in read_sqlite("out/rows.db", "rows")}
    assert newest == {"m0": 1, "m1": 1, "m2": 1}
    dead = read_files("out/dead")
    assert sorted((letter["rules"], letter["row"]) for letter in dead) == [
        (["malformed"], '{"id": 11, "mer'),
        (["not_null(merchant)"], '{"id":10,"merchant":null,"amount":1}'),
    ]
    first, second = (e for e in events if isinstance(e, Delivered))
    out = {"parquet": 10, "json": 5, "csv": 10, "sqlite": 10, "second": 10, "dead_letters": 2}
    assert (first.rows_in, first.dead, dict(first.rows_out)) == (12, 2, out)
    assert (second.rows_in, second.dead) == (5, 0)


def test_the_console_shows_the_first_rows_of_each_epoch(spark, here, capsys):
    write_lines(here / "data/0.json", settlements(0, 4))
    sinks = {"screen": pakka.Output(ConsoleSink(rows=2), ("id", "merchant")), "kept": ParquetSink("out")}
    pipeline = pakka.Pipeline("refunds", files(), sinks)
    pakka.run(pipeline)
    shown = capsys.readouterr().out
    assert shown.startswith("refunds.screen · epoch 0 · 4 rows, 2 shown\nid  merchant\n")
    assert len(shown.splitlines()) == 5
    pakka.run(pipeline)
    assert capsys.readouterr().out == ""
    assert len(read_files("out")) == 4


def test_an_existing_stream_is_delivered_to_real_sinks_and_goes_on_after_a_restart(spark, here):
    def run() -> None:
        callback = pakka.deliver(
            to={"files": ParquetSink("out"), "table": SqliteSink("out.db", "rows")},
            pipeline="refunds",
            quality=[Rule.range("amount", 0, 70)],
            dead_letters=JsonSink("dead"),
        )
        stream = spark.readStream.schema(SCHEMA).json(str(here / "data"))
        writer = stream.writeStream.option("checkpointLocation", str(here / "checkpoint")).trigger(availableNow=True)
        writer.foreachBatch(callback).start().awaitTermination()
        callback.close()

    write_lines(here / "data/0.json", settlements(0, 5))
    run()
    write_lines(here / "data/1.json", settlements(5, 5))
    run()
    run()
    assert [row["id"] for row in read_files("out")] == list(range(8))
    assert [row["id"] for row in read_sqlite("out.db", "rows")] == list(range(8))
    assert sorted(json.loads(row["row"])["id"] for row in read_files("dead")) == [8, 9]


def test_a_batch_is_delivered_to_real_sinks_once_for_its_key(spark, here):
    sinks = {"files": ParquetSink("out", partition_by=("day",)), "table": SqliteSink("out.db", "rows")}
    for day, first in (("2026-11-14", 0), ("2026-11-15", 5), ("2026-11-14", 0), ("2026-11-15", 5)):
        frame = spark.range(first, first + 5).selectExpr("id", f"'{day}' AS day")
        pakka.deliver_batch(frame, sinks, "daily", day)
    assert [row["id"] for row in read_files("out")] == list(range(10))
    assert [row["id"] for row in read_sqlite("out.db", "rows")] == list(range(10))
    with closing(sqlite3.connect("out.db")) as db:
        assert db.execute("SELECT epoch, rows FROM pakka_ledger ORDER BY epoch").fetchall() == [(0, 5), (1, 5)]


def test_a_batch_that_broke_a_rule_is_delivered_once_it_is_mended(spark, here):
    sink = {"out": ParquetSink("out")}
    bad = spark.createDataFrame([(1, "a"), (2, None)], "id INT, merchant STRING")
    rules = [Rule.not_null("merchant")]
    report = pakka.deliver_batch(bad, sink, "daily", "monday", quality=rules, dead_letters=ParquetSink("dead"))
    assert (report.count.rows_in, report.count.good, report.count.dead) == (2, 1, 1)
    assert [row["id"] for row in read_files("out")] == [1]
    assert [json.loads(row["row"]) for row in read_files("dead")] == [{"id": 2, "merchant": None}]


def test_relative_paths_are_those_of_the_driver_and_not_of_sparks_jvm(spark, here, tmp_path_factory):
    """The JVM, and every Python worker with it, is still where it was started; this process has moved since, and moves on."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    jvm = Path(spark._jvm.java.lang.System.getProperty("user.dir"))
    assert jvm != here
    before = set(os.listdir(jvm))
    write_lines(here / "data/0.json", settlements(0, 3))
    write_lines(here / "data/1.json", settlements(3, 3))
    sinks = {
        "parquet": ParquetSink("out/parquet"),
        "json": JsonSink("./out/json"),
        "csv": CsvSink("out/../out/csv"),
        "sqlite": SqliteSink("out/rows.db", "rows"),
    }
    pipeline = pakka.Pipeline("refunds", files(max_files_per_epoch=1), sinks, dead_letters=ParquetSink("out/dead"))
    pakka.run(pipeline, listen=lambda event: os.chdir(elsewhere) if isinstance(event, (Started, Delivered)) else None)
    for name in ("parquet", "json", "csv"):
        assert [int(row["id"]) for row in read_files(here / "out" / name)] == list(range(6))
    assert sorted(row["id"] for row in read_sqlite(here / "out/rows.db", "rows")) == list(range(6))
    assert os.listdir(elsewhere) == []
    assert set(os.listdir(jvm)) == before
    os.chdir(here)
    assert pakka.run(pipeline) == Stopped("refunds", 0, 0, "done")


def test_the_output_of_one_pipeline_is_the_source_of_the_next(spark, here):
    """Epochs appear whole and never change, which is all that a stream of files needs."""
    first = pakka.Pipeline("first", files(max_files_per_epoch=1), {"out": ParquetSink("between")})
    source = pakka.FilesSource("between", "parquet", SCHEMA)
    second = pakka.Pipeline("second", source, {"out": SqliteSink("out.db", "rows")}, "SELECT id, amount FROM source")
    for round in range(3):
        write_lines(here / f"data/{round}-a.json", settlements(round * 10, 5))
        write_lines(here / f"data/{round}-b.json", settlements(round * 10 + 5, 5))
        pakka.run(first)
        pakka.run(second)
    assert sorted(row["id"] for row in read_sqlite("out.db", "rows")) == list(range(30))


def test_a_worker_need_not_look_for_garbage_in_what_it_has_imported(spark, here):
    """Spark has it look after each task."""
    write_lines(here / "data/0.json", settlements(0, 2))
    pakka.run(pakka.Pipeline("refunds", files(), {"out": ParquetSink("out")}))

    def count(batches):
        import gc

        yield from (pa.record_batch([pa.array([gc.get_freeze_count()])], names=["frozen"]) for _ in batches)

    found = spark.range(2, numPartitions=2).mapInArrow(count, "frozen BIGINT").collect()
    assert max(frozen for (frozen,) in found) > 10_000


def test_a_worker_is_forked_from_a_process_that_has_imported_what_a_task_needs(spark):
    def look(batches):
        import sys

        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        # Whatever this worker has run before, what it has from its parent is older than itself.
        loaded = [module in sys.modules for module in ("pandas", "pyarrow.compute", "pakka.spark.task")]
        yield from (pa.record_batch([pa.array([f"{parent[2]} {loaded}"])], names=["found"]) for _ in batches)

    found = spark.range(2, numPartitions=2).mapInArrow(look, "found STRING").collect()
    assert {text for (text,) in found} == {"pakka.spark.daemon [True, True, True]"}
