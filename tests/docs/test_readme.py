"""What the README shows is what happens."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.docs.console import missing, steps
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "README.md"
SETTLEMENT = '{"settlement_id": "S%d", "amount_paise": 100}\n'


def block(language: str, begins: str = "") -> str:
    (found,) = [b.text for b in blocks(PAGE) if b.language == language and b.text.startswith(begins)]
    return found


def test_check_says_what_the_readme_says(tmp_path):
    ((_, told),) = steps(block("console", "$ pakka check"))
    (tmp_path / "refunds.yaml").write_text(block("yaml"))
    command = [str(Path(sys.executable).with_name("pakka")), "check", "refunds.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    # The page shows it as wide as a terminal, where the last column is wrapped.
    assert " ".join(" ".join(told).split()) == " ".join(done.stdout.split())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn("guide", "readme")
def test_the_python_of_the_readme_delivers_each_row_once_however_often_it_runs(tmp_path):
    data = tmp_path / "data" / "settlements"
    data.mkdir(parents=True)
    for run in range(2):
        (data / f"{run}.json").write_text("".join(SETTLEMENT % n for n in range(run * 10, run * 10 + 10)))
        command = [sys.executable, "-c", block("python")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == 0, done.stderr
    rows = ds.dataset(tmp_path / "out" / "refunds", format="parquet").to_table().column("settlement_id").to_pylist()
    assert sorted(rows) == sorted(f"S{n}" for n in range(20))


def test_a_line_that_was_not_printed_is_found():
    told = ["refunds: done after 1 epoch", "gone ... for ever"]
    assert missing(told, "refunds:   done after 7 epoch: 12") == ["gone ... for ever"]
    assert missing(told, "refunds: done after 2 epochs\ngone, they say, for ever") == []
