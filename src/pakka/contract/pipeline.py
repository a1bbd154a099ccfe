"""A pipeline as a frozen value: what a YAML file and the Python interface both become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pakka.contract.sink import Sink, chosen
from pakka.contract.source import Source
from pakka.errors import ConfigError
from pakka.model.id import check_name
from pakka.model.rule import OnFail, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD_LETTERS = "dead_letters"
"""The name under which the dead-letter sink stands beside the others; no other sink may have it."""


@dataclass(frozen=True, slots=True)
class Output:
    """A sink, and what of each good row it gets: `select` are columns or Spark SQL expressions, `where` a condition."""

    sink: Sink
    select: tuple[str, ...] = ()
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """When epochs begin. No interval: take all there is now, then stop."""

    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A named source -> process -> quality -> sinks. Its name is its identity for ever."""

    name: str
    source: Source
    sinks: Mapping[str, Output | Sink]
    process: str | Callable[[DataFrame], DataFrame] | None = None
    """Spark SQL over the view `source`, or a function from DataFrame to DataFrame."""
    quality: tuple[Rule, ...] = ()
    dead_letters: Output | Sink | None = None
    state: str = "sqlite:///.pakka/state.db"
    spool: str = ".pakka/spool"
    checkpoint: str | None = None
    """Spark's checkpoint directory; `.pakka/checkpoints/NAME` if not given."""
    slots: int | None = None
    """At most so many writers an epoch; the parallelism of the cluster if not given."""
    trigger: Trigger = field(default_factory=Trigger)
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings, as in `spark-defaults.conf`."""
    record_time: str | None = None
    """When a row's record was made, for the metrics: a TIMESTAMP column or expression over the rows that `process` makes. If
    not given, the column of the source that says it, where there is one and `process` lets it through."""

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)
        if not self.sinks:
            raise ConfigError(f"pipeline `{self.name}` has no sinks", hint="add at least one under `sinks`")
        for sink in self.sinks:
            check_name("sink", sink)
        if DEAD_LETTERS in self.sinks:
            raise ConfigError(f"pipeline `{self.name}`: no sink may be called `{DEAD_LETTERS}`", hint="rename it")
        if self.dead_letters is None and any(r.on_fail is OnFail.DEAD_LETTER for r in self.quality):
            raise ConfigError(
                f"pipeline `{self.name}`: a rule sends rows to the dead letters, and there is no `dead_letters` sink",
                hint="add `dead_letters: {parquet: {path: out/dead}}`, or use `on_fail: drop` or `on_fail: fail`",
            )
        if self.slots is not None and self.slots < 1:
            raise ConfigError(f"pipeline `{self.name}`: slots is {self.slots}; at least 1 is needed")
        self._check_targets()

    @property
    def outputs(self) -> dict[str, Output]:
        """Every sink with what it gets, the dead letters last."""
        named: dict[str, Any] = dict(self.sinks)
        if self.dead_letters is not None:
            named[DEAD_LETTERS] = self.dead_letters
        return {n: o if isinstance(o, Output) else Output(o) for n, o in named.items()}

    def chosen(self) -> Pipeline:
        """This pipeline with every choice made that its sinks leave to their systems, which are asked for it."""
        made = {name: replace(out, sink=chosen(out.sink, self.slots)) for name, out in self.outputs.items()}
        dead = made.pop(DEAD_LETTERS, None)
        return replace(self, sinks=made, dead_letters=dead)

    @property
    def checkpoint_path(self) -> str:
        """Spark's checkpoint directory, the same for every process whatever its current directory is."""
        path = self.checkpoint or f".pakka/checkpoints/{self.name}"
        return path if "://" in path else str(Path(path).absolute())

    @property
    def spool_path(self) -> str:
        """The spool directory, the same for every process whatever its current directory is."""
        return str(Path(self.spool).absolute())

    def _check_targets(self) -> None:
        seen: dict[str, str] = {}
        for name, output in self.outputs.items():
            target = output.sink.target()
            if target in seen:
                raise ConfigError(
                    f"pipeline `{self.name}`: sinks `{seen[target]}` and `{name}` both write to {target}",
                    hint="give each sink an output of its own",
                )
            # A reader of the outer directory would take the inner one's rows, and what is staged for it, for its own.
            for other, of in seen.items():
                outer, inner = sorted((other, target), key=len)
                if inner.startswith(outer.rstrip("/") + "/"):
                    raise ConfigError(
                        f"pipeline `{self.name}`: the output of one of the sinks `{of}` and `{name}` is inside that of the "
                        f"other: {inner} in {outer}",
                        hint="put them side by side",
                    )
            seen[target] = name
