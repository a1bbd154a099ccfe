"""The guarantee of a pipeline, from its parts."""

import uuid
from dataclasses import dataclass

import pytest

from pakka.contract.pipeline import Pipeline
from pakka.coordinator.assess import assess, require
from pakka.errors import RefusedError
from pakka.model.guarantee import Guarantee, Level, Part, SinkGuarantee, Way
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.memory import MemorySink
from pakka.sources.rate import RateSource


@dataclass(frozen=True)
class OnceSource(RateSource):
    """Cannot be read again."""

    def replayable(self) -> Part:
        return Part("source", False, "a socket forgets what it has sent", "read from files or Kafka")


@dataclass(frozen=True)
class PrintingSink(MemorySink):
    """Remembers nothing."""

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.AT_LEAST_ONCE, Way.SPOOLED, "paper cannot be unprinted", "print to files")


@dataclass(frozen=True)
class TransactionalSink(MemorySink):
    """Holds prepared rows itself."""

    def guarantee(self) -> SinkGuarantee:
        return SinkGuarantee(Level.EXACTLY_ONCE, Way.PREPARED, "prepared transactions")


def pipeline(source=None, **sinks) -> Pipeline:
    named = sinks or {"refunds": MemorySink(f"space-{uuid.uuid4()}")}
    return Pipeline("refunds", source or RateSource(), named)


def parts(guarantee: Guarantee) -> dict[str, bool]:
    return {part.name: part.holds for part in guarantee.parts}


def test_one_machine_with_sqlite_is_exactly_once():
    guarantee = assess(pipeline(), store_is_shared=False, master="local[*]")
    assert guarantee.level is Level.EXACTLY_ONCE
    assert parts(guarantee) == {"source": True, "sink `refunds`": True, "durability": True, "fencing": True}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_with_a_state_store_on_one_machine_is_not(master):
    guarantee = assess(pipeline(), store_is_shared=False, master=master)
    assert guarantee.level is Level.AT_LEAST_ONCE
    (missing,) = guarantee.missing
    assert missing.name == "durability"
    assert "`state: postgresql://...`" in missing.mend


def test_a_cluster_with_a_spool_on_one_machine_is_not():
    guarantee = assess(pipeline(), store_is_shared=True, master="yarn")
    (missing,) = guarantee.missing
    assert "sink `refunds` keeps prepared rows in .pakka/spool" in missing.because
    assert missing.mend.startswith("put `spool` on a network file system")


def test_a_cluster_with_shared_state_and_spool_is_exactly_once():
    guarantee = assess(pipeline(), store_is_shared=True, master="yarn", spool_is_shared=True)
    assert guarantee.level is Level.EXACTLY_ONCE


def test_a_cluster_needs_no_spool_for_sinks_that_hold_prepared_rows_themselves():
    guarantee = assess(pipeline(table=TransactionalSink()), store_is_shared=True, master="yarn")
    assert guarantee.level is Level.EXACTLY_ONCE


@pytest.mark.parametrize("way", ["spooled", "sharded", "prepared"])
def test_a_cluster_needs_a_shared_spool_for_kafka_by_every_way(way):
    kafka = pipeline(out=KafkaSink("127.0.0.1:1", topic="refunds", way=way))
    (missing,) = assess(kafka, store_is_shared=True, master="yarn").missing
    assert "sink `out` keeps prepared rows in .pakka/spool" in missing.because
    assert missing.mend.startswith("put `spool` on a network file system")
    assert not assess(kafka, store_is_shared=True, master="yarn", spool_is_shared=True).missing


def test_a_source_that_cannot_be_read_again_is_named():
    guarantee = assess(pipeline(OnceSource()), store_is_shared=False, master="local[*]")
    assert [part.name for part in guarantee.missing] == ["source"]


def test_a_sink_that_remembers_nothing_takes_the_fence_with_it():
    guarantee = assess(pipeline(good=MemorySink("good"), paper=PrintingSink("paper")), False, "local[*]")
    assert parts(guarantee) == {
        "source": True,
        "sink `good`": True,
        "sink `paper`": False,
        "durability": True,
        "fencing": False,
    }


def test_the_dead_letters_are_a_sink_like_any_other():
    with_dead = Pipeline("refunds", RateSource(), {"good": MemorySink("good")}, dead_letters=PrintingSink("paper"))
    assert parts(assess(with_dead, False, "local[*]"))["sink `dead_letters`"] is False


def test_a_requirement_that_is_not_met_is_refused_with_all_that_is_missing():
    guarantee = assess(pipeline(OnceSource(), paper=PrintingSink()), False, "local[*]")
    with pytest.raises(RefusedError) as caught:
        require("refunds", guarantee, Level.EXACTLY_ONCE)
    assert str(caught.value) == (
        "pipeline `refunds` is at-least-once, and exactly-once is required: source: a socket forgets what it has sent; "
        "sink `paper`: spooled: paper cannot be unprinted; fencing: an older driver is refused by the state store, but not "
        "by sink `paper`; nothing was started\n\nhint: read from files or Kafka; print to files"
    )


def test_a_requirement_that_is_met_passes():
    require("refunds", assess(pipeline(), False, "local[*]"), Level.EXACTLY_ONCE)
    require("refunds", assess(pipeline(OnceSource()), False, "local[*]"), Level.AT_LEAST_ONCE)
