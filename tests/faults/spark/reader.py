"""Somebody who reads the outputs all the time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.faults.spark.site import Site


@dataclass
class Sights:
    """How often the outputs were read, and what was wrong with them."""

    count: int = 0
    partial: list[str] = field(default_factory=list)
    trouble: list[BaseException] = field(default_factory=list)


@contextmanager
def watching(site: Site) -> Iterator[Sights]:
    """Read the outputs again and again while the block runs."""
    sights, over = Sights(), threading.Event()

    def watch() -> None:
        try:
            while not over.wait(0.02):
                sights.partial += site.judge.partial()
                sights.count += 1
        except BaseException as error:
            sights.trouble.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sights
    finally:
        over.set()
        thread.join()
    assert sights.trouble == []
