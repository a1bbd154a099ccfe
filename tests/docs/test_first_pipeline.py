"""The commands of docs/guides/first-pipeline.md, run in their order, print what the page says they print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pakka.cli.init import example
from tests.docs.console import missing, steps
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "first-pipeline.md"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.in_turn("guide", "first pipeline")
def test_every_command_of_the_guide_prints_what_the_guide_says(tmp_path):
    here = tmp_path
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PAKKA_DRILL", None)
    for command, told in [step for b in blocks(PAGE) if b.language == "console" for step in steps(b.text)]:
        if command.startswith("cd "):
            here = here / command.removeprefix("cd ")
            continue
        # The second line keeps bash from becoming the command, so that it lives to tell who was killed.
        script = ["bash", "-c", f"{command}\nexit $?"]
        done = subprocess.run(
            script, cwd=here, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        printed = done.stdout + done.stderr
        assert missing(told, printed) == [], f"$ {command}\n{printed}"


def test_the_pipeline_on_the_page_is_the_one_that_init_writes():
    (block,) = [b for b in blocks(PAGE) if b.language == "yaml"]
    assert example().endswith(block.text)


def test_the_example_is_the_one_that_init_writes():
    assert (ROOT / "examples" / "refunds" / "refunds.yaml").read_text() == example()
