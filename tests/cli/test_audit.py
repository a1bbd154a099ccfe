"""`pakka audit`: what is told, in every form, and what a wrong target is answered."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from xml.etree import ElementTree

import pytest

from pakka.audit import run
from pakka.audit.report import Answer, Evidence, Report
from pakka.contract.audit import ContractGuarantee, Finding, Severity
from pakka.model.guarantee import Level, SinkGuarantee, Way
from tests.cli.conftest import PIPELINE

GUARANTEES = ["isolation", "prepare/commit separation", "idempotent commit and abort", "duplicate-id rejection"]
BAD = Finding("fsync", Severity.BREAKS, "off", "a power cut loses rows", "SET fsync = on")
WORTH_KNOWING = Finding("journal_mode", Severity.WARNS, "delete", "readers wait", "SET journal_mode = wal")


def report_of(*holds: bool | None, findings=(), level=Level.EXACTLY_ONCE) -> Report:
    answers = tuple(
        Answer(guarantee, (Evidence("commit twice", "a reader sees <6> rows", held),))
        for guarantee, held in zip(ContractGuarantee, holds, strict=True)
    )
    return Report(
        "refunds.db", "sqlite", SinkGuarantee(level, Way.SPOOLED, "why"), answers, findings, {"pakka": "1"}, 0.5
    )


@pytest.fixture
def audited(monkeypatch):
    """Say what the audit of any sink finds."""

    def say(*holds, **more) -> None:
        monkeypatch.setattr(run, "audit", lambda sink, kind, spool, slots, start: report_of(*holds, **more))

    say(True, True, True, True)
    return say


TABLE = """\
refunds.db was not seen to be exactly-once, in 0.50 s

guarantee                    verdict         what was done  what was seen
isolation                    PASS            commit twice   a reader sees <6> rows
prepare/commit separation    NOT APPLICABLE  commit twice   a reader sees <6> rows
idempotent commit and abort  FAIL            commit twice   a reader sees <6> rows
duplicate-id rejection       PASS            commit twice   a reader sees <6> rows

without idempotent commit and abort: after a crash or a lost answer the epoch is committed again, and its rows are there twice; \
or what was aborted stays
  to mend it: a ledger row in the transaction of the rows; else a de-duplication table, MERGE keys, or an idempotency key that \
the receiver remembers

