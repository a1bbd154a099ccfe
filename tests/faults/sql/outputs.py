"""The sinks of a site whose outputs are tables of a server. A file in the site says which, so that every process knows."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pakka.contract.sink import Sink
from pakka.sinks.files import ParquetSink
from pakka.testing.crash import POINTS
from tests.faults.sql.system import SYSTEMS, System

PREPARED = {"way": "prepared"}
SPOOLED = {"way": "spooled"}
UPSERT = {"mode": "upsert", "key": ("account",)}
PARQUET: dict[str, Any] = {}

LAYOUTS: dict[str, dict[str, dict[str, Any]]] = {
    "prepared": {"refunds": PREPARED},
    "keyed": {"refunds": PREPARED},
    "spooled": {"refunds": SPOOLED},
    "upsert": {"balances": UPSERT},
    "mix": {"refunds": PREPARED, "audit": SPOOLED, "balances": UPSERT, "dead_letters": PARQUET},
}
"""By layout and sink, the options of the sink. `keyed` is a table that a user has made, with a PRIMARY KEY."""

_OF_FILES = {"task.file.begin", "task.file.batch", "task.file.prepared", "commit.move", "commit.publish"}
_OF_FILES |= {"commit.published"}
_OF_SLOTS = {"task.sql.loaded", "task.sql.prepared", "commit.slot"}


def points_of(layout: str) -> list[str]:
    """The crash points that a pipeline with these sinks reaches."""
    kinds = LAYOUTS[layout].values()
    missing = {point for point in POINTS if ".kafka." in point}
    missing |= set() if len(kinds) > 1 else {"commit.sink"}
    missing |= set() if PARQUET in kinds else _OF_FILES
    missing |= set() if PREPARED in kinds else _OF_SLOTS
    return [point for point in POINTS if point not in missing]


@dataclass(frozen=True)
class Outlet:
    """Where the rows of a site go."""

    system: str
    direct: str
    """The URL that the judge and the reader use."""
    url: str
    """The URL that the sinks use; a proxy may stand in between."""
    layout: str

    @property
    def server(self) -> System:
        return SYSTEMS[self.system]

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        return LAYOUTS[self.layout]

    @property
    def tables(self) -> list[str]:
        """The sinks that are tables of the server; a table has the name of its sink."""
        return [sink for sink, options in self.options.items() if options]

    def write(self, site: Path) -> None:
        (site / "outlet.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, site: Path) -> "Outlet":
        return cls(**json.loads((site / "outlet.json").read_text()))


def of_site(site: Path) -> dict[str, Sink]:
    """What a spec names."""
    outlet = Outlet.read(site)
    return {
        name: outlet.server.sink(outlet.url, name, **options) if options else ParquetSink(str(site / "out" / "dead"))
        for name, options in outlet.options.items()
    }
