"""The callback's own rules, as far as they can be seen without Spark."""

import threading

import pytest

from pakka.contract.pipeline import Output
from pakka.sinks.memory import MemorySink
from pakka.spark.stream import Delivery, StopAsked
from pakka.testing.store import MemoryStore


class Slim:
    """As much of a pipeline as a delivery without rows asks for."""

    name = "refunds"
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
