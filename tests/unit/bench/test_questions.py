"""Every benchmark runs at a size that measures nothing: figures are looked at for their shape, never for their value."""

import importlib
import json

import pytest

from bench import scratch
from bench.__main__ import QUESTIONS, ask, main

WITH_SPARK = ["parquet", "overhead", "fanout"]
WITHOUT_SPARK = [q for q in QUESTIONS if q not in WITH_SPARK]


@pytest.fixture(autouse=True)
def own_scratch(tmp_path, monkeypatch):
    """Nothing is left in the checkout."""
    for module in ("bench.scratch", "bench.rows", "bench.engine"):
        monkeypatch.setattr(importlib.import_module(module), "SCRATCH", tmp_path)


def check(question: str) -> None:
    answer = ask(question, "tiny")
    assert answer.question == question
    assert any(f.goal is not None for f in answer.figures)
    assert all(f.spread.low <= f.spread.median <= f.spread.high for f in answer.figures)
    assert list(scratch.SCRATCH.glob(f"{question}-*")) == []


@pytest.mark.parametrize("question", WITHOUT_SPARK)
def test_question_is_answered_without_spark(question):
    check(question)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("question", WITH_SPARK)
def test_question_is_answered_with_spark(question):
    check(question)


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
