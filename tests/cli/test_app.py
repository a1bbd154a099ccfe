"""The group of verbs: help, exit codes, and what becomes of an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pakka import __version__, errors
from pakka.cli import check, schema
from pakka.cli.app import VERBS
from pakka.errors import AbortedError, FencedError, PakkaError, UnknownOutcomeError

HELP = """\
Usage: pakka [OPTIONS] [COMMAND] [ARGS]...

  Exactly-once delivery for Apache Spark pipelines: every epoch in all of its
  sinks, once, through any crash.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
  init     Write an example that runs: a pipeline file and some rows.
  check    Say which guarantee a pipeline has, and why.
  run      Run a pipeline: deliver every epoch to all of its sinks.
  audit    Test a live sink for the four guarantees, and read its settings.
  status   Show pipelines: epochs, rows, owner, what is in doubt.
  indoubt  List what is in doubt in the sinks, or settle it from the decision.
  reset    Accept a checkpoint or an output that does not fit, after a dry run.
  schema   Print the JSON Schema of pipeline files, for editors.

  `pakka VERB --help` tells more. Start with `pakka init`.
"""


@pytest.fixture
def failing(monkeypatch, refunds):
    """Make `pakka check` raise an error."""

    def arm(error: BaseException) -> None:
        def fail(*_):
            raise error

        monkeypatch.setattr(check, "load", fail)

    return arm


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_pakka_alone_shows_help(pakka, words):
    result = pakka(*words)
    assert (result.exit_code, result.stdout, result.stderr) == (0, HELP, "")


def test_the_version_is_told(pakka):
    result = pakka("--version")
    assert (result.exit_code, result.stdout) == (0, f"pakka {__version__}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_begins_with_a_sentence(pakka, verb):
    result = pakka(verb, "--help")
    assert result.exit_code == 0
    told = result.stdout.split("\n\n")[1].strip()
    assert told[0].isupper()
    assert told.endswith((".", ":"))


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "schema"])
def test_every_verb_that_tells_something_has_json(pakka, verb):
    assert "--json" in pakka(verb, "--help").stdout


def test_a_misspelt_verb_is_told_the_nearest(pakka):
    result = pakka("rnu", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: there is no command `rnu`\n\nhint: did you mean `run`?\n"


def test_a_missing_argument_is_wrong_use(pakka):
    result = pakka("run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: Missing argument 'FILE'\n\nhint: see `pakka run --help`\n"


def test_an_unknown_option_is_wrong_use(pakka):
    result = pakka("status", "--frobnicate")
    assert result.exit_code == 2
    assert result.stderr == "error: No such option '--frobnicate'\n\nhint: see `pakka status --help`\n"


def test_wrong_use_is_told_as_json_to_programs(pakka):
    result = pakka("run", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr) == {
        "error": "UsageError",
        "message": "Missing argument 'FILE'",
        "hint": "see `pakka run --help`",
        "exit_code": 2,
    }


ERRORS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, PakkaError)]
CODES = {"UsageError": 2, "ConfigError": 2, "UnknownOutcomeError": 3, "FencedError": 4}


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_has_its_exit_code(pakka, failing, error):
    failing(error("what happened", hint="what to do"))
    result = pakka("check", "refunds.yaml")
    assert result.exit_code == CODES.get(error.__name__, 1)
    assert (result.stdout, result.stderr) == ("", "error: what happened\n\nhint: what to do\n")


def test_an_error_is_one_json_object_for_programs(pakka, failing):
    failing(FencedError.of("pipeline `refunds`", "refunds", 7, 8))
    result = pakka("check", "refunds.yaml", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stderr) == {
        "error": "FencedError",
        "message": "pipeline `refunds`: fence 7 lost to fence 8; nothing was changed by fence 7",
        "hint": "another driver is running; stop this one, or see the owner with `pakka status refunds`",
        "exit_code": 4,
    }


def test_an_error_without_a_hint_stands_alone(pakka, failing):
    failing(UnknownOutcomeError("no answer"))
    assert pakka("check", "refunds.yaml").stderr == "error: no answer\n"


def test_a_note_that_was_added_on_the_way_is_shown(pakka, failing):
    error = AbortedError("the epoch was aborted", hint="run again")
    error.add_note("the abort was not finished")
    failing(error)
    assert pakka("check", "refunds.yaml").stderr == (
        "error: the epoch was aborted\n\nnote: the abort was not finished\n\nhint: run again\n"
    )
    assert json.loads(pakka("check", "refunds.yaml", "--json").stderr)["notes"] == ["the abort was not finished"]


def test_an_unexpected_error_is_short_and_says_how_to_see_more(pakka, failing):
    failing(KeyError("spool"))
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: pakka did not expect this: KeyError: 'spool'\n\n"
        "hint: run it again with `--verbose` to see where it comes from; a run that was cut off is recovered by the next\n"
    )


def test_verbose_shows_where_an_error_comes_from(pakka, failing):
    failing(KeyError("spool"))
    told = pakka("check", "refunds.yaml", "--verbose").stderr
    assert "Traceback (most recent call last)" in told
    assert told.endswith("KeyError: 'spool'\n")


def test_an_interrupt_is_not_an_error(pakka, failing):
    failing(KeyboardInterrupt())
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stderr.strip()) == (130, "interrupted")


def test_a_reader_that_goes_away_is_no_error():
    command = f"{Path(sys.executable).with_name('pakka')} schema | head -c 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr) == ("{", "")


def test_the_reader_that_goes_away_in_process(pakka, monkeypatch):
    closed = []
    monkeypatch.setattr("pakka.cli.render.Screen.abandon_stdout", lambda _: closed.append(True))
    monkeypatch.setattr(schema.config, "json_schema", lambda: (_ for _ in ()).throw(BrokenPipeError))
    assert pakka("schema").exit_code == 1
    assert closed == [True]


HEAVY = {"pyspark", "py4j", "pandas", "psycopg"}
FAST = {
    "init": (["init", "there"], HEAVY),
    "check": (["check", "refunds.yaml"], HEAVY | {"rich.console"}),
    "status": (["status", "--state", "sqlite:///none.db"], HEAVY | {"pydantic", "yaml", "pyarrow"}),
    # It tells the options of every sink, and has to load them for it.
    "schema": (["schema"], HEAVY - {"psycopg"}),
    "reset": (["reset", "refunds", "--checkpoint"], HEAVY),
    "indoubt": (["indoubt", "list", "refunds"], HEAVY),
    "indoubt resolve": (["indoubt", "resolve", "refunds"], HEAVY),
    "help": (["--help"], HEAVY | {"pydantic", "yaml", "pyarrow", "rich", "importlib.metadata"}),
}


@pytest.mark.parametrize(("words", "heavy"), FAST.values(), ids=FAST)
def test_no_verb_but_run_waits_for_spark(refunds: Path, words, heavy):
    code = (
        f"import sys; from pakka.cli import main\ntry: main({words!r})\nexcept SystemExit: pass\n"
        f"sys.stderr.write('loaded: ' + ' '.join(sorted({heavy!r} & set(sys.modules))))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr.rpartition("loaded: ")[2] == ""
