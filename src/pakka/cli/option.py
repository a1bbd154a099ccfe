"""Options that several verbs have, and the pipeline file that most of them read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pakka.cli.render import Screen
from pakka.errors import UsageError

if TYPE_CHECKING:
    from pakka.contract.pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

_SERVERS = re.compile(r"(?<=--bootstrap-server )\S+")
STATE = "sqlite:///.pakka/state.db"


def verbose(command: F) -> F:
    """`--verbose`, which the screen knows already."""
    told = "Say more; show where an error comes from."
    return click.option("--verbose", is_flag=True, expose_value=False, help=told)(command)


def tells(command: F) -> F:
    """`--json` and `--verbose`. Every verb that tells something has both."""
    return click.option("--json", is_flag=True, expose_value=False, help="Print JSON instead of text.")(
        verbose(command)
    )


def requires(command: F) -> F:
    """`--require exactly-once`."""
    return click.option(
        "--require",
        type=click.Choice(["exactly-once", "at-least-once"]),
        help="Refuse a pipeline whose guarantee is less than this.",
    )(command)


def find(pipeline: str, hint: str) -> str:
    """The file of a pipeline that is named, in the current directory."""
    for name in (f"{pipeline}.yaml", f"{pipeline}.yml"):
        if Path(name).is_file():
            return name
    raise UsageError(
        f"there is no {pipeline}.yaml in the current directory, and the pipeline file is needed", hint=hint
    )


def load(path: str, screen: Screen) -> Pipeline:
    """Read a pipeline file. From here on, what it takes from the environment is hidden on the screen."""
    # Only here: `pakka status` of a state store needs no YAML and is not to wait for it.
    from pakka import config

    # As `python -m` does: a `python:` process may stand in a file beside the pipeline.
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    pipeline = config.load(path)
    hide = config.hider(pipeline)
    screen.hide = lambda text: _SERVERS.sub(_as_a_shell_has_it, hide(text))
    return pipeline


def _as_a_shell_has_it(servers: re.Match[str]) -> str:
    """A command that is told is there to be typed, and to bash `${env:NAME}` is something else."""
    return re.sub(r"\$\{env:(\w+)\}", r"$\1", servers[0])
