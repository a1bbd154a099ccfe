"""What a wrong file is told: the place, the field, what was expected, the nearest right name. Word for word."""

import pytest

from pakka import config
from pakka.errors import ConfigError
from tests.unit.config.files import PLAIN, mistakes

NO_SOURCE = "pipeline: refunds\nsinks:\n  refunds: {memory: }\n"

# Each: a file, and all that is said of it.
KAFKA = """\
pipeline: refunds
source: {kafka: {servers: "h:1", schema: id INT, topics: t}}
sinks: {out: {memory: {space: out}}}
"""

SAID = {
    "an option of several forms that has none of them": (
        KAFKA.replace("topics: t", "topics: 5"),
        """\
refunds.yaml:2:58: source.kafka.topics: expected text or a list, got 5
  2 | source: {kafka: {servers: "h:1", schema: id INT, topics: 5}}
    |                                                          ^""",
    ),
    "an option of several forms, one of which nearly fits": (
        KAFKA.replace("topics: t", "topics: t, start: {t: 5}"),
        """\
refunds.yaml:2:72: source.kafka.start.t: expected a mapping, got 5
  2 | source: {kafka: {servers: "h:1", schema: id INT, topics: t, start: {t: 5}}}
    |                                                                        ^""",
    ),
    "a misspelt field": (
        PLAIN + "slot: 4\n",
        """\
refunds.yaml:6:1: slot: there is no such field
  6 | slot: 4
    | ^

hint: did you mean `slots`?""",
    ),
    "a misspelt option of a sink": (
        PLAIN.replace("space:", "spaec:"),
        """\
refunds.yaml:5:22: sinks.refunds.memory.spaec: there is no such field
  5 |   refunds: {memory: {spaec: refunds}}
    |                      ^

hint: did you mean `space`?""",
    ),
    "a misspelt kind of sink": (
        PLAIN.replace("memory:", "memry:"),
        """\
refunds.yaml:5:13: sinks.refunds.memry: there is no sink `memry`
  5 |   refunds: {memry: {space: refunds}}
    |             ^

hint: did you mean `memory`?""",
    ),
    "a kind of source that is like none": (
        PLAIN.replace("rate:", "zzz:"),
        """\
refunds.yaml:3:3: source.zzz: there is no source `zzz`
  3 |   zzz: {rows_per_epoch: 10}
    |   ^

hint: there is `files`, `kafka`, `rate`""",
    ),
    "a misspelt field beside a sink": (
        PLAIN.replace("refunds}}", "refunds}, selct: [a]}"),
        """\
refunds.yaml:5:39: sinks.refunds.selct: there is no such field
  5 |   refunds: {memory: {space: refunds}, selct: [a]}
    |                                       ^

hint: did you mean `select`?""",
    ),
    "two kinds in one sink": (
        PLAIN.replace("refunds}}", "refunds}, console: }"),
        """\
refunds.yaml:5:39: sinks.refunds.console: a sink is of one kind, and this one is `memory`
  5 |   refunds: {memory: {space: refunds}, console: }
    |                                       ^""",
    ),
    "a sink with no kind": (
        PLAIN.replace("memory: {space: refunds}", "select: [a]"),
        """\
refunds.yaml:5:12: sinks.refunds: expected a kind of sink with its options, such as `parquet: {path: out}`
  5 |   refunds: {select: [a]}
    |            ^""",
    ),
    "a sink that is only a word": (
        PLAIN.replace("{memory: {space: refunds}}", "memory"),
        """\
refunds.yaml:5:12: sinks.refunds: expected a mapping, got `memory`
  5 |   refunds: memory
    |            ^""",
    ),
    "options that are no mapping": (
        PLAIN.replace("{space: refunds}", "refunds"),
        """\
refunds.yaml:5:21: sinks.refunds.memory: expected a mapping of options
  5 |   refunds: {memory: refunds}
    |                     ^""",
    ),
    "text for a number": (
        PLAIN.replace("10", "ten"),
        """\
refunds.yaml:3:26: source.rate.rows_per_epoch: expected a whole number, got `ten`
  3 |   rate: {rows_per_epoch: ten}
    |                          ^""",
    ),
    "a number for text": (
        PLAIN.replace("space: refunds", "space: 12"),
        """\
refunds.yaml:5:29: sinks.refunds.memory.space: expected text, got 12
  5 |   refunds: {memory: {space: 12}}
    |                             ^

hint: put it in quotes""",
    ),
    "a wrong choice": (
        PLAIN.replace("rate: {rows_per_epoch: 10}", "files: {path: a, format: jason}"),
        """\
refunds.yaml:3:28: source.files.format: expected `json`, `csv` or `parquet`, got `jason`
  3 |   files: {path: a, format: jason}
    |                            ^

hint: did you mean `json`?""",
    ),
    "a required option left out": (
        PLAIN.replace("rate: {rows_per_epoch: 10}", "files: {format: json}"),
        """\
refunds.yaml:3:10: source.files: the field `path` is missing
  3 |   files: {format: json}
    |          ^""",
    ),
    "no source": (
        NO_SOURCE,
        """\
refunds.yaml:1:1: the field `source` is missing
  1 | pipeline: refunds
    | ^""",
    ),
    "an empty source": (
        NO_SOURCE + "source:\n",
        """\
refunds.yaml:4:1: source: this field is empty
  4 | source:
    | ^""",
    ),
    "no sinks": (
        "pipeline: refunds\nsource: {rate: }\nsinks: {}\n",
        """\
refunds.yaml:3:8: sinks: at least one is needed
  3 | sinks: {}
    |        ^""",
    ),
    "a bad pipeline name": (
        PLAIN.replace("pipeline: refunds", "pipeline: re/funds 2"),
        """\
refunds.yaml:1:11: pipeline: pipeline name 're/funds 2' is not allowed: letters, digits, `_` and `-`, at most 63, beginning with a letter or digit
  1 | pipeline: re/funds 2
    |           ^

hint: `re-funds-2` would do""",
    ),
    "a bad sink name": (
        PLAIN.replace("  refunds:", "  re.funds:"),
        """\
refunds.yaml:5:3: sinks.re.funds: sink name 're.funds' is not allowed: letters, digits, `_` and `-`, at most 63, beginning with a letter or digit
  5 |   re.funds: {memory: {space: refunds}}
    |   ^

hint: `re-funds` would do""",
    ),
    "a sink called dead_letters": (
        PLAIN.replace("  refunds:", "  dead_letters:"),
        """\
refunds.yaml:5:3: sinks.dead_letters: no sink may have this name
  5 |   dead_letters: {memory: {space: refunds}}
    |   ^

hint: `dead_letters` is a field of the pipeline""",
    ),
    "two sinks on one target": (
        PLAIN + "dead_letters: {memory: {space: refunds}}\n",
        """\
refunds.yaml:6:1: dead_letters: sink `refunds` writes to memory:refunds too
  6 | dead_letters: {memory: {space: refunds}}
    | ^

hint: give each sink an output of its own""",
    ),
    "a field given twice": (
        PLAIN + "slots: 2\nslots: 3\n",
        """\
refunds.yaml:7:1: slots: this field is given twice, first in line 6
  7 | slots: 3
    | ^""",
    ),
    "a field whose name is a number": (
        PLAIN + "12: 3\n",
        """\
refunds.yaml:6:1: ?: the name of a field must be text
  6 | 12: 3
    | ^

hint: put it in quotes""",
    ),
    "no writers": (
        PLAIN + "slots: 0\n",
        """\
refunds.yaml:6:8: slots: expected 1 or more, got 0
  6 | slots: 0
    |        ^""",
    ),
    "a state store that is no URL": (
        PLAIN + "state: state.db\n",
        """\
refunds.yaml:6:8: state: expected `sqlite:///PATH` or `postgresql://...`, got `state.db`
  6 | state: state.db
    |        ^""",
    ),
    "a trigger that is none": (
        PLAIN + "trigger: once\n",
        """\
refunds.yaml:6:10: trigger: expected `available_now`, or an interval such as `{interval: 10s}`, got `once`
  6 | trigger: once
    |          ^""",
    ),
    "an interval of no length": (
        PLAIN + "trigger: {interval: 0s}\n",
        """\
refunds.yaml:6:10: trigger: expected a duration above zero, such as `10s`, `500ms` or `2 minutes`, got a mapping
  6 | trigger: {interval: 0s}
    |          ^""",
    ),
    "a setting that is a list": (
        PLAIN + "spark: {spark.jars: [a]}\n",
        """\
refunds.yaml:6:21: spark.spark.jars: expected text, a number, true or false, got a list
  6 | spark: {spark.jars: [a]}
    |                     ^""",
    ),
    "a rule that does not exist": (
        PLAIN + "quality:\n  - {notnull: a}\n",
        """\
refunds.yaml:7:6: quality[0].notnull: there is no such field
  7 |   - {notnull: a}
    |      ^

hint: did you mean `not_null`?""",
    ),
    "two rules in one": (
        PLAIN + "quality:\n  - {not_null: a, unique: a}\n",
        """\
refunds.yaml:7:5: quality[0]: a rule is one of `not_null`, `range`, `regex`, `one_of`, `unique`, `expr`, and this has not_null, unique
  7 |   - {not_null: a, unique: a}
    |     ^""",
    ),
    "a rule for no column": (
        PLAIN + "quality:\n  - {not_null: []}\n",
        """\
refunds.yaml:7:16: quality[0].not_null: at least one is needed
  7 |   - {not_null: []}
    |                ^""",
    ),
    "a range without ends": (
        PLAIN + "quality:\n  - {range: {column: a}}\n",
        """\
refunds.yaml:7:13: quality[0].range: rule range(a) has neither min nor max
  7 |   - {range: {column: a}}
    |             ^

hint: give at least one of them""",
    ),
    "a range that nothing is in": (
        PLAIN + "quality:\n  - {range: {column: a, min: 5, max: 1}}\n",
        """\
refunds.yaml:7:13: quality[0].range: min 5 is above max 1, so every row would break this rule
  7 |   - {range: {column: a, min: 5, max: 1}}
    |             ^""",
    ),
    "dead letters with nowhere to go": (
        PLAIN + "quality:\n  - {not_null: a, on_fail: dead_letter}\n",
        """\
refunds.yaml:7:28: quality[0].on_fail: rows that break this rule are dead letters, and there is no `dead_letters` sink
  7 |   - {not_null: a, on_fail: dead_letter}
    |                            ^

hint: add `dead_letters: {parquet: {path: out/dead}}`, or use `on_fail: drop` or `on_fail: fail`""",
    ),
    "a process that is a list": (
        PLAIN + "process: [SELECT 1]\n",
        """\
refunds.yaml:6:10: process: expected Spark SQL, or `{python: module:function}`, got a list
  6 | process: [SELECT 1]
    |          ^""",
    ),
    "a process that is both": (
        PLAIN + 'process: {sql: SELECT 1, python: "os:getcwd"}\n',
        """\
refunds.yaml:6:10: process: expected SQL, or one of `sql` and `python`
  6 | process: {sql: SELECT 1, python: "os:getcwd"}
    |          ^""",
    ),
    "a function without its module": (
        PLAIN + "process: {python: clean}\n",
        """\
refunds.yaml:6:19: process.python: expected `module:function`, got `clean`
  6 | process: {python: clean}
    |                   ^""",
    ),
    "a module that is not there": (
        PLAIN + 'process: {python: "no_such_module:clean"}\n',
        """\
refunds.yaml:6:19: process.python: there is no Python module `no_such_module`
  6 | process: {python: "no_such_module:clean"}
    |                   ^

hint: it is looked for in the current directory and among the installed packages""",
    ),
    "a module in something that is no package": (
        PLAIN + 'process: {python: "textwrap.clean:now"}\n',
        """\
refunds.yaml:6:19: process.python: there is no Python module `textwrap.clean`
  6 | process: {python: "textwrap.clean:now"}
    |                   ^

hint: it is looked for in the current directory and among the installed packages""",
    ),
    "a function that is not there": (
        PLAIN + 'process: {python: "textwrap:dednt"}\n',
        """\
refunds.yaml:6:19: process.python: module `textwrap` has no function `dednt`
  6 | process: {python: "textwrap:dednt"}
    |                   ^

hint: did you mean `dedent`?""",
    ),
    "an empty file": (
        "# nothing yet\n",
        """\
refunds.yaml:1:1: the file is empty
  1 | # nothing yet
    | ^

hint: `pakka init` writes an example""",
    ),
    "a file that is a list": (
        "- pipeline: refunds\n",
        """\
refunds.yaml:1:1: a pipeline file is a mapping of fields, such as `pipeline: refunds`
  1 | - pipeline: refunds
    | ^""",
    ),
    "a tab": (
        "pipeline: refunds\nsource:\n\trate: {}\n",
        """\
refunds.yaml:3:1: this is not YAML: there is a tab
  3 | \trate: {}
    | ^

hint: indent with spaces""",
    ),
    "a brace that is not closed": (
        "pipeline: refunds\nsource: {rate: {}\nsinks: {}\n",
        """\
refunds.yaml:3:1: this is not YAML: `,` or `}` is missing before this
  3 | sinks: {}
    | ^""",
    ),
    "a colon in plain text": (
        "pipeline: refunds\nprocess: SELECT a: b\n",
        """\
refunds.yaml:2:18: this is not YAML: mapping values are not allowed here
  2 | process: SELECT a: b
    |                  ^

hint: a text with `: ` in it needs quotes""",
    ),
    "a reference without quotes between braces": (
        "pipeline: refunds\nsource: {files: {path: ${env:DATA}}}\n",
        """\
refunds.yaml:2:25: this is not YAML: `,` or `}` is missing before this
  2 | source: {files: {path: ${env:DATA}}}
    |                         ^

hint: `${env:NAME}` needs quotes between braces or brackets""",
    ),
    "two documents": (
        PLAIN + "---\n" + PLAIN,
        """\
refunds.yaml:6:1: this is not YAML: but found another document
  6 | ---
    | ^""",
    ),
    "an alias within itself": (
        PLAIN + "quality: &a [*a]\n",
        """\
refunds.yaml:6:10: quality[0]: this alias contains itself
  6 | quality: &a [*a]
    |          ^""",
    ),
    "a YAML tag": (
        PLAIN + "spool: !!python/name:os.system x\nslots: !secret x\n",
        """\
refunds.yaml has 2 mistakes; nothing was started

refunds.yaml:6:8: spool: the YAML tag !!python/name:os.system is not allowed here
  6 | spool: !!python/name:os.system x
    |        ^

refunds.yaml:7:8: slots: the YAML tag !secret is not allowed here
  7 | slots: !secret x
    |        ^

hint: the fields of a pipeline file are listed by `pakka schema`""",
    ),
    "several mistakes at once": (
        "pipelin: refunds\nsource: {rate: {slots: many}}\nsinks: {a: {memory: }, b: {memory: }}\n",
        """\
refunds.yaml has 4 mistakes; nothing was started

refunds.yaml:1:1: the field `pipeline` is missing
  1 | pipelin: refunds
    | ^

refunds.yaml:1:1: pipelin: there is no such field; did you mean `pipeline`?
  1 | pipelin: refunds
    | ^

refunds.yaml:2:24: source.rate.slots: expected a whole number, got `many`
  2 | source: {rate: {slots: many}}
    |                        ^

refunds.yaml:3:24: sinks.b: sink `a` writes to memory:default too; give each sink an output of its own
  3 | sinks: {a: {memory: }, b: {memory: }}
    |                        ^

hint: the fields of a pipeline file are listed by `pakka schema`""",
    ),
}


