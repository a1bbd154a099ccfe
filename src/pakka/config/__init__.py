"""Pipeline files: YAML to frozen values, checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pakka.config.build import build
from pakka.config.document import read
from pakka.config.environment import hider
from pakka.config.schema import json_schema
from pakka.contract.pipeline import Pipeline

__all__ = ["hider", "json_schema", "load"]


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline that a file describes. What is wrong is raised as one `ConfigError`; nothing is started.

    Relative paths in the file are relative to the current directory, as they are for Spark.
    """
    return build(read(path, os.environ if environ is None else environ))
