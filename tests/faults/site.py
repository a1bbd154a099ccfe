"""One pipeline of one test: its directory, its state store, its drivers, and the judge at the end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pakka.testing.crash import Drill
from tests.faults.child import KILLED, Child, group, start_driver, wait_until
from tests.faults.driver import Spec
from tests.faults.engine import CheckpointDirectory
from tests.faults.judge import STANDARD, Judge, Snapshot, take_outputs, take_snapshot


class Site:
    """Starts drivers on one pipeline and remembers them, so that none outlives its test."""

    def __init__(self, root: Path, state: str, **spec: Any) -> None:
        self.root = root
        self.spec = Spec(str(root), state, **spec)
        self.children: list[Child] = []
        # Beside the site, which may be full or out of reach when a driver has something to say.
        self._words = root.with_name(f"{root.name}.words")
        self._words.mkdir()
        root.mkdir(exist_ok=True)

    @property
    def judge(self) -> Judge:
        return self.judge_of(("slips", *STANDARD) if self.spec.sinks.endswith("with_slips") else STANDARD)

    def judge_of(self, sinks: tuple[str, ...]) -> Judge:
        return Judge(self.root, self.spec.state, self.spec.workload, sinks)

    def start(self, drill: Drill | None = None, **changes: Any) -> Child:
        spec = replace(self.spec, **changes)
        child = start_driver(spec, self._words / f"{len(self.children)}", drill)
        self.children.append(child)
        return child

    def crash(self, drill: Drill, **changes: Any) -> Child:
        """Run a driver into a drill that kills it. One that does not strike proves nothing, and fails the test."""
        child = self.start(drill, **changes)
        code = child.wait()
        assert code == KILLED, f"{drill} did not strike: exit code {code}\n{child.said}"
        return child

    def freeze(self, drill: Drill, **changes: Any) -> Child:
        """Run a driver into a drill that stops it."""
        child = self.start(replace(drill, do="stop"), **changes)
        child.wait_until_frozen()
        return child

    def run(self, code: int = 0, **changes: Any) -> Child:
        """Run a driver to its end, which must be this one."""
        child = self.start(**changes)
        ended = child.wait()
        assert ended == code, f"exit code {ended} instead of {code}; it said:\n{child.said}"
        return child

    def finish(self, **changes: Any) -> None:
        """Run to the end of the input; then every row must be where it belongs, once, and nothing else be there."""
        self.run(**changes)
        self.check()

    def survive(self, drill: Drill) -> None:
        """A driver dies at this place: nobody sees a part of anything, and the next one brings all to its end."""
        self.crash(drill)
        self.check_whole_epochs()
        self.finish()

    def check(self) -> None:
        findings = self.judge.final()
        assert findings == [], self._story(findings)

    def check_whole_epochs(self) -> None:
        """Whatever happened: a reader sees each epoch whole, or not at all."""
        findings = self.judge.partial()
        assert findings == [], self._story(findings)

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.root, self.spec.state, self.spec.pipeline)

    def outputs(self) -> dict[str, str]:
        """The outputs and the spool, byte for byte and row for row."""
        return take_outputs(self.root)

    def acknowledge(self, batch: int) -> None:
        """What Spark does right after a driver has delivered a batch."""
        CheckpointDirectory(self.root / "checkpoint", self.spec.workload.batches).acknowledge(batch)

    def log(self) -> str:
        """What became of each slot that ran in a worker."""
        return (self.root / "log").read_text()

    def wait_for_group(self, child: Child) -> None:
        """Until the workers of a driver have ended as well."""
        wait_until(lambda: not group(child.pid), f"the workers of {child.pid} do not end")

    def close(self) -> None:
        for child in self.children:
            child.clear_away()

    def _story(self, findings: list[str]) -> str:
        said = [f"driver {n} (exit {c.process.exitcode}): {c.said}" for n, c in enumerate(self.children)]
        return "\n".join([*findings, *said])
