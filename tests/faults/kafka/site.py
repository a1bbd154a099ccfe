"""One pipeline of one test whose outputs are topics of a broker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.child import wait_until
from tests.faults.judge import Snapshot, take_snapshot
from tests.faults.kafka.judge import KafkaJudge
from tests.faults.kafka.outputs import KafkaOutlet
from tests.faults.kafka.reader import watch
from tests.faults.watched import WatchedSite
from tests.fixtures.onlooker import Onlooker

POSITION = "tests.faults.kafka.outputs:position"


class KafkaSite(WatchedSite):
    """A site over topics."""

    def __init__(self, root: Path, state: str, outlet: KafkaOutlet, onlooker: Onlooker, **spec: Any) -> None:
        self.outlet = outlet
        self.onlooker = onlooker
        onlooker.create(outlet.inputs, 1)
        for topic in outlet.topics.values():
            onlooker.create(topic)
        usual = {"sinks": "tests.faults.kafka.outputs:of_site", "position": POSITION}
        super().__init__(root, state, outlet, watch, **{**usual, **spec})

    @property
    def judge(self) -> KafkaJudge:
        return KafkaJudge(
            self.root,
            self.spec.state,
            self.spec.workload,
            tuple(self.outlet.options),
            outlet=self.outlet,
            onlooker=self.onlooker,
            has_position=bool(self.spec.position),
        )

    def check(self) -> None:
        super().check()
        wanted = {sink: len(self.judge.wanted(sink)) for sink in self.outlet.served}
        assert self.seen() == wanted, self._story([f"the reader has seen {self.seen()} of {wanted}"])

    def seen(self) -> dict[str, int]:
        """How many records the reader has seen at its last look."""
        seen: dict[str, int] = json.loads((self._notes / "seen").read_text().splitlines()[-1])
        return seen

    def snapshot(self) -> Snapshot:
        files = take_snapshot(self.root, self.spec.state, self.spec.pipeline)
        return Snapshot({**files.outputs, "topics": repr(self.judge.ends())}, files.state)

    def transactions(self) -> list[str]:
        """The states of the transactions of this site."""
        return sorted(self.onlooker.transactions(self.outlet.prefix).values())

    def wait_until_expired(self, count: int = 1) -> None:
        """Until the broker has aborted what was open for too long: at least so many transactions, and none is left open."""

        def is_expired() -> bool:
            states = self.transactions()
            is_over = {*states} <= {"CompleteAbort", "CompleteCommit", "Empty"}
            return is_over and states.count("CompleteAbort") >= count

        wait_until(is_expired, lambda: f"nothing expires: {self.transactions()}")


Make = Callable[..., KafkaSite]
