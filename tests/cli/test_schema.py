"""`pakka schema`: from the very classes that read a pipeline file."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from pakka import registry
from pakka.config import json_schema
from pakka.registry import Role
from tests.cli.conftest import PIPELINE

FULL = """\
pipeline: refunds
source:
  files: {path: data, format: csv, options: {sep: ;}}
process: {python: "steps:clean"}
quality:
  - {not_null: [a, b]}
  - {not_null: a, on_fail: drop}
  - {range: {column: a, min: 1}}
  - {regex: {column: a, pattern: x}}
  - {one_of: {column: a, values: [a, 1, true]}}
  - {unique: [a, b]}
  - {expr: a > b}
sinks:
  refunds: {memory: {space: a}}
  audit: {memory: , select: [a], where: a > 1}
  seen: {console: {rows: 3}}
dead_letters: {memory: {space: dead}}
state: sqlite:///state.db
spool: spool
checkpoint: checkpoint
slots: 4
trigger: {interval: 10s}
spark: {spark.ui.enabled: false}
"""

WRONG = {
    "an unknown field": "slot: 3",
    "text for a number": "slots: many",
    "a number of writers that is none": "slots: 0",
    "an unknown rule": "quality: [{notnull: a}]",
    "two rules in one": "quality: [{not_null: a, unique: a}]",
    "no rule at all": "quality: [{on_fail: drop}]",
    "an unknown answer to a broken rule": "quality: [{not_null: a, on_fail: ignore}]",
    "an unknown trigger": "trigger: once",
    "an unknown kind of sink": "dead_letters: {memry: {}}",
    "an unknown option of a sink": "dead_letters: {memory: {spaec: a}}",
    "a sink of two kinds": "dead_letters: {memory: {}, console: {}}",
    "a state store that is no URL": "state: state.db",
    "a function without its module": "process: {python: clean}",
}


@pytest.fixture
def mistakes():
    validator = Draft202012Validator(json_schema())
    return lambda text: [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def test_the_schema_is_printed(pakka):
    result = pakka("schema")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == json_schema()


def test_the_lines_to_type_stand_each_on_its_own_in_the_help(pakka):
    lines = [line.strip() for line in pakka("schema", "--help").stdout.splitlines()]
    assert "pakka schema > pipeline.schema.json" in lines
    assert "# yaml-language-server: $schema=pipeline.schema.json" in lines


def test_it_is_a_schema():
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("text", [PIPELINE, FULL], ids=["plain", "full"])
def test_right_files_fit(mistakes, text):
    assert mistakes(text) == []


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_wrong_files_do_not_fit(mistakes, line):
    assert mistakes(f"{PIPELINE}{line}\n") != []


@pytest.mark.parametrize("field", ["pipeline", "source", "sinks"])
def test_required_fields_are_missed(mistakes, field):
    data = {key: value for key, value in yaml.safe_load(PIPELINE).items() if key != field}
    assert mistakes(yaml.safe_dump(data)) == [f"'{field}' is a required property"]


def test_every_sink_and_source_is_in_it():
    properties = json_schema()["properties"]
    sinks = properties["sinks"]["additionalProperties"]["properties"]
    assert set(sinks) == {*registry.names(Role.SINK), "select", "where"}
    assert set(properties["source"]["properties"]) == set(registry.names(Role.SOURCE))


def test_every_option_is_explained_by_the_words_of_its_class():
    files = json_schema()["properties"]["source"]["properties"]["files"]
    assert files["description"] == "Read the files of a directory, each once, as they appear."
    assert files["properties"]["path"]["description"].startswith("A directory or a glob.")
    assert files["required"] == ["path"]


def test_every_field_of_a_pipeline_is_explained():
    assert [name for name, field in json_schema()["properties"].items() if "description" not in field] == []


def test_a_sink_whose_library_is_missing_still_completes(monkeypatch):
    monkeypatch.setitem(registry.SINKS, "faraway", "no_such_library:Sink")
    faraway = json_schema()["properties"]["dead_letters"]["anyOf"][0]["properties"]["faraway"]
    assert faraway["description"] == (
        "sink `faraway` needs the library `no_such_library`, which is not installed; pip install no_such_library"
    )
