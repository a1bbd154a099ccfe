"""A word that an option does not have is refused, from Python as in a pipeline file."""

import pytest

from pakka.errors import ConfigError
from pakka.model.word import check_words
from pakka.sinks.files import ParquetSink
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.mysql import MysqlSink
from pakka.sinks.postgres import PostgresSink
from pakka.sinks.sqlite import SqliteSink
from pakka.sources.files import FilesSource
from pakka.sources.kafka import KafkaSource

KAFKA = {"servers": "localhost:9092", "topic": "refunds"}
SERVER = {"url": "//localhost/shop", "table": "refunds"}


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (KafkaSink, {**KAFKA, "format": "Avro"}, "kafka: there is no `format` 'Avro'"),
        (KafkaSink, {**KAFKA, "way": "spool"}, "kafka: there is no `way` 'spool'"),
        (KafkaSource, {"servers": "localhost:9092", "topics": "t", "format": "xml", "schema": "a INT"}, "'xml'"),
        (KafkaSource, {"servers": "localhost:9092", "topics": "t", "format": "raw", "corrupt": "keep"}, "'keep'"),
        (FilesSource, {"path": "data", "format": "orc"}, "source files: there is no `format` 'orc'"),
        (ParquetSink, {"path": "out", "compression": "lzo"}, "parquet: there is no `compression` 'lzo'"),
        (SqliteSink, {"path": "out.db", "table": "t", "mode": "mirror"}, "sqlite: there is no `mode` 'mirror'"),
        (
            PostgresSink,
            {**SERVER, "url": "postgresql:" + SERVER["url"], "way": "xa"},
            "postgres: there is no `way` 'xa'",
        ),
        (MysqlSink, {**SERVER, "url": "mysql:" + SERVER["url"], "evolve": "yes"}, "mysql: there is no `evolve` 'yes'"),
    ],
)
def test_a_word_that_an_option_does_not_have_is_refused(kind, options, told):
    with pytest.raises(ConfigError, match=told) as error:
        kind(**options)
    assert "did you mean" in error.value.hint or "there is" in error.value.hint


def test_each_word_that_it_has_is_taken():
    for way in ("spooled", "prepared", "sharded"):
        check_words("kafka", KafkaSink(**KAFKA, way=way))