setting       found   severity  why it matters          what mends it
fsync         off     breaks    a power cut loses rows  SET fsync = on
journal_mode  delete  warns     readers wait            SET journal_mode = wal
"""


def test_a_failed_audit_is_told_with_what_follows_and_what_mends_it(pakka, audited):
    audited(True, None, False, True, findings=(BAD, WORTH_KNOWING))
    result = pakka("audit", "memory:")
    assert (result.exit_code, result.stdout, result.stderr) == (1, TABLE, "")


@pytest.mark.parametrize(
    ("holds", "findings", "expected"),
    [
        ((True, True, True, True), (), 0),
        ((True, True, True, True), (WORTH_KNOWING,), 0),
        ((True, True, True, True), (BAD,), 1),
        ((True, None, None, True), (), 0),
        ((False, True, True, True), (), 1),
    ],
)
def test_any_fail_is_exit_code_1(pakka, audited, holds, findings, expected):
    audited(*holds, findings=findings)
    assert pakka("audit", "memory:").exit_code == expected


def test_exactly_once_can_be_required(pakka, audited):
    assert pakka("audit", "memory:", "--require", "exactly-once").exit_code == 0
    audited(True, True, False, True)
    result = pakka("audit", "memory:", "--require", "exactly-once")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "error: refunds.db was not seen to be exactly-once, which is required: idempotent commit and abort; nothing was "
        "left behind\n\nhint: a ledger row in the transaction of the rows"
    )


@pytest.mark.parametrize(
    ("holds", "level", "reason"),
    [
        ((True, None, True, True), Level.EXACTLY_ONCE, "prepare/commit separation was not seen"),
        ((True, True, True, True), Level.AT_LEAST_ONCE, "it promises no more than at-least-once: why"),
    ],
)
def test_what_was_not_seen_or_not_promised_is_not_enough_for_it(pakka, audited, holds, level, reason):
    audited(*holds, level=level)
    assert pakka("audit", "memory:").exit_code == 0
    result = pakka("audit", "memory:", "--require", "exactly-once")
    assert (result.exit_code, reason in result.stderr) == (1, True)


@pytest.mark.parametrize("words", [("--json",), ("--format", "json")])
def test_programs_get_all_of_it(pakka, audited, words):
    audited(True, None, False, True, findings=(BAD,))
    result = pakka("audit", "memory:", *words)
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [g["guarantee"] for g in told["guarantees"]] == GUARANTEES
    assert [g["verdict"] for g in told["guarantees"]] == ["PASS", "NOT APPLICABLE", "FAIL", "PASS"]
    assert told["guarantees"][2]["evidence"] == [
        {"done": "commit twice", "seen": "a reader sees <6> rows", "holds": False}
    ]
    assert told["settings"] == [
        {
            "name": "fsync",
            "severity": "breaks",
            "value": "off",
            "why": "a power cut loses rows",
            "fix": "SET fsync = on",
        }
    ]
    assert (told["is_exactly_once"], told["failed"]) == (False, ["idempotent commit and abort", "fsync"])


def test_builds_get_junit(pakka, audited):
    audited(True, None, False, True, findings=(BAD, WORTH_KNOWING))
    suite = ElementTree.fromstring(pakka("audit", "memory:", "--format", "junit").stdout.encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "2", "1")
    assert [case.get("name") for case in suite] == [*GUARANTEES, "fsync", "journal_mode"]
    failure = suite[2].find("failure")
    assert failure.text.startswith("failed: commit twice: a reader sees <6> rows\nmend: a ledger row")


def test_what_xml_cannot_write_does_not_break_the_build(pakka, audited):
    audited(True, True, True, True, findings=(Finding("name", Severity.FINE, "a\x00b\ufffe", "why"),))
    suite = ElementTree.fromstring(pakka("audit", "memory:", "--format", "junit").stdout.encode())
    assert suite[-1].find("system-out").text == "fine: a?b?: why"


def test_pages_get_markdown(pakka, audited):
    audited(True, True, False, True, findings=(BAD,))
    lines = pakka("audit", "memory:", "--format", "markdown").stdout.splitlines()
    assert lines[0] == "## refunds.db"
    assert "| isolation | PASS | commit twice | a reader sees <6> rows |" in lines
    assert "| fsync | off | breaks | a power cut loses rows | `SET fsync = on` |" in lines
    assert lines[-1] == "With pakka 1."


WRONG = {
    "oracle://root:hunter22@db/refunds": "error: there is no sink `oracle`\n\nhint: there is `console`, ",
    "sqlite:///nothing.db": "error: there is nothing at {here}/nothing.db\n\nhint: make it first, or audit the sink of a",
    "nothing": "error: there is nothing at {here}/nothing\n\nhint: make it first",
    "sqlite:x.db": "error: `sqlite:x.db`: a path begins after three slashes\n\nhint: write `sqlite:///",
    "refunds.yaml#nope": "error: `refunds.yaml` has no sink `nope`\n\nhint: there is `book`, `refunds`",
    "refunds.yaml": "error: `refunds.yaml` has several sinks\n\nhint: name one of them: `refunds.yaml#refunds`",
    "none.yaml#refunds": "error: there is no file none.yaml",
    "file": "error: {here}/file is a file, and a sink `parquet` is a directory\n\nhint: for a database: `sqlite:///",
}


@pytest.mark.parametrize("target", WRONG)
def test_a_wrong_target_is_wrong_use(pakka, audited, refunds, current_directory, target):
    refunds.write_text(PIPELINE + "  book: {parquet: {path: out/book}}\n")
    (current_directory / "file").write_text("")
    result = pakka("audit", target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(WRONG[target].format(here=current_directory))
    assert "hunter22" not in result.stderr
    assert sorted(p.name for p in current_directory.iterdir()) == ["file", "refunds.yaml"]


@pytest.mark.parametrize("rest", ["@h:9092/refunds", "/2@h:9092/refunds", "#2@h:9092", "@h"])
def test_a_password_in_the_url_of_a_cluster_is_refused_and_not_told(pakka, rest):
    result = pakka("audit", f"kafka://ana:hunter22{rest}")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: kafka: the URL of a cluster takes no user and no password\n")
    assert "go into `settings`" in result.stderr
    assert "hunter22" not in result.output


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("out", "ParquetSink"),
        ("csv:out", "CsvSink"),
        ("postgres://ana:hunter22@db/shop", "PostgresSink"),
        ("postgresql://ana:hunter22@db/shop", "PostgresSink"),
        ("mysql://ana:hunter22@db/shop", "MysqlSink"),
        ("mariadb://ana:hunter22@db/shop", "MysqlSink"),
        ("refunds.yaml#refunds", "MemorySink"),
        ("refunds.yaml", "MemorySink"),
    ],
)
def test_a_target_is_a_directory_a_url_or_a_sink_of_a_file(
    pakka, audited, refunds, current_directory, monkeypatch, target, kind
):
    (current_directory / "out").mkdir()
    seen = []
    monkeypatch.setattr(
        run, "audit", lambda sink, kind, spool, slots, start: seen.append(sink) or report_of(True, True, True, True)
    )
    assert pakka("audit", target).exit_code == 0
    assert [type(sink).__name__ for sink in seen] == [kind]


# What is slow to import, and has nothing to do with SQLite.
HEAVY = {
    "pyspark",
    "py4j",
    "pandas",
    "pydantic",
    "yaml",
    "psycopg",
    "pymysql",
    "confluent_kafka",
    "pyarrow.compute",
    "pakka.contract.pipeline",
    "importlib.metadata",
    "rich.console",
}
SCRIPT = f"""
import sys
from pakka.cli import main
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in ("os.fork", "subprocess.Popen") else None)
try:
    main(sys.argv[1:])
