"""Where the rows of a site go that are not files: a file in the site says it, so that every process knows."""

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pakka.testing.crash import POINTS

PARQUET: dict[str, Any] = {}
"""The options of a sink that is a Parquet directory."""
OF_FILES = {"task.file.begin", "task.file.batch", "task.file.prepared", "commit.move", "commit.publish"}
OF_FILES |= {"commit.published"}
Layout = dict[str, dict[str, Any]]
"""By sink, its options."""


@dataclass(frozen=True)
class Outlet(ABC):
    """A server, and what of it a site uses."""

    layout: str

    @property
    @abstractmethod
    def options(self) -> Layout:
        """Of the sinks of this layout."""

    @property
    def served(self) -> list[str]:
        """The sinks whose rows go to the server."""
        return [sink for sink, options in self.options.items() if options]

    def shows_slots(self, sink: str) -> bool:
        """Whether an epoch comes into sight slot by slot, and not as a whole."""
        return self.options[sink].get("way") in ("prepared", "sharded")

    def write(self, site: Path) -> None:
        (site / "outlet.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, site: Path) -> Self:
        return cls(**json.loads((site / "outlet.json").read_text()))


def points_without(layout: Layout, missing: set[str]) -> list[str]:
    """The crash points that a pipeline with these sinks reaches, if it does not reach `missing`."""
    missing = missing | (set() if len(layout) > 1 else {"commit.sink"})
    missing |= set() if PARQUET in layout.values() else OF_FILES
    return [point for point in POINTS if point not in missing]
