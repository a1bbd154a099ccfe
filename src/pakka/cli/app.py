"""`pakka`: the group of verbs, and what becomes of an error.

A verb's module is imported only when it is called, so that `pakka --help` and `pakka status` wait for nothing. Data goes
to stdout, talk and errors to stderr. Exit codes: 0 done, 1 failed and data unchanged, 2 wrong use, 3 outcome unknown,
4 fenced, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from pakka import __version__
from pakka.cli.render import Screen
from pakka.errors import PakkaError, UsageError
from pakka.model.id import nearest

VERBS = {
    "init": "Write an example that runs: a pipeline file and some rows.",
    "check": "Say which guarantee a pipeline has, and why.",
    "run": "Run a pipeline: deliver every epoch to all of its sinks.",
    "audit": "Test a live sink for the four guarantees, and read its settings.",
    "status": "Show pipelines: epochs, rows, owner, what is in doubt.",
    "indoubt": "List what is in doubt in the sinks, or settle it from the decision.",
    "reset": "Accept a checkpoint or an output that does not fit, after a dry run.",
    "schema": "Print the JSON Schema of pipeline files, for editors.",
}
_INTERRUPTED = 130


class Verbs(click.Group):
    """Finds verbs by name, and turns every error into words on stderr and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            raise UsageError(f"there is no command `{cmd_name}`", hint=nearest(cmd_name, VERBS))
        command: click.Command = getattr(importlib.import_module(f"pakka.cli.{cmd_name}"), "command")  # noqa: B009
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The one-line texts are here, so that the list needs no import of the verbs."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        # Known before anything is parsed, because what cannot be parsed has to be told as well.
        screen = Screen(is_json="--json" in given, is_verbose="--verbose" in given)
        sys.exit(self._run(given, screen))

    def _run(self, given: list[str], screen: Screen) -> int:
        try:
            answer = super().main(args=given, prog_name="pakka", standalone_mode=False, obj=screen)
            return answer if isinstance(answer, int) else 0
        except PakkaError as error:
            screen.error(error)
            return error.exit_code
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "pakka"
            screen.error(UsageError(error.format_message().rstrip("."), hint=f"see `{where} --help`"))
            return UsageError.exit_code
        except (click.Abort, KeyboardInterrupt):
            screen.talk("interrupted")
            return _INTERRUPTED
        except BrokenPipeError:
            # Whoever read stdout has gone, as `head` does; there is nobody left to tell.
            screen.abandon_stdout()
            return 1
        except Exception as error:
            screen.unexpected(error)
            return 1


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`pakka VERB --help` tells more. Start with `pakka init`.",
)
@click.version_option(__version__, message="pakka %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Exactly-once delivery for Apache Spark pipelines: every epoch in all of its sinks, once, through any crash."""
    if context.invoked_subcommand is None:
        context.obj.say(context.get_help())
