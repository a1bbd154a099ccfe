"""What the file sinks wrote, read by Spark with no special reader; and what Spark itself would have named it."""

import os

import pyarrow as pa
import pytest

from pakka.model.outcome import Kind
from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
from tests.unit.sinks.files_kit import Driver, epoch
from tests.unit.sinks.test_files_partition import ODD
from tests.unit.sinks.test_files_values import HARD

pytestmark = pytest.mark.spark


def deliver(sink, *epochs):
    driver = Driver(sink, 1)
    for number, rows in enumerate(epochs):
        writer = driver.writer(number, schema=rows.schema)
        for batch in rows.to_batches():
            writer.write(batch)
        outcome = driver.committer.commit_epoch(epoch(number), [writer.prepare("00")])
        assert outcome.kind is Kind.COMMITTED
    return sink.target()


def ordered(frame):
    return frame.orderBy("pakka_epoch", "id").toArrow()


def test_spark_reads_parquet_with_types_and_gains_the_epoch(spark, tmp_path):
    rows = HARD.drop_columns(["nothing", "word", "clock", "at_ist"])
    got = ordered(spark.read.parquet(deliver(ParquetSink(str(tmp_path / "out")), rows, rows)))
    assert got["pakka_epoch"].to_pylist() == [0, 0, 0, 1, 1, 1]
    for column in rows.column_names:
        assert repr(got[column].to_pylist()[:3]) == repr(rows[column].to_pylist()), column
    kinds = {field.name: field.dataType.simpleString() for field in spark.read.parquet(str(tmp_path / "out")).schema}
    assert (kinds["at"], kinds["at_utc"], kinds["money"]) == ("timestamp_ntz", "timestamp", "decimal(38,2)")


def test_spark_reads_json(spark, tmp_path):
    columns = ["id", "big", "past_double", "ratio", "text", "unicode", "flag", "list", "struct"]
    got = ordered(spark.read.json(deliver(JsonSink(str(tmp_path / "out")), HARD.select(columns))))
    for column in columns:
        assert got[column].to_pylist() == HARD[column].to_pylist(), column


def test_spark_reads_json_by_a_schema_to_the_last_digit(spark, tmp_path):
    columns = ["id", "money", "wild", "at_utc", "at", "day", "raw", "map"]
    schema = (
        "id BIGINT, money DECIMAL(38,2), wild DOUBLE, at_utc TIMESTAMP, at TIMESTAMP_NTZ, day DATE, raw BINARY, "
        "map MAP<STRING, BIGINT>, pakka_epoch INT"
    )
    path = deliver(JsonSink(str(tmp_path / "out")), HARD.select(columns))
    got = ordered(spark.read.schema(schema).json(path))
    for column in columns:
        assert repr(got[column].to_pylist()) == repr(HARD[column].to_pylist()), column


def test_spark_reads_csv_by_a_schema(spark, tmp_path):
    columns = ["id", "big", "money", "ratio", "wild", "unicode", "flag", "day", "at_utc", "at"]
    rows = HARD.select(columns).append_column("text", pa.array(['a "b", \\ \nc', "", None]))
    path = deliver(CsvSink(str(tmp_path / "out")), rows)
    schema = (
        "id BIGINT, big BIGINT, money DECIMAL(38,2), ratio DOUBLE, wild DOUBLE, unicode STRING, flag BOOLEAN, day DATE, "
        "at_utc TIMESTAMP, at TIMESTAMP_NTZ, text STRING, pakka_epoch INT"
    )
    reader = spark.read.schema(schema).option("header", True).option("multiLine", True).option("escape", '"')
    got = ordered(reader.csv(path))
    for column in columns:
        assert repr(got[column].to_pylist()) == repr(rows[column].to_pylist()), column
    # Spark takes an empty text for a null, quoted or not.
    assert got["text"].to_pylist() == ['a "b", \\ \nc', None, None]


def test_odd_partitions_have_the_names_that_spark_gives_them_and_read_back(spark, tmp_path):
    values = [*ODD, "", None]
    rows = pa.table({"id": range(len(values)), "country": values})
    path = deliver(ParquetSink(str(tmp_path / "ours"), ("country",)), rows)
    got = ordered(spark.read.schema("id BIGINT, country STRING, pakka_epoch INT").parquet(path))
    assert got["country"].to_pylist() == [*ODD, None, None]
    spark.createDataFrame(rows).write.partitionBy("country").parquet(str(tmp_path / "theirs"))
    theirs = {name for name in os.listdir(tmp_path / "theirs") if name.startswith("country=")}
    ours = {name for name in os.listdir(tmp_path / "ours" / "pakka_epoch=0") if name.startswith("country=")}
    assert ours == theirs
