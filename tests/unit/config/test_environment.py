"""`${env:NAME}`: used everywhere, seen nowhere."""

import copy
import json
import pickle
import re
from urllib.parse import quote, unquote

import pytest

from pakka.config import hider
from pakka.config.environment import EnvText, resolve
from tests.unit.config.files import PLAIN, load, mistakes

SECRET = "hunter2!"
USED = """\
pipeline: refunds
source:
  files: {path: "data/${env:SECRET}", options: {key: "${env:SECRET}"}}
process: SELECT '${env:SECRET}' AS k FROM source
quality:
  - {regex: {column: k, pattern: "^${env:SECRET}$"}}
sinks:
  refunds: {memory: {space: "a-${env:SECRET}-b"}, select: ["'${env:SECRET}' AS k"], where: "k = '${env:SECRET}'"}
state: postgresql://pakka:${env:SECRET}@db/pakka
spool: /spool/${env:SECRET}
checkpoint: /checkpoint/${env:SECRET}
spark: {spark.secret: "${env:SECRET}"}
"""


def test_a_reference_is_replaced_wherever_it_stands():
    pipeline = load(USED, {"SECRET": SECRET})
    output = pipeline.outputs["refunds"]
    assert pipeline.source.path == "data/hunter2!"
    assert pipeline.source.options == {"key": "hunter2!"}
    assert pipeline.process == "SELECT 'hunter2!' AS k FROM source"
    assert pipeline.quality[0].condition == "`k` IS NULL OR `k` RLIKE '^hunter2!$'"
    assert (output.sink.space, output.select, output.where) == ("a-hunter2!-b", ("'hunter2!' AS k",), "k = 'hunter2!'")
    assert pipeline.state == "postgresql://pakka:hunter2!@db/pakka"
    assert (pipeline.spool, pipeline.checkpoint) == ("/spool/hunter2!", "/checkpoint/hunter2!")
    assert pipeline.spark == {"spark.secret": "hunter2!"}


def test_no_repr_shows_the_value():
    pipeline = load(USED, {"SECRET": SECRET})
    assert SECRET not in repr(pipeline)
    assert "postgresql://pakka:${env:SECRET}@db/pakka" in repr(pipeline)
    assert "regex(k, ^${env:SECRET}$)" in repr(pipeline)


def test_a_path_that_a_sink_makes_absolute_is_still_hidden():
    sink = "sqlite: {path: 'out/${env:SECRET}.db', table: t}"
    made = load(PLAIN.replace("memory: {space: refunds}", sink), {"SECRET": SECRET}).outputs["refunds"].sink
    assert made.path.endswith("/out/hunter2!.db")
    assert SECRET not in repr(made)


def test_the_value_can_be_hidden_in_any_text():
    hide = hider(load(USED, {"SECRET": SECRET}))
    assert hide(f"memory:a-{SECRET}-b") == "memory:a-${env:SECRET}-b"
    assert hide("nothing to hide") == "nothing to hide"


@pytest.mark.parametrize("form", [str, repr, json.dumps, unquote, lambda text: quote(text, safe="")])
def test_a_value_is_hidden_in_whatever_form_it_turns_up(form):
    value = "p%40ss\"'\\word é"
    hide = hider([resolve("${env:A}", {"A": value})])
    assert re.fullmatch(r"no answer from ['\"]?\$\{env:A\}['\"]?!", hide(f"no answer from {form(value)}!"))


def test_of_two_values_the_longer_is_hidden_first():
    hide = hider([resolve("${env:A} ${env:B}", {"A": "word", "B": "wordy"})])
    assert hide("a wordy word") == "a ${env:B} ${env:A}"


def test_a_value_too_short_for_a_secret_stays_in_sight():
    assert hider([resolve("${env:A}", {"A": "1"})])("epoch 1") == "epoch 1"


def test_a_value_travels_to_executors_as_a_plain_string():
    text = resolve("${env:A}", {"A": "value"})
    travelled = pickle.loads(pickle.dumps(text))
    assert isinstance(text, EnvText)
    assert (travelled, type(travelled)) == ("value", str)
    assert copy.deepcopy(text) == "value"


def test_text_without_a_reference_is_left_alone():
    assert resolve("${spark.var} $env ${ENV:A}", {}) == "${spark.var} $env ${ENV:A}"


def test_a_variable_that_is_not_set_is_named():
    assert mistakes(PLAIN + "spool: ${env:SPOOL}/x\n") == (
        "refunds.yaml:6:8: spool: the environment variable SPOOL is not set\n"
        "  6 | spool: ${env:SPOOL}/x\n"
        "    |        ^\n\n"
        "hint: export SPOOL=... first"
    )


def test_a_half_written_reference_is_refused():
    assert mistakes(PLAIN + "spool: ${env:}/x\n") == (
        "refunds.yaml:6:8: spool: a reference to the environment is written `${env:NAME}`\n"
        "  6 | spool: ${env:}/x\n"
        "    |        ^"
    )


@pytest.mark.parametrize(
    "line",
    [
        "slots: ${env:SECRET}",
        "state: ${env:SECRET}",
        "trigger: ${env:SECRET}",
        "quality: [{not_null: a, on_fail: '${env:SECRET}'}]",
        "pipeline: a b ${env:SECRET}",
        "process: {python: 'nowhere:${env:SECRET}'}",
        "dead_letters: {memory: {space: '${env:SECRET}'}}",
        "source: {files: {path: a, format: '${env:SECRET}'}}",
    ],
)
def test_no_mistake_shows_the_value(line):
    field = line.partition(":")[0]
    text = PLAIN.replace("space: refunds", "space: '${env:SECRET}'")
    if field == "pipeline":
        text = text.replace("pipeline: refunds\n", "")
    elif field == "source":
        text = text.replace("source:\n  rate: {rows_per_epoch: 10}\n", "")
    said = mistakes(f"{text}{line}\n", {"SECRET": "hunter22"})
    assert field in said
    assert "hunter22" not in said
