"""Jars for Spark's JVM: what is named to Spark, and what is said when it cannot be had."""

import pytest

from pakka.contract.source import Jars
from pakka.errors import ConfigError, UsageError
from pakka.sources.kafka import KafkaSource
from pakka.spark.jars import check_loaded, not_resolved, with_jars

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.9.9"
AVRO = "org.apache.spark:spark-avro_2.13:4.9.9"


def jars(**options) -> Jars:
    return KafkaSource("a:1", "t", **{"schema": "id INT", **options}).jars_for("4.9.9")


def avro() -> Jars:
    return jars(format="avro", schema="x.avsc")


def test_a_pipeline_without_needs_has_its_settings_as_they_are():
    assert with_jars({"spark.jars.packages": "a:b:1"}, None) == {"spark.jars.packages": "a:b:1"}


def test_the_connector_of_this_spark_is_named_beside_what_the_user_names():
    assert with_jars({}, jars()) == {"spark.jars.packages": CONNECTOR}
    assert with_jars({"spark.jars.packages": "a:b:1"}, avro()) == {"spark.jars.packages": f"a:b:1,{CONNECTOR},{AVRO}"}


def test_a_connector_that_the_user_names_himself_is_not_named_again():
    other = CONNECTOR.replace("4.9.9", "4.8.0")
    assert with_jars({"spark.jars.packages": other}, jars()) == {"spark.jars.packages": other}
    files = {"spark.jars": "/opt/spark-sql-kafka-0-10_2.13-4.8.0.jar"}
    assert with_jars(files, jars()) == files


def test_a_directory_of_jars_needs_no_maven(tmp_path):
    names = ["spark-sql-kafka-0-10_2.13-4.9.9.jar", "kafka-clients-3.9.2.jar", "README.txt"]
    for name in names:
        (tmp_path / name).touch()
    expected = f"/mine.jar,{tmp_path}/kafka-clients-3.9.2.jar,{tmp_path}/spark-sql-kafka-0-10_2.13-4.9.9.jar"
    assert with_jars({"spark.jars": "/mine.jar"}, jars(jars=str(tmp_path))) == {"spark.jars": expected}
    with pytest.raises(ConfigError, match=r"there is no spark-avro_2.13 in `jars: .*`; nothing was started"):
        with_jars({}, jars(format="avro", schema="x.avsc", jars=str(tmp_path)))


def test_a_session_that_has_it_is_taken_and_one_that_has_not_is_refused():
    class Loader:
        def loadClass(self, name):
            from py4j.protocol import Py4JError

            if name.endswith("AvroDataToCatalyst"):
                raise Py4JError(name)

        def __getattr__(self, _name):
            return lambda: self

    class Session:
        class _jvm:
            class java:
                class lang:
                    Thread = Loader()

    check_loaded(Session, None)
    check_loaded(Session, jars())
    with pytest.raises(
        UsageError, match=r"the Spark session that is running here has no org.apache.spark:spark-avro_2.13"
    ) as e:
        check_loaded(Session, avro())
    assert f"'spark.jars.packages', '{AVRO}'" in e.value.hint


def test_what_ivy_did_not_find_is_named_with_what_to_do():
    printed = """
    :: UNRESOLVED DEPENDENCIES ::
    :: org.apache.spark#spark-sql-kafka-0-10_2.13;4.9.9: not found
    Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: ...]
    """
    settings = with_jars({}, jars())
    error = not_resolved(jars(), settings, printed)
    assert isinstance(error, UsageError)
    assert "could not be fetched: org.apache.spark#spark-sql-kafka-0-10_2.13;4.9.9: not found" in error.message
    assert all(
        words in error.hint for words in ("DEFAULT_ARTIFACT_REPOSITORY", "`jars:`", "proxyHost", "spark.jars.packages")
    )
    assert not_resolved(jars(), settings, "java.net.BindException") is None
    assert not_resolved(None, {}, printed) is None
