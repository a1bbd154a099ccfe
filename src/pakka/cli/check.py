"""`pakka check`: the guarantee of a pipeline, with the reason for each part. Nothing is started or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import click

from pakka import state
from pakka.cli.option import load, requires, tells
from pakka.cli.place import Place, is_on_network, places
from pakka.cli.render import Screen
from pakka.contract.audit import Finding, Probing, Severity, probing_of
from pakka.contract.pipeline import Pipeline
from pakka.contract.source import Located
from pakka.coordinator.assess import assess, require
from pakka.coordinator.watch import look, source_of, spool_of
from pakka.errors import RefusedError
from pakka.model.guarantee import Guarantee, Level, Part
from pakka.model.id import Binding


class Setting(NamedTuple):
    """A setting, and what it is a setting of."""

    of: str
    finding: Finding

    @property
    def is_breaking(self) -> bool:
        return self.finding.severity is Severity.BREAKS

    @property
    def part(self) -> Part:
        because = f"it is {self.finding.value}: {self.finding.why}"
        return Part(f"{self.finding.name} of {self.of}", False, because, self.finding.fix)


@click.command("check")
@click.argument("file")
@requires
@tells
@click.pass_obj
def command(screen: Screen, file: str, require: str | None) -> None:
    """Say which guarantee the pipeline in FILE has, and why.

    Exactly-once needs all of: a source that can be read again, sinks that keep the contract, state and spool that fit
    the deployment, and commits that an older driver cannot make. What is missing is named, with what would mend it. So is a
    setting of the source, of a sink or of the state store that takes the guarantee away.

    Nothing is started and nothing is written. With --require the exit code is 1 if the guarantee is less.
    """
    pipeline = load(file, screen).chosen()
    settings = settings_of(pipeline)
    guarantee = guarantee_of(pipeline, settings)
    found = places(pipeline)
    if screen.is_json:
        screen.say_json(_told(pipeline, guarantee, found, settings))
    else:
        _show(screen, pipeline, guarantee)
    _warn(screen, settings)
    _check_places(pipeline, found)
    check_level(pipeline, guarantee, require)


def settings_of(pipeline: Pipeline) -> list[Setting]:
    """Every setting of the source, the sinks and the state store that can weaken the guarantee, as it is now."""
    found = [Setting("the state store", finding) for finding in state.settings_of(pipeline.state)]
    subjects: dict[str, object] = {**source_of(pipeline), **spool_of(pipeline)}
    source: object = pipeline.source
    position = partial(source.beginning, pipeline.name) if isinstance(source, Located) else str
    for name, output in pipeline.outputs.items():
        binding = Binding(pipeline.name, name, pipeline.spool_path)
        subjects[f"sink `{name}`"] = probing_of(output.sink, binding, position=position)
    for subject, probing in subjects.items():
        if isinstance(probing, Probing):
            found += [Setting(subject, look(subject, probe)) for probe in probing.probes()]
    return found


def guarantee_of(pipeline: Pipeline, settings: Sequence[Setting]) -> Guarantee:
    """The guarantee as far as it can be known without starting anything."""
    guarantee = assess(
        pipeline,
        store_is_shared=not pipeline.state.startswith("sqlite:"),
        master=pipeline.spark.get("spark.master", "local[*]"),
        spool_is_shared=is_on_network(pipeline.spool),
    )
    return Guarantee((*guarantee.parts, *(setting.part for setting in settings if setting.is_breaking)))


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


def _warn(screen: Screen, settings: Sequence[Setting]) -> None:
    for subject, finding in settings:
        if finding.severity is Severity.WARNS:
            screen.talk(f"note: {subject}: {finding.name} is {finding.value}: {finding.why} ({finding.fix})")


def _told(pipeline: Pipeline, guarantee: Guarantee, found: list[Place], settings: Sequence[Setting]) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "level": str(guarantee.level),
        "parts": [asdict(part) for part in guarantee.parts],
        "source": pipeline.source.describe(),
        "sinks": {name: output.sink.target() for name, output in pipeline.outputs.items()},
        "places": [asdict(place) for place in found],
        "settings": [{"of": of, **asdict(finding), "severity": str(finding.severity)} for of, finding in settings],
    }
