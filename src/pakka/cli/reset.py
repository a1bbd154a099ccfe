"""`pakka reset`: accept what the regress guard refused, after a dry run that says what follows."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import click

from pakka.cli.option import find, load, tells
from pakka.cli.render import Screen
from pakka.contract.pipeline import Pipeline
from pakka.contract.state import Owner
from pakka.coordinator.reset import Plan, Reset
from pakka.errors import UsageError
from pakka.state import open_store


@click.command("reset")
@click.argument("pipeline")
@click.option("--checkpoint", "what", flag_value="checkpoint", help="Go on with Spark's checkpoint as it is now.")
@click.option("--forget", "what", flag_value="forget", help="Drop the pipeline from the state store.")
@click.option("--sink", metavar="NAME", help="Accept that this sink lacks epochs that were committed to it.")
@click.option("--file", metavar="FILE", help="The pipeline file.  [default: PIPELINE.yaml]")
@click.option("--yes", is_flag=True, help="Do it. Without this, only say what would be done.")
@tells
@click.pass_obj
def command(screen: Screen, pipeline: str, what: str | None, sink: str | None, file: str | None, yes: bool) -> None:
    """Accept a checkpoint or an output that does not fit PIPELINE any more.

    When checkpoint, state store and sinks contradict each other, a run refuses to start, because going on would lose
    or double rows. If they cannot be restored, one of --checkpoint, --sink and --forget tells pakka to go on as they are.

    Without --yes nothing is changed: the steps are listed, and what follows for the rows.
    """
    if (what is None) == (sink is None):
        raise UsageError(
            "one of --checkpoint, --sink NAME and --forget is needed", hint="the error of `pakka run` says which one"
        )
    described = load(file or find(pipeline, f"pakka reset {pipeline} --file FILE ..."), screen)
    if described.name != pipeline:
        raise UsageError(
            f"the file describes pipeline `{described.name}`, not `{pipeline}`", hint="name its file with `--file FILE`"
        )
    with (
        closing(open_store(described.state, must_exist=True)) as store,
        ThreadPoolExecutor(max_workers=8) as pool,
    ):
        sinks = {name: output.sink for name, output in described.chosen().outputs.items()}
        owner = Owner(socket.gethostname(), os.getpid(), time.time())
        reset = Reset(pipeline, sinks, store, described.spool_path, owner, time.sleep, pool)
        plan = _plan(reset, described, what, sink)
        if not screen.is_json:
            _show(screen, pipeline, plan, yes)
        if yes:
            plan.apply()
    if screen.is_json:
        accepted = what or "sink"
        told = {"pipeline": pipeline, "accept": accepted, "steps": plan.steps, "follows": plan.follows, "is_done": yes}
        screen.say_json(told)
    elif yes:
        screen.talk("done")
    else:
        screen.talk("nothing was changed; add --yes to do it")


def _plan(reset: Reset, pipeline: Pipeline, what: str | None, sink: str | None) -> Plan:
    from pakka.spark import checkpoint

    if sink is not None:
        return reset.accept_sink(sink)
    if what == "forget":
        return reset.forget(pipeline.checkpoint_path)
    return reset.accept_checkpoint(checkpoint.read(pipeline.checkpoint_path))


def _show(screen: Screen, pipeline: str, plan: Plan, yes: bool) -> None:
    screen.say(f"reset of pipeline `{pipeline}`{':' if yes else ', if done:'}")
    for number, step in enumerate(plan.steps, start=1):
        screen.say(f"  {number}. {step}")
    screen.say("\nwhat follows:")
    for line in plan.follows:
        screen.say(f"  - {line}")
