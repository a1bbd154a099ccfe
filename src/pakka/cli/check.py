"""`pakka check`: the guarantee of a pipeline, with the reason for each part. Nothing is started or written."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from pakka.cli.option import load, requires, tells
from pakka.cli.place import Place, is_on_network, places
from pakka.cli.render import Screen
from pakka.contract.pipeline import Pipeline
from pakka.coordinator.assess import assess, require
from pakka.errors import RefusedError
from pakka.model.guarantee import Guarantee, Level


@click.command("check")
@click.argument("file")
@requires
@tells
@click.pass_obj
def command(screen: Screen, file: str, require: str | None) -> None:
    """Say which guarantee the pipeline in FILE has, and why.

    Exactly-once needs all of: a source that can be read again, sinks that keep the contract, state and spool that fit
    the deployment, and commits that an older driver cannot make. What is missing is named, with what would mend it.

    Nothing is started and nothing is written. With --require the exit code is 1 if the guarantee is less.
    """
    pipeline = load(file, screen)
    guarantee = guarantee_of(pipeline)
    found = places(pipeline)
    if screen.is_json:
        screen.say_json(_told(pipeline, guarantee, found))
    else:
        _show(screen, pipeline, guarantee)
    _check_places(pipeline, found)
    check_level(pipeline, guarantee, require)


def guarantee_of(pipeline: Pipeline) -> Guarantee:
    """The guarantee as far as it can be known without starting anything."""
    return assess(
        pipeline,
        store_is_shared=not pipeline.state.startswith("sqlite:"),
        master=pipeline.spark.get("spark.master", "local[*]"),
        spool_is_shared=is_on_network(pipeline.spool),
    )


def check_level(pipeline: Pipeline, guarantee: Guarantee, level: str | None) -> None:
    """Refuse what `--require` rules out."""
    if level is not None:
        require(pipeline.name, guarantee, Level(level))


def _check_places(pipeline: Pipeline, found: list[Place]) -> None:
    bad = [place for place in found if place.trouble]
    if bad:
        listed = "; ".join(f"{place.field}: {place.path}: {place.trouble}" for place in bad)
        raise RefusedError(
            f"pipeline `{pipeline.name}` cannot write where it has to: {listed}; nothing was started",
            hint="change the path, or its permissions",
        )


def _show(screen: Screen, pipeline: Pipeline, guarantee: Guarantee) -> None:
    screen.say(f"pipeline `{pipeline.name}` is {guarantee.level}\n")
    rows = [[part.name, "yes" if part.holds else "NO", part.because] for part in guarantee.parts]
    screen.table(["part", "holds", "because"], rows)
    mends = [f"  {part.name}: {part.mend}" for part in guarantee.missing if part.mend]
    if mends:
        screen.say("\nto mend it:\n" + "\n".join(mends))


def _told(pipeline: Pipeline, guarantee: Guarantee, found: list[Place]) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "level": str(guarantee.level),
        "parts": [asdict(part) for part in guarantee.parts],
        "source": pipeline.source.describe(),
        "sinks": {name: output.sink.target() for name, output in pipeline.outputs.items()},
        "places": [asdict(place) for place in found],
    }
