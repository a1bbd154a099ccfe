"""Every YAML block in the documentation is a pipeline that loads, or a part of one that loads in its place."""

import re
from pathlib import Path

import pytest
import yaml

from pakka import config
from pakka.errors import ConfigError
from tests.docs.pages import ROOT, Block, blocks, pages

WHOLE = """
pipeline: refunds
source: {files: {path: data/settlements, format: json, schema: settlement_id STRING}}
sinks: {refunds: {parquet: {path: out/refunds}}}
dead_letters: {parquet: {path: out/dead}}
"""
BLOCKS = [block for page in pages() for block in blocks(page) if block.language == "yaml"]


def load(text: str, directory: Path) -> None:
    """Load a pipeline file, or put its fields in place of those of a whole one and load that."""
    data = yaml.safe_load(text)
    assert isinstance(data, dict), "not a mapping of fields"
    if "pipeline" not in data:
        text = yaml.safe_dump({**yaml.safe_load(WHOLE), **data}, sort_keys=False)
    file = directory / "pipeline.yaml"
    file.write_text(text)
    named = re.findall(r"\$\{env:(\w+)\}", text)
    config.load(file, {name: "broker:9092" if name.endswith("SERVERS") else "value" for name in named})


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_yaml_block_loads(block: Block, tmp_path):
    load(block.text, tmp_path)


@pytest.mark.parametrize("file", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda p: p.name)
def test_every_example_loads(file, tmp_path):
    load(file.read_text(), tmp_path)


@pytest.mark.parametrize(
    "text", ["sinks: {refunds: {parket: {path: out}}}", "pipeline: refunds\nsinks: {}", "state: mysql://x"]
)
def test_a_block_that_does_not_load_is_found(text, tmp_path):
    with pytest.raises(ConfigError):
        load(text, tmp_path)