@pytest.mark.parametrize(("text", "said"), SAID.values(), ids=SAID)
def test_a_wrong_file_is_told(text, said):
    assert mistakes(text) == said


def test_no_more_than_ten_mistakes_are_shown():
    said = mistakes(PLAIN + "".join(f"field_{n}: 1\n" for n in range(14)))
    assert said.startswith("refunds.yaml has 14 mistakes; nothing was started\n")
    assert said.count("there is no such field") == 10
    assert said.endswith("\n\nand 4 more\n\nhint: the fields of a pipeline file are listed by `pakka schema`")


def test_a_module_that_cannot_be_read_is_refused(current_directory, monkeypatch):
    (current_directory / "broken_steps.py").write_text("def clean(\n")
    monkeypatch.syspath_prepend(current_directory)
    said = mistakes(PLAIN + 'process: {python: "broken_steps:clean"}\n')
    assert said.startswith("refunds.yaml:6:19: process.python: module `broken_steps` cannot be read: ")


@pytest.mark.parametrize(
    "code", ["if True:\n    clean = str\n", "from textwrap import *\n", "def __getattr__(name): return str\n"]
)
def test_a_module_that_may_bind_the_name_as_it_runs_is_believed(current_directory, monkeypatch, code):
    (current_directory / "clever_steps.py").write_text(code)
    monkeypatch.syspath_prepend(current_directory)
    (current_directory / "refunds.yaml").write_text(PLAIN + 'process: {python: "clever_steps:clean"}\n')
    config.load("refunds.yaml")