finally:
    print(sorted({HEAVY} & set(sys.modules)), started)
"""


def audit_in_a_process_of_its_own(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", SCRIPT, "audit", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_real_audit_of_a_database_passes_and_imports_only_what_it_needs(current_directory):
    with closing(sqlite3.connect(current_directory / "refunds.db")) as db:
        db.execute("CREATE TABLE refunds (id TEXT)")
    done = audit_in_a_process_of_its_own("sqlite:///refunds.db", "--require", "exactly-once")
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(f"{current_directory}/refunds.db, table pakka_audit was seen to be exactly-once, in ")
    assert [line.split("  ")[0] for line in done.stdout.splitlines() if "  PASS  " in line] == GUARANTEES
    assert last == "[] ['os.fork']"
    assert [p.name for p in current_directory.iterdir()] == ["refunds.db"]


def test_an_error_before_the_first_case_ends_the_processes_that_wait_for_it(current_directory):
    (current_directory / "refunds.db").write_text("no database")
    done = audit_in_a_process_of_its_own("sqlite:///refunds.db")
    assert done.returncode == 1
    assert "file is not a database; nothing was changed\n\nhint: choose the path of a SQLite database" in done.stderr


def test_a_real_audit_of_the_console_fails():
    done = audit_in_a_process_of_its_own("console:", "--format", "junit")
    assert done.returncode == 1
    suite = ElementTree.fromstring("\n".join(done.stdout.splitlines()[:-1]).encode())
    assert [case.get("name") for case in suite if case.find("failure") is not None] == GUARANTEES[2:]
