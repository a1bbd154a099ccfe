"""Pipeline files for the tests of this directory."""

from pathlib import Path

from pakka import config
from pakka.contract.pipeline import Pipeline
from pakka.errors import ConfigError

PLAIN = """\
pipeline: refunds
source:
  rate: {rows_per_epoch: 10}
sinks:
  refunds: {memory: {space: refunds}}
"""


def load(text: str, environ: dict[str, str] | None = None) -> Pipeline:
    """The pipeline of a file `refunds.yaml` in the current directory, with no more environment than is given."""
    Path("refunds.yaml").write_text(text)
    return config.load("refunds.yaml", environ or {})


def mistakes(text: str, environ: dict[str, str] | None = None) -> str:
    """What is said of a wrong file."""
    try:
        pipeline = load(text, environ)
    except ConfigError as error:
        return str(error)
    raise AssertionError(f"nothing was said of it: {pipeline}")