def test_a_bomb_of_aliases_is_refused():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    said = mistakes("a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(levels) + "\n")
    assert "the file is too large, with all its aliases resolved" in said


def test_a_file_nested_beyond_all_reason_is_refused():
    assert mistakes("[" * 20000).startswith("refunds.yaml:1:1: this is not YAML: it is nested too deeply")


def test_a_file_that_is_not_there_names_its_neighbour(current_directory):
    (current_directory / "refunds.yaml").write_text(PLAIN)
    with pytest.raises(ConfigError) as caught:
        config.load("refund.yml")
    assert str(caught.value) == "there is no file refund.yml\n\nhint: did you mean `refunds.yaml`?"


def test_a_file_that_is_not_there_and_has_no_neighbour():
    with pytest.raises(ConfigError) as caught:
        config.load("refunds.yaml")
    assert str(caught.value) == "there is no file refunds.yaml\n\nhint: `pakka init` writes an example"


def test_a_directory_is_no_file(current_directory):
    (current_directory / "refunds.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"refunds\.yaml cannot be read: Is a directory"):
        config.load("refunds.yaml")


def test_a_file_in_another_encoding_is_refused(current_directory):
    (current_directory / "refunds.yaml").write_bytes("pipeline: café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"refunds\.yaml is not UTF-8 text"):
        config.load("refunds.yaml")


def test_a_byte_order_mark_is_no_mistake(current_directory):
    (current_directory / "refunds.yaml").write_bytes(b"\xef\xbb\xbf" + PLAIN.encode())
    assert config.load("refunds.yaml").name == "refunds"
