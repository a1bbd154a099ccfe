"""What a sink has to say that nobody has to act on at once. It knows no listener, so it is said to Python's logging.

`pakka run` hears it, and tells it as it tells all else. Whoever uses pakka from Python has it in their own logs, and on stderr if they have set up
none. What libraries log is no word of ours, and is said elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pakka.model.event import Noticed
from pakka.model.id import Binding

_log = logging.getLogger("pakka")


def notice(whose: object, about: str, message: str) -> None:
    """Say it. `about` is one word for what happened."""
    sink = whose.sink if isinstance(whose, Binding) else ""
    _log.warning("%s: %s", whose, message, extra={"about": about, "sink": sink})


def pass_on(said: Noticed) -> None:
    """Say here what was heard in another process."""
    _log.warning("%s", said.message, extra={"about": said.about, "sink": said.sink})


@contextmanager
def heard(pipeline: str, listen: Callable[[Noticed], None]) -> Iterator[None]:
    """Hear what is said in this process while the block runs."""
    ear = _Ear(pipeline, listen)
    _log.addHandler(ear)
    try:
        yield
    finally:
        _log.removeHandler(ear)


class _Ear(logging.Handler):
    def __init__(self, pipeline: str, listen: Callable[[Noticed], None]) -> None:
        super().__init__(logging.WARNING)
        self.pipeline = pipeline
        self.listen = listen

    def emit(self, record: logging.LogRecord) -> None:
        about, sink = getattr(record, "about", "log"), getattr(record, "sink", "")
        self.listen(Noticed(self.pipeline, about, record.getMessage(), sink=sink))
