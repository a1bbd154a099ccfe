"""Spark's Kafka connector, fetched by `pakka run` itself: from a repository that has it, and from one that has not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import CONNECTOR, need_connector
from tests.integration.kafka_kit import Clients, settlements
from tests.integration.outputs import read_files

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

IVY = """<ivysettings>
  <settings defaultResolver="here"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><filesystem name="here"><artifact pattern="{jars}/[module]-[revision].jar"/></filesystem></resolvers>
</ivysettings>
"""


def run(here: Path, servers: str, topic: str, jars: Path, packages: str = "") -> "subprocess.CompletedProcess[str]":
    """`pakka run`, with Ivy's cache empty and `jars` as its only repository."""
    (here / "ivy.xml").write_text(IVY.format(cache=here / "cache", jars=jars))
    spark = {"spark.jars.ivySettings": str(here / "ivy.xml"), "spark.jars.ivy": str(here / "ivy")}
    pipeline = {
        "pipeline": "refunds",
        "source": {"kafka": {"servers": servers, "topics": topic, "schema": "id BIGINT"}},
        "sinks": {"out": {"parquet": {"path": "out"}}},
        "spark": {**spark, **({"spark.jars.packages": packages} if packages else {})},
    }
    (here / "refunds.yaml").write_text(json.dumps(pipeline))
    command = [str(Path(sys.executable).with_name("pakka")), "run", "refunds.yaml", "--json"]
    variables = {name: value for name, value in os.environ.items() if name != "PAKKA_DRILL"}
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=280, check=False, env=variables)


def test_a_connector_that_cannot_be_fetched_is_told_with_what_to_do(here, kafka_topics):
    (here / "empty").mkdir()
    result = run(here, kafka_topics.bootstrap, kafka_topics.create("in"), here / "empty")
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    words = " ".join(result.stderr.split())
    assert "source kafka: Spark's connector could not be fetched: org.apache.spark#spark-sql-kafka-0-10_2.13" in words
    assert "nothing was started" in words
    assert "`jars:`" in words
    assert "Traceback" not in words
    assert not (here / ".pakka" / "state.db").exists()


def test_a_connector_that_is_fetched_leaves_stdout_to_the_events(here, kafka_topics):
    need_connector()
    topic = kafka_topics.create("in")
    Clients(kafka_topics.bootstrap).commit(topic, settlements(0, 5))
    groups = {"kafka-clients": "org.apache.kafka", "commons-pool2": "org.apache.commons"}
    named = [path.stem.rpartition("-") for path in sorted(CONNECTOR.glob("*.jar"))]
    packages = ",".join(f"{groups.get(name, 'org.apache.spark')}:{name}:{version}" for name, _, version in named)
    result = run(here, kafka_topics.bootstrap, topic, CONNECTOR, packages)
    assert result.returncode == 0, result.stderr
    events = [json.loads(line)["event"] for line in result.stdout.splitlines()]
    assert (events[0], events[-1]) == ("started", "stopped")
    assert [row["id"] for row in read_files(here / "out")] == list(range(5))
