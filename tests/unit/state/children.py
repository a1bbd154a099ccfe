"""What other processes do to a store. They are forked by a server, not by the tests: a driver shares nothing with another."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from pakka.errors import PakkaError
from pakka.state import open_store
from tests.unit.state.places import OWNER, PIPELINE, decision

START_S = 60


@contextmanager
def child(work: Callable[..., None], *args: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run `work(line, *args)` in a process of its own; gone at the end, whatever happened."""
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, *args), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join(START_S)


def hear(line: Connection) -> Any:
    """The next thing a child says."""
    assert line.poll(START_S), "the child says nothing"
    return line.recv()


def take_fences(line: Connection, url: str, threads: int, each: int) -> None:
    """Take fences from several threads at once, each with its own store; say them all, thread by thread."""
    taken: list[list[int]] = [[] for _ in range(threads)]
    stores = [open_store(url) for _ in range(threads)]
    line.send("ready")
    line.recv()

    def take(number: int) -> None:
        for _ in range(each):
            taken[number].append(stores[number].take_fence(PIPELINE, OWNER).fence)

    workers = [threading.Thread(target=take, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    line.send(taken)


def become_owner_and_decide(line: Connection, url: str) -> None:
    """Take the fence when told, say it; decide epoch 0 when told, say what came of it."""
    store = open_store(url)
    line.send("ready")
    line.recv()
    fence = store.take_fence(PIPELINE, OWNER).fence
    line.send(fence)
    line.recv()
    try:
        store.decide(decision(0, fence))
        line.send("decided")
    except PakkaError as error:
        line.send(type(error).__name__)


def decide_for_ever(line: Connection, url: str, first: int) -> None:
    """Decide one epoch after the other, and say each number only when its decision has returned."""
    store = open_store(url)
    fence = store.take_fence(PIPELINE, OWNER).fence
    while True:
        store.decide(decision(first, fence, slots=50))
        line.send(first)
        first += 1


def say_state(line: Connection, url: str) -> None:
    """Open the store in a new process and say what is in it."""
    store = open_store(url)
    line.send((store.read(PIPELINE), list(store.window(PIPELINE))))
