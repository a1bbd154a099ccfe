"""What a source must do: be read as a stream, and say whether it can be read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pakka.errors import PakkaError
from pakka.model.event import Noticed
from pakka.model.guarantee import Part
from pakka.model.rule import OnFail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Source(Protocol):
    """Where rows come from. Making one does no I/O."""

    def replayable(self) -> Part:
        """Can the same offsets be read again after a crash, and why?"""

    def describe(self) -> str:
        """Where the rows come from, in words a user knows, with no secret."""

    def read(self, spark: SparkSession, notes: str, is_strict: bool) -> DataFrame:
        """The stream, or a batch DataFrame. `notes` is a directory for what the source must remember between runs.

        A malformed record comes as a row whose `corrupt_column` holds the raw text; if `is_strict`, there is no such
        column, and it fails the task that reads it.
        """

    @property
    def corrupt_column(self) -> str | None:
        """The column that holds a malformed record's raw text; None if this source has none such."""

    @property
    def on_corrupt(self) -> OnFail:
        """What becomes of a malformed record."""


@dataclass(frozen=True, slots=True)
class Jars:
    """What a source needs in Spark's JVM beside Spark itself."""

    whose: str
    packages: dict[str, str]
    """Maven coordinates `group:artifact:version`, and a class of each by which it is known to be there."""
    directory: str | None = None
    """Where the jars are, of these packages and of all that they need; None: they are fetched."""


@runtime_checkable
class NeedsJars(Protocol):
    """A source that Spark cannot read by itself."""

    def jars_for(self, spark: str) -> Jars:
        """What this source needs in a Spark of this version."""


class Lookout(Protocol):
    """Looks after a source from the driver while a run goes on. `offsets` are the source's own, as Spark's checkpoint has them.

    What a user should know and nobody has to act on at once is returned as notices; what may not go on is raised.
    """

    def begin(self, offsets: str | None, is_new: bool, first: str | None = None) -> Sequence[Noticed]:
        """Before the first epoch. `offsets`: up to here all is in every sink, None if nothing is. `is_new`: no epoch was planned
        yet, nor where to begin, so that whatever is remembered of an earlier query means nothing. `first`: where Spark has noted
        to begin, if it has.
        """

    def position(self, offsets: str) -> str:
        """Where the source stands once an epoch that ends at `offsets` is committed, in words that a sink may know."""

    def check(self) -> Sequence[Noticed]:
        """Between prepare and decide of every epoch: is it still the source that was there at `begin`? Raises if not."""

    def passed(self) -> None:
        """The epoch that `position` was asked for last is in every sink."""

    def look(self, is_last: bool = False) -> Sequence[Noticed]:
        """Now and then, and once after the last epoch of a run that takes what there is."""

    def explain(self, error: BaseException) -> PakkaError | None:
        """What an error of Spark's says of the source, in our words; None if it says nothing of it."""

    def close(self) -> None:
        """Let go of connections. Twice is harmless."""


@runtime_checkable
class Located(Protocol):
    """A source that can tell where a pipeline would begin to read, for a sink to see beforehand whether it may pass that on."""

    def beginning(self, pipeline: str) -> str:
        """In the words of `Lookout.position`: where the source stands before anything is read. Asks the source's system."""


@runtime_checkable
class Watched(Protocol):
    """A source that has a lookout."""

    def open_lookout(self, spark: SparkSession, pipeline: str, notes: str) -> Lookout:
        """Connect. `notes` is the directory that `read` has."""
