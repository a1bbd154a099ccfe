import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pakka import mount
from pakka.cli import main

PIPELINE = """\
pipeline: refunds
source:
  rate: {rows_per_epoch: 10}
sinks:
  refunds: {memory: {space: refunds}}
"""


@pytest.fixture(autouse=True)
def current_directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    # Whatever the temporary directory of this machine is on, here it is on a disk.
    mounts = tmp_path.parent / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(mount, "MOUNTS", mounts)
    return tmp_path


@pytest.fixture
def pakka():
    """Call the command line as a user would: `pakka("status", "--json")`."""
    return lambda *words: CliRunner().invoke(main, list(words))


@pytest.fixture
def refunds(current_directory) -> Path:
    """A pipeline file in the current directory."""
    path = current_directory / "refunds.yaml"
    path.write_text(PIPELINE)
    return path
