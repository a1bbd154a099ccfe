"""The callback's own rules, as far as they can be seen without Spark."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pakka.contract.pipeline import Output
from pakka.contract.sink import Entry
from pakka.contract.state import Decision, PipelineState
from pakka.coordinator.recovery import Recovered
from pakka.model.epoch import Checkpoint, Count, Epoch, Origin
from pakka.sinks.memory import MemorySink
from pakka.spark.stream import Delivery, StopAsked, accept_first, delivered_batch
from pakka.testing.store import MemoryStore


class Slim:
    """As much of a pipeline as a delivery without rows asks for."""

    name = "refunds"
    source = None
    spool_path = "unused"
    slots = 1

    def __init__(self, space):
        self.outputs = {"out": Output(MemorySink(space))}


@pytest.fixture
def delivery(request):
    return Delivery(Slim(request.node.name), plan=None, store=MemoryStore())


def test_close_waits_for_the_callback_that_is_still_at_work(delivery):
    closer = threading.Thread(target=delivery.close)
    with delivery._gate:
        closer.start()
        closer.join(timeout=0.2)
        was_waiting = closer.is_alive()
    closer.join(timeout=10)
    assert (was_waiting, closer.is_alive()) == (True, False)


def test_an_epoch_that_comes_while_the_query_is_stopped_is_not_begun(delivery):
    with delivery._gate, pytest.raises(StopAsked):
        delivery.on_batch(None, 0)


def test_an_epoch_that_comes_after_the_stop_was_asked_is_not_begun(delivery):
    stopped = []
    delivery.ask_to_stop(lambda: stopped.append(True))
    with pytest.raises(StopAsked):
        delivery.on_batch(None, 0)
    assert stopped == [True]


CHECKPOINT = Checkpoint("cp", "q", planned=4, acknowledged=3, digests={3: "d3", 4: "d4"})


def epoch(number: int, batch: int = 4, query: str = "q", digest: str = "d4") -> Epoch:
    return Epoch("refunds", number, Origin(query, batch, digest))


def recovered(committed: Epoch | None = None, held: tuple[Entry, ...] = (), base: int = 0, sinks: int = 2) -> Recovered:
    stations = tuple(SimpleNamespace(name=f"sink{i}") for i in range(sinks))
    beside = {f"sink{i}": entry for i, entry in enumerate(held)}
    return Recovered(PipelineState("refunds", 1, None), stations, committed, base, 0, (), {}, None, beside)


def test_a_batch_that_every_sink_holds_is_delivered_before_spark_has_acknowledged_it():
    assert delivered_batch(recovered(epoch(4)), CHECKPOINT) == 4
    assert delivered_batch(recovered(epoch(9), base=5), CHECKPOINT) == 4
    whole = Entry(epoch(4), 1, "")
    assert delivered_batch(recovered(epoch(3, 3, digest="d3"), (whole, whole)), CHECKPOINT) == 4


def test_a_batch_that_has_to_run_again_is_not_delivered():
    before = epoch(3, 3, digest="d3")
    whole, part = Entry(epoch(4), 1, ""), Entry(epoch(4), 1, "", slots={0: (1, "")})
    for run in (
        recovered(),
        # Its decision was reopened: only the epoch before it is committed.
        recovered(before),
        recovered(before, (whole,)),
        recovered(before, (whole, part)),
        # Another query, other offsets, and an older copy of the checkpoint that a person has accepted.
        recovered(epoch(4, query="p")),
        recovered(epoch(4, digest="other")),
        recovered(epoch(4), base=1),
    ):
        assert delivered_batch(run, CHECKPOINT) == 3
    assert delivered_batch(recovered(sinks=0), Checkpoint("cp")) == -1


def test_an_epoch_that_only_some_sinks_hold_is_to_be_accepted_before_anything_is_begun_anew():
    """What a lookout would have typed begins before that epoch, and delivers it to these sinks again."""
    before = epoch(3, 3, digest="d3")
    whole, part = Entry(epoch(4), 1, ""), Entry(epoch(4), 1, "", slots={0: (1, "")})
    for run in (recovered(), recovered(before), recovered(before, (whole, whole))):
        assert accept_first("refunds", run) is None
    decision = Decision(epoch(4), 1, (), Count(), 0.0)
    for run in (
        recovered(before, (whole,)),
        recovered(before, (whole, part)),
        replace(recovered(before), reopened=decision, lost={"sink1": ()}),
    ):
        told = accept_first("refunds", run)
        assert told is not None
        assert told.startswith("epoch 4 is in some sinks only: ")
        assert "with `pakka reset refunds --sink sink1`, and run again" in told
