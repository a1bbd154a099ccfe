"""`make demo`, small: it is killed, recovers, and its own count says that every row is there once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples.refunds import settlements, tally

from tests.docs.console import missing, steps
from tests.docs.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
ROWS = 20_000

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.in_turn("demo", "files"),
]


def demo(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "examples/refunds/demo.py"), "--dir", str(directory), *options]
    environment = {k: v for k, v in os.environ.items() if k != "PAKKA_DRILL"} | {"COLUMNS": "120"}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


def figures(table: str) -> dict[str, list[int]]:
    """The rows of the printed table: the first cell, and the numbers in the others."""
    cells = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return {c[0]: [int(n.replace(",", "")) for n in c[1:]] for c in cells if len(c) > 1 and c[1][0].isdigit()}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """One run of the demo, what it left, and what it printed."""
    directory = tmp_path_factory.mktemp("demo") / "work"
    result = demo(directory, "--rows", str(ROWS), "--keep")
    assert result.returncode == 0, result.stdout + result.stderr
    return directory, result


def test_every_row_is_there_once_after_a_kill_in_the_middle_of_a_commit(told):
    _, result = told
    table = figures(result.stdout)
    assert table["rows in"] == [ROWS]
    for output in ("refunds", "audit", "dead letters"):
        expected, there, lost, twice = table[output]
        assert (there, lost, twice) == (expected, 0, 0)
    assert table["refunds"][1] + table["dead letters"][1] == ROWS
    assert table["kills survived"] == [1]
    assert table["epochs"] == [settlements.FILES // 4]


def test_the_kill_and_the_recovery_are_told(told):
    _, result = told
    told = " ".join(result.stderr.split())
    assert "killed by SIGKILL, in the middle of the commit of epoch 2" in told
    assert "fence 2 recovered: 1 decided epoch finished" in told
    assert "epoch 2 is in every sink; Spark is told so, nothing is written" in told


def test_the_readme_shows_what_the_demo_prints(told):
    _, result = told
    (block,) = [b for b in blocks(ROOT / "README.md") if b.text.startswith("$ make demo\n")]
    ((_, shown),) = steps(block.text)
    assert missing(shown, result.stderr + result.stdout) == []


def test_spark_is_quiet(told):
    _, result = told
    assert not re.search(r"WARN|log4j|Exception|Setting default log level", result.stdout + result.stderr)


def test_what_the_demo_left_is_right_by_another_count(told):
    directory, _ = told
    assert tally.tally(directory).wrong() == []


def test_no_process_of_the_demo_is_left(told):
    directory, _ = told
    inside = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith(str(directory)):
            inside.append(link.parent.name)
    assert inside == []


def test_a_directory_that_the_demo_did_not_make_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    result = demo(tmp_path)
    assert result.returncode == 1
    assert "was not made by the demo" in result.stderr
    assert (tmp_path / "mine.txt").read_text() == "keep me"
