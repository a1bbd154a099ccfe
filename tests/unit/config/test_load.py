"""What a right file becomes."""

import pickle
import subprocess
import sys

import pytest

from pakka.config.function import PythonFunction
from pakka.contract.pipeline import Output, Pipeline, Trigger
from pakka.model.rule import OnFail, Rule
from pakka.sinks.memory import MemorySink
from pakka.sources.files import FilesSource
from pakka.sources.rate import RateSource
from tests.unit.config.files import PLAIN, load

FULL = """\
pipeline: refunds
source:
  files: {path: data/settlements, format: csv, options: {sep: ;}, max_files_per_epoch: 4}
process: |
  SELECT * FROM source
quality:
  - {not_null: [merchant, ts]}
  - {range: {column: amount_paise, min: 1, max: 100000000}, on_fail: drop}
  - {regex: {column: merchant, pattern: "^M[0-9]+$"}, on_fail: fail}
  - {one_of: {column: country, values: [IN, NO, 7, true]}}
  - {unique: [merchant, ts]}
  - {expr: amount_paise % 5 = 0}
sinks:
  refunds: {memory: {space: refunds}}
  audit: {memory: {space: audit}, select: [refund_id, "upper(merchant) AS m"], where: amount_paise > 5}
dead_letters: {memory: {space: dead}}
state: sqlite:///elsewhere/state.db
spool: elsewhere/spool
checkpoint: elsewhere/checkpoint
slots: 3
trigger: {interval: 10 seconds}
spark: {spark.master: "local[2]", spark.ui.enabled: false, spark.task.cpus: 1}
"""


def test_the_shortest_file_gets_every_default():
    assert load(PLAIN) == Pipeline("refunds", RateSource(10), {"refunds": Output(MemorySink("refunds"))})


def test_every_field_of_a_full_file_arrives():
    dead = OnFail.DEAD_LETTER
    assert load(FULL) == Pipeline(
        name="refunds",
        source=FilesSource("data/settlements", "csv", options={"sep": ";"}, max_files_per_epoch=4),
        process="SELECT * FROM source\n",
        quality=(
            Rule.not_null("merchant", dead),
            Rule.not_null("ts", dead),
            Rule.range("amount_paise", 1, 100000000, OnFail.DROP),
            Rule.regex("merchant", "^M[0-9]+$", OnFail.FAIL),
            Rule.one_of("country", ["IN", "NO", 7, True], dead),
            Rule.unique("merchant", "ts", on_fail=dead),
            Rule.expr("amount_paise % 5 = 0", dead),
        ),
        sinks={
            "refunds": Output(MemorySink("refunds")),
            "audit": Output(MemorySink("audit"), ("refund_id", "upper(merchant) AS m"), "amount_paise > 5"),
        },
        dead_letters=MemorySink("dead"),
        state="sqlite:///elsewhere/state.db",
        spool="elsewhere/spool",
        checkpoint="elsewhere/checkpoint",
        slots=3,
        trigger=Trigger(10.0),
        spark={"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.task.cpus": "1"},
    )


def test_a_rule_fails_the_epoch_where_there_are_no_dead_letters():
    assert load(PLAIN + "quality: [{not_null: a}]\n").quality == (Rule.not_null("a", OnFail.FAIL),)


def test_a_rule_kills_the_row_where_there_are_dead_letters():
    pipeline = load(PLAIN + "quality: [{not_null: a}]\ndead_letters: {memory: {space: dead}}\n")
    assert pipeline.quality == (Rule.not_null("a", OnFail.DEAD_LETTER),)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10s", 10.0),
        ("10 seconds", 10.0),
        ("1 second", 1.0),
        ("500ms", 0.5),
        ("500 milliseconds", 0.5),
        ("1.5s", 1.5),
        ("2m", 120.0),
        ("2 Minutes", 120.0),
        ("1h", 3600.0),
        ("10", 10.0),
        ("0.25", 0.25),
    ],
)
def test_an_interval_is_written_as_people_write_durations(written, seconds):
    assert load(PLAIN + f"trigger: {{interval: {written}}}\n").trigger == Trigger(seconds)


def test_available_now_is_the_default_trigger():
    assert load(PLAIN + "trigger: available_now\n").trigger == load(PLAIN).trigger == Trigger(None)


def test_a_field_with_nothing_behind_it_is_one_that_was_not_given():
    assert load(PLAIN + "quality:\n# - {not_null: a}\nslots:\n") == load(PLAIN)


def test_a_kind_without_options_may_stand_alone():
    assert load(PLAIN.replace("{memory: {space: refunds}}", "{memory: }")).outputs["refunds"].sink == MemorySink()


@pytest.mark.parametrize("text", ["NO", "on", "2024-01-01", "007", "0x1f", "12:30", "1_000", ".inf", "~a"])
def test_what_only_looks_like_a_truth_value_a_date_or_a_number_is_text(text):
    rule = load(PLAIN + f"quality: [{{one_of: {{column: c, values: [{text}]}}}}]\n").quality[0]
    assert rule.condition == f"`c` IS NULL OR `c` IN ('{text}')"


@pytest.mark.parametrize(("text", "sql"), [("-7", "-7"), ("1.50", "1.5"), ("2e3", "2000.0"), ("false", "false")])
def test_numbers_and_truth_values_are_what_they_look_like(text, sql):
    rule = load(PLAIN + f"quality: [{{one_of: {{column: c, values: [{text}]}}}}]\n").quality[0]
    assert rule.condition == f"`c` IS NULL OR `c` IN ({sql})"


def test_an_alias_stands_for_its_anchor():
    pipeline = load(PLAIN + "quality:\n - {not_null: &keys [a, b]}\n - {unique: *keys}\n")
    assert [r.words for r in pipeline.quality] == ["not_null(a)", "not_null(b)", "unique(a, b)"]


def test_sql_may_stand_under_its_name():
    assert load(PLAIN + "process: {sql: SELECT 1}\n").process == "SELECT 1"


def test_a_python_process_is_imported_when_it_is_called(current_directory, monkeypatch):
    (current_directory / "steps.py").write_text("raise RuntimeError('imported')\ndef clean(frame): return frame\n")
    monkeypatch.syspath_prepend(current_directory)
    process = load(PLAIN + "process: {python: steps:clean}\n").process
    assert process == PythonFunction("steps", "clean")
    with pytest.raises(RuntimeError, match="imported"):
        process(None)


def test_a_python_process_in_a_package_is_found_without_importing_the_package(current_directory, monkeypatch):
    package = current_directory / "shop" / "inner"
    package.mkdir(parents=True)
    (current_directory / "shop" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "steps.py").write_text("clean = str.upper\n")
    monkeypatch.syspath_prepend(current_directory)
    load(PLAIN + "process: {python: shop.inner.steps:clean}\n")


def test_a_python_process_does_its_work(current_directory, monkeypatch):
    (current_directory / "louder.py").write_text("def clean(frame): return frame + '!'\n")
    monkeypatch.syspath_prepend(current_directory)
    assert load(PLAIN + "process: {python: louder:clean}\n").process("a") == "a!"


def test_a_pipeline_can_be_pickled():
    assert pickle.loads(pickle.dumps(load(FULL))) == load(FULL)


def test_loading_starts_nothing(current_directory):
    (current_directory / "full.yaml").write_text(FULL)
    code = "import sys, pakka.config; pakka.config.load('full.yaml'); sys.exit(bool({'pyspark', 'pandas'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert [p.name for p in current_directory.iterdir()] == ["full.yaml"]
