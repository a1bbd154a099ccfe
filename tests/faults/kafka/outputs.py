"""The sinks of a site whose outputs are topics of a broker."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pakka.contract.sink import Sink
from pakka.sinks import _kafka_pack, _kafka_parcel, _kafka_produce
from pakka.sinks.files import ParquetSink
from pakka.sinks.kafka import KafkaSink
from tests.conformance.kafka_twins import (
    Apart,
    Blind,
    BlindSharded,
    Eager,
    GoingOn,
    Hoarding,
    PreparedTwinSink,
    TwinSink,
    Unfenced,
    Unrecorded,
)
from tests.faults.outlet import PARQUET, Layout, Outlet, points_without
from tests.faults.workload import Workload

KEYED = {"key": "id"}
PREPARED = {**KEYED, "way": "prepared"}
SHARDED = {**KEYED, "way": "sharded"}
LAYOUTS: dict[str, Layout] = {
    "one": {"refunds": KEYED},
    "mix": {"refunds": KEYED, "audit": KEYED, "dead_letters": PARQUET},
    "prepared": {"refunds": PREPARED},
    "sharded": {"refunds": SHARDED},
    "ways": {"refunds": PREPARED, "audit": KEYED, "dead_letters": PARQUET},
}
"""By layout and sink, the options of the sink."""
_OF_SQL = {"task.sql.loaded", "task.sql.prepared"}
_OF_OPEN_SLOTS = {"task.kafka.begun", "task.kafka.sent", "task.kafka.prepared"}
OF_SHARDS = {"commit.kafka.shard.begun", "commit.kafka.shard.sent", "commit.kafka.shard.ended"}
_OF_EPOCHS = {"commit.kafka.begun", "commit.kafka.sending", "commit.kafka.sent", "commit.kafka.offsets"}
EXPIRED = "commit.kafka.replayed"
"""Reached only when a slot has expired, and so by tests of its own."""


def points_of(layout: str) -> list[str]:
    """The crash points that a pipeline with these sinks reaches."""
    sinks = LAYOUTS[layout]
    missing = {EXPIRED, *_OF_SQL}
    missing |= set() if PREPARED in sinks.values() else _OF_OPEN_SLOTS
    missing |= set() if SHARDED in sinks.values() else OF_SHARDS
    missing |= set() if {PREPARED["way"], SHARDED["way"]} & {o.get("way") for o in sinks.values()} else {"commit.slot"}
    missing |= set() if KEYED in sinks.values() else _OF_EPOCHS
    # By shards it is a task, at a point of its own.
    missing |= {"commit.apply"} if all(options == SHARDED for options in sinks.values()) else set()
    return points_without(sinks, missing)


@dataclass(frozen=True)
class KafkaOutlet(Outlet):
    """Topics of one broker. Whatever a site has there begins with its prefix, which ends with a dot."""

    direct: str
    """The broker, as the judge and the reader reach it."""
    servers: str
    """The broker, as the sinks reach it; a proxy may stand in between."""
    prefix: str
    cluster: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> Layout:
        return LAYOUTS[self.layout]

    @property
    def topics(self) -> dict[str, str]:
        """By sink."""
        return {sink: f"{self.prefix}{sink}" for sink in self.served}

    @property
    def ledgers(self) -> list[str]:
        return [f"{self.prefix}ledger.refunds.{sink}" for sink in self.served]

    @property
    def inputs(self) -> str:
        """The topic that the rows are said to come from."""
        return f"{self.prefix}settlements"

    @property
    def group(self) -> str:
        """The group that is said to have read them."""
        return f"{self.prefix}group"

    def reached(self, batch: int, workload: Workload) -> int:
        """The offset of the inputs after a batch."""
        return (batch + 1) * workload.rows

    def sink(self, name: str, kind: type[KafkaSink] = KafkaSink, **more: Any) -> KafkaSink:
        options = {**self.options[name], "settings": self.settings, **more}
        return kind(self.servers, topic=self.topics[name], ledger=self.prefix.removesuffix("."), **options)


def of_site(site: Path) -> dict[str, Sink]:
    """What a spec names. The epochs of these tests are small, and are packed in several blocks and sent over both lines, in pieces, all the same."""
    _kafka_pack._BLOCK_ROWS = 10
    _kafka_produce.REQUEST_BYTES = 1
    _kafka_parcel._SMALL_BYTES = 1
    outlet = KafkaOutlet.read(site)
    return {
        name: outlet.sink(name) if options else ParquetSink(str(site / "out" / "dead"))
        for name, options in outlet.options.items()
    }


def position(site: Path, batch: int) -> str:
    """Where the source stands after a batch of the usual size, in the words of pakka's Kafka source."""
    outlet = KafkaOutlet.read(site)
    offsets = {outlet.inputs: {"0": outlet.reached(batch, Workload())}}
    return json.dumps({"kafka": {"cluster": outlet.cluster, "group": outlet.group, "offsets": offsets}})


def _twin(site: Path, applier: type) -> dict[str, Sink]:
    return {"refunds": KafkaOutlet.read(site).sink("refunds", TwinSink, applier=applier)}


def apart(site: Path) -> dict[str, Sink]:
    return _twin(site, Apart)


def unrecorded(site: Path) -> dict[str, Sink]:
    return _twin(site, Unrecorded)


def unfenced(site: Path) -> dict[str, Sink]:
    return _twin(site, Unfenced)


def hoarding(site: Path) -> dict[str, Sink]:
    return _twin(site, Hoarding)


def _prepared_twin(site: Path, **parts: type) -> dict[str, Sink]:
    return {"refunds": KafkaOutlet.read(site).sink("refunds", PreparedTwinSink, **parts)}


def going_on(site: Path) -> dict[str, Sink]:
    return _prepared_twin(site, committer=GoingOn)


def blind_shards(site: Path) -> dict[str, Sink]:
    return _prepared_twin(site, committer=BlindSharded)


def blind(site: Path) -> dict[str, Sink]:
    return _prepared_twin(site, committer=Blind)


def eager(site: Path) -> dict[str, Sink]:
    return _prepared_twin(site, writer=Eager)
