"""Settings that weaken a guarantee, read at the start of a run and again while it goes on.

What a run begins with is its user's choice, who was told. What becomes worse on the way is nobody's choice, and stops the
pipeline before the decision of the epoch that looks; or is told, if the guarantee still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pakka.contract.audit import Finding, Probe, Probing, Severity
from pakka.contract.sink import uses_spool
from pakka.coordinator.retry import Retry
from pakka.durability import Spool
from pakka.errors import PakkaError, RefusedError, UnavailableError
from pakka.model.event import Listen, Noticed

if TYPE_CHECKING:
    from pakka.contract.pipeline import Pipeline


@dataclass
class Watch:
    """Watches over the source, the sinks and the state store of one run. `every` is in epochs; 0 never looks again."""

    pipeline: str
    subjects: Mapping[str, object]
    """Source, sinks and state store by the words a user knows; those without `Probing` are passed over."""
    every: int
    retry: Retry
    sleep: Callable[[float], None]
    tell: Listen = lambda _: None
    _begun_with: dict[tuple[str, str], Finding] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)
    _epochs: int = 0

    def begin(self) -> None:
        """Take the settings as they are now for what the run begins with."""
        self._begun_with = dict(self._look())
        self._told.clear()
        self._epochs = 0

    def check(self, epoch: int) -> None:
        """Before the decision of an epoch: refuse it if a setting breaks the guarantee that did not when the run began. What has come to
        weaken something else is told, once.
        """
        self._epochs += 1
        if self.every <= 0 or self._epochs % self.every:
            return
        for (subject, name), finding in self._look():
            before = self._begun_with.get((subject, name))
            if finding.severity is Severity.BREAKS and (before is None or before.severity is not Severity.BREAKS):
                was = f", which was `{before.value}` when the run began" if before else ""
                raise RefusedError(
                    f"pipeline `{self.pipeline}`: {subject} was weakened while it runs: {name} is `{finding.value}`{was}; "
                    f"{finding.why}; epoch {epoch} is not decided and nothing of it is visible",
                    hint=f"mend it with `{finding.fix}`, then run again: the epoch runs again with the same rows",
                )
            is_new = before is None or before.severity is Severity.FINE
            if finding.severity is Severity.WARNS and is_new and (subject, name) not in self._told:
                self._told.add((subject, name))
                said = f"{subject}: {name} is `{finding.value}` since the run began: {finding.why}"
                self.tell(Noticed(self.pipeline, "weak", said, hint=finding.fix))

    def _look(self) -> Iterator[tuple[tuple[str, str], Finding]]:
        for subject, probing in self.subjects.items():
            if isinstance(probing, Probing):
                for probe in probing.probes():
                    if probe.is_cheap:
                        yield (subject, probe.name), self.retry.ask(partial(look, subject, probe), self.sleep)


def spool_of(pipeline: Pipeline) -> dict[str, Probing]:
    """The spool by the words a user knows, if a sink of the pipeline rests on it."""
    is_used = any(uses_spool(output.sink) for output in pipeline.outputs.values())
    return {"the spool": Spool(pipeline.spool_path)} if is_used else {}


def source_of(pipeline: Pipeline) -> dict[str, Probing]:
    """The source by the words a user knows, if it has settings that matter."""
    source: object = pipeline.source
    return {"the source": source} if isinstance(source, Probing) else {}


def look(subject: str, probe: Probe) -> Finding:
    """Read one setting. What keeps it from being read is told in our words, with the subject."""
    try:
        return probe.look()
    except PakkaError:
        raise
    except Exception as error:
        raise UnavailableError(
            f"{subject}: its setting {probe.name} cannot be read: {error}; nothing was changed",
            hint="see that it is there and may be read, then run again",
        ) from error
