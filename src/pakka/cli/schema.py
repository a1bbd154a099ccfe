"""`pakka schema`: the JSON Schema of pipeline files."""

from __future__ import annotations

import click

from pakka import config
from pakka.cli.option import verbose
from pakka.cli.render import Screen


@click.command("schema")
@verbose
@click.pass_obj
def command(screen: Screen) -> None:
    """Print the JSON Schema of pipeline files, for editors that complete and check YAML.

    It holds every source and sink there is, also those of installed packages:

    \b
      pakka schema > pipeline.schema.json
      # first line of refunds.yaml:
      # yaml-language-server: $schema=pipeline.schema.json
    """  # noqa: D301  # click means the character, and not a backslash
    screen.say_json(config.json_schema())
