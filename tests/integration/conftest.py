"""One Spark for all tests here: it takes longer to start than they take to run."""

import itertools
import json
import os
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from pakka.sinks.memory import MemorySink, Space

CONNECTOR = Path(__file__).resolve().parents[2] / ".venv" / "share" / "spark-kafka"


def need_connector() -> None:
    """Without Spark's Kafka connector a test is skipped by name; under CI it fails."""
    if not connector():
        message = "no Kafka connector for Spark on this machine; `make setup-kafka` fetches it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def connector() -> dict[str, str]:
    """Settings for a session that can read Kafka, where `make setup-kafka` has fetched what that needs."""
    jars = sorted(str(path) for path in CONNECTOR.glob("*.jar"))
    return {"spark.jars": ",".join(jars)} if jars else {}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pakka.spark.session import open_session

    session = open_session("pakka tests", connector(), tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A directory of its own for state, spool, checkpoint and data, which are all named by relative paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Memory:
    """Memory sinks by name, and what a reader sees in them."""

    def __init__(self) -> None:
        self.tag = uuid.uuid4().hex

    def __getitem__(self, name: str) -> MemorySink:
        return MemorySink(f"{self.tag}-{name}")

    def rows(self, name: str) -> list[dict]:
        tables = Space.named(self[name].space).rows
        return pa.concat_tables(tables).to_pylist() if tables else []

    def column(self, name: str, column: str) -> list:
        return sorted(row[column] for row in self.rows(name))


@pytest.fixture
def memory() -> Memory:
    return Memory()


_times = itertools.count(int(time.time()) - 100_000)


def in_turn(path: Path) -> None:
    """Make a file newer than all that were written before: Spark takes files by their time, and a clock has ticks."""
    now = next(_times)
    os.utime(path, (now, now))


def write_lines(path: Path, rows: list) -> None:
    """A file of JSON lines that appears at once; a string is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("." + path.name)
    partial.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    os.rename(partial, path)
    in_turn(path)
