"""One pipeline of one test on Spark: its file, its input, its drivers, and the judge at the end."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from pakka.testing.crash import Drill
from tests.faults.judge import Snapshot, take_snapshot
from tests.faults.spark.inputs import AMOUNT_MAX, PROCESS, SCHEMA, Inputs
from tests.faults.spark.judge import SparkJudge
from tests.faults.spark.process import KILLED, Driver

PIPELINE = "refunds"
DONE, FAILED, FENCED = 0, 1, 4


class Site:
    """Starts drivers on one pipeline and remembers them, so that none outlives its test."""

    environment: ClassVar[Mapping[str, str]] = {}
    """Of its drivers, beside the test's own."""

    def __init__(self, root: Path, batches: int = 3, sinks: tuple[str, ...] = ("refunds", "audit")) -> None:
        self.root = root
        self.inputs = Inputs(root / "in", batches)
        self.sinks = sinks
        self.drivers: list[Driver] = []
        root.mkdir(parents=True, exist_ok=True)
        (root / "refunds.yaml").write_text(yaml.safe_dump(self._pipeline(), sort_keys=False))
        self.inputs.write()

    @property
    def state(self) -> str:
        return f"sqlite:///{self.root / 'state.db'}"

    @property
    def judge(self) -> SparkJudge:
        return SparkJudge(self.root, self.state, self.inputs, (*self.sinks, "dead_letters"))

    def _pipeline(self) -> dict[str, Any]:
        out = self.root / "out"
        sinks = {
            "refunds": {"parquet": {"path": "out/refunds"}},
            "audit": {"sqlite": {"path": "out/audit.db", "table": "refund_audit"}, "select": ["refund_id", "batch"]},
            "slips": {"slips": {"path": str(out / "slips.db")}, "select": ["id", "batch"], "where": "id % 2 = 0"},
        }
        out.mkdir(exist_ok=True)
        return {
            "pipeline": PIPELINE,
            "source": {"files": {"path": "in", "schema": SCHEMA, "max_files_per_epoch": 1}},
            "process": PROCESS,
            "quality": [{"not_null": "merchant"}, {"range": {"column": "amount", "min": 1, "max": AMOUNT_MAX}}],
            "sinks": {name: sinks[name] for name in self.sinks},
            "dead_letters": {"parquet": {"path": "out/dead"}},
            "state": self.state,
            "spool": "spool",
            "slots": 2,
            "spark": {
                "spark.master": "local[2,4]",
                "spark.driver.memory": "512m",
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.root / 'scratch'}",
                "spark.sql.shuffle.partitions": 2,
                # Small files, and yet several partitions of several Arrow batches each.
                "spark.sql.files.maxPartitionBytes": 8192,
                "spark.sql.execution.arrow.maxRecordsPerBatch": 40,
            },
        }

    def start(self, drill: Drill | None = None) -> Driver:
        return self.call("run", "refunds.yaml", drill=drill)

    def call(self, *words: str, drill: Drill | None = None) -> Driver:
        """Any command of `pakka`, in a process of its own."""
        driver = Driver(self.root, [*words, "--json"], f"{len(self.drivers)}-{words[0]}", drill, self.environment)
        self.drivers.append(driver)
        return driver

    def strike(self, drill: Drill, code: int) -> Driver:
        """Run a driver into a drill, to this end. A drill that does not strike proves nothing, and fails the test."""
        # A site may be the copy of one that was struck before: a mark that is there already would keep the drill from striking.
        mark = self.root / f"struck-{uuid.uuid4().hex}"
        driver = self.start(replace(drill, mark=str(mark)))
        ended = driver.wait()
        assert mark.exists(), f"{drill} did not strike; exit code {ended}\n{self.story()}"
        assert ended == code, f"exit code {ended} instead of {code} after {drill}\n{self.story()}"
        return driver

    def freeze(self, drill: Drill) -> Driver:
        """Run a driver into a drill that stops it. Its JVM goes on, and waits for it."""
        driver = self.start(replace(drill, do="stop"))
        driver.wait_until_frozen()
        return driver

    def run(self, code: int = DONE) -> Driver:
        """Run a driver to its end, which must be this one."""
        driver = self.start()
        ended = driver.wait()
        assert ended == code, f"exit code {ended} instead of {code}\n{self.story()}"
        return driver

    def finish(self) -> Driver:
        """Run to the end of the input; then every row must be where it belongs, once, and nothing else be there."""
        driver = self.run()
        self.check()
        return driver

    def check(self) -> None:
        findings = self.judge.final()
        assert findings == [], self.story(findings)

    def check_whole_epochs(self) -> None:
        """Whatever happened: a reader sees each epoch whole, or not at all."""
        findings = self.judge.partial()
        assert findings == [], self.story(findings)

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.root, self.state, PIPELINE)

    def close(self) -> None:
        for driver in self.drivers:
            driver.clear_away()

    def story(self, findings: list[str] | None = None) -> str:
        """What was found, and what every driver said."""
        told = [
            f"driver {n} (exit {d.process.poll()}): {[_brief(e) for e in d.events]}\n{d.said}"
            for n, d in enumerate(self.drivers)
        ]
        log = self.root / ".pakka" / "spark.log"
        spark = [f"spark.log:\n{log.read_text()[-3000:]}"] if log.exists() else []
        return "\n".join([*(findings or []), *told, *spark])


def _brief(event: dict[str, Any]) -> str:
    kept = {
        k: v for k, v in event.items() if k in {"event", "epoch", "is_new", "fence", "finished", "aborted", "reason"}
    }
    return json.dumps(kept)


__all__ = ["DONE", "FAILED", "FENCED", "KILLED", "Site"]
