"""Benchmarks run at a size that measures nothing: figures are looked at for their shape, never for their value.

One question, and another with every commit; PAKKA_CERTIFY=1 asks all.
"""

import importlib
import json

import pytest
from tools.kafka import broker

from bench import page, scratch, sql
from bench.__main__ import QUESTIONS, ask, main
from tests.faults.extent import sample
from tests.fixtures import mysql, postgres
from tests.fixtures.kafka import need_kafka

WITH_SPARK = ["parquet", "overhead", "fanout"]
WITH_SERVER = {
    "postgres": (postgres.need_binaries, sql.POSTGRES_JDBC),
    "mariadb": (mysql.need_binaries, sql.MARIADB_JDBC),
    "upsert": (postgres.need_binaries, sql.POSTGRES_JDBC),
    "sql-protocol": (postgres.need_binaries, None),
    "sql-memory": (postgres.need_binaries, None),
}
WITH_KAFKA = ["kafka-produce", "kafka-append", "kafka-protocol", "kafka-shards"]
WITHOUT_SPARK = [q for q in QUESTIONS if q not in {*WITH_SPARK, *WITH_SERVER, *WITH_KAFKA}]


@pytest.fixture(autouse=True)
def own_scratch(tmp_path, monkeypatch):
    """Nothing is left in the checkout."""
    for module in ("bench.scratch", "bench.rows", "bench.engine", "bench.kafka"):
        monkeypatch.setattr(importlib.import_module(module), "SCRATCH", tmp_path)


def check(question: str) -> None:
    answer = ask(question, "tiny")
    assert answer.question == question
    assert any(f.goal is not None for f in answer.figures)
    assert all(f.spread.low <= f.spread.median <= f.spread.high for f in answer.figures)
    assert list(scratch.SCRATCH.glob(f"{question}-*")) == []


@pytest.mark.in_turn("question", "without Spark")
@pytest.mark.parametrize("question", sample(WITHOUT_SPARK, 1))
def test_question_is_answered_without_spark(question):
    check(question)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn("question", "with Spark")
@pytest.mark.parametrize("question", sample(WITH_SPARK, 1))
def test_question_is_answered_with_spark(question):
    check(question)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn("question", "with a server")
@pytest.mark.parametrize("question", sample(list(WITH_SERVER), 1))
def test_question_is_answered_with_spark_and_a_server(question):
    need_server, jdbc = WITH_SERVER[question]
    need_server()
    if jdbc is not None and not jdbc.is_installed:
        pytest.skip(f"no JDBC driver {jdbc.driver} on this machine; `apt-get install {jdbc.package}` installs it")
    check(question)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn("question", "with a broker")
@pytest.mark.parametrize("question", sample(WITH_KAFKA, 1))
def test_question_is_answered_with_a_broker(question):
    need_kafka()
    check(question)


@pytest.mark.parametrize("question", [*WITH_SERVER, *WITH_KAFKA])
def test_without_a_server_a_question_says_what_to_install(question, monkeypatch):
    for fixture in (postgres, mysql):
        monkeypatch.setattr(fixture, "find_binaries", lambda: None)
    monkeypatch.setattr(broker, "find_jars", lambda: None)
    answer = ask(question, "tiny")
    assert answer.figures == ()
    assert "`make setup-" in answer.notes[0]


def test_no_question_lists_them_all(capsys):
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(QUESTIONS)


def test_an_answer_is_json_on_request(capsys):
    assert main(["slots", "--size", "tiny", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["question"] == "slots"
    assert answer["figures"][0]["goal"]["limit"] == 5.0


def test_an_unknown_question_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["speed"])
    assert stopped.value.code == 2
    assert "invalid choice: 'speed'" in capsys.readouterr().err


def test_what_measures_nothing_is_not_written(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["slots", "--size", "tiny", "--write"])
    assert stopped.value.code == 2
    assert "no place for what measures nothing" in capsys.readouterr().err


def test_without_a_server_the_page_keeps_what_it_has(capsys, monkeypatch):
    before = page.PAGE.read_text()
    monkeypatch.setattr(broker, "find_jars", lambda: None)
    assert main(["kafka-produce", "--write"]) == 1
    assert "nothing was measured" in capsys.readouterr().err
    assert page.PAGE.read_text() == before
