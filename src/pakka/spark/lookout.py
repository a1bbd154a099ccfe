"""The source's lookout at work: asked at the start, at every epoch, and now and then by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pakka.contract.source import Lookout
from pakka.errors import BugError, PakkaError
from pakka.model.event import Listen, Noticed
from pakka.spark.checkpoint import source_offsets

PATROL_EVERY_S = 10.0
_PARTING_S = 2.0


class Post:
    """Where the lookout stands in a run. Without one, everything here does nothing."""

    def __init__(self, pipeline: str, lookout: Lookout | None = None, listen: Listen = lambda _: None) -> None:
        self.pipeline = pipeline
        self.lookout = lookout
        self.listen = listen
        self._is_blind = False

    def begin(self, delivered: bytes | None, is_new: bool, first: bytes | None = None) -> None:
        """Before the first epoch; raises if the source is not the one that was read before. Up to `delivered` all is in the sinks; `first` is
        what Spark has noted of where it begins.
        """
        if self.lookout is not None:
            offsets = self._offsets(delivered) if delivered is not None else None
            # A line with a version stands before it.
            began = self._known([first.decode().partition("\n")[2]]) if first is not None else None
            self._tell(self.lookout.begin(offsets, is_new, began))

    def position(self, offsets: bytes) -> str:
        """What goes into the origin of the epoch with these offsets."""
        return self.lookout.position(self._offsets(offsets)) if self.lookout is not None else ""

    def check(self) -> None:
        """An epoch is prepared and not decided: raises if what it was read from is not what it should be."""
        if self.lookout is not None:
            self._tell(self.lookout.check())

    def passed(self) -> None:
        """The epoch is delivered."""
        if self.lookout is not None:
            self.lookout.passed()

    def explained(self, error: BaseException) -> BaseException:
        """What Spark says of the source, in our words; else the error as it is."""
        if self.lookout is None:
            return error
        try:
            return self.lookout.explain(error) or error
        except PakkaError as trouble:
            error.add_note(f"the source could not be asked about it: {trouble.message}")
            return error

    def look(self, is_last: bool = False) -> None:
        """That the source cannot be seen is worth a word, and no reason to stop: who reads from it will find out."""
        if self.lookout is None:
            return
        try:
            self._tell(self.lookout.look(is_last))
        except PakkaError as error:
            if not self._is_blind:
                self.listen(Noticed(self.pipeline, "unseen", error.message, error.hint))
            self._is_blind = True
        else:
            self._is_blind = False

    @contextmanager
    def patrol(self) -> Iterator[None]:
        """Look every so many seconds, beside the query."""
        if self.lookout is None:
            yield
            return
        over = threading.Event()

        def walk() -> None:
            while not over.wait(PATROL_EVERY_S):
                self.look()

        thread = threading.Thread(target=walk, name="pakka-lookout", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            # A look that waits for a broker is not waited for: it changes nothing.
            thread.join(_PARTING_S)

    def close(self) -> None:
        if self.lookout is not None:
            self.lookout.close()

    def _tell(self, notices: Sequence[Noticed]) -> None:
        for notice in notices:
            self.listen(notice)

    def _offsets(self, offsets: bytes) -> str:
        return self._known(source_offsets(offsets))

    def _known(self, found: Sequence[str]) -> str:
        """The one source's offsets."""
        if len(found) != 1 or not found[0].startswith("{"):
            raise BugError(
                f"pipeline `{self.pipeline}`: Spark's checkpoint has offsets of {len(found)} sources in a form that is not known; nothing was "
                "written"
            )
        return found[0]
