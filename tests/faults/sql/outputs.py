"""The sinks of a site whose outputs are tables of a server."""

from dataclasses import dataclass
from pathlib import Path

from pakka.contract.sink import Sink
from pakka.sinks.files import ParquetSink
from pakka.testing.crash import POINTS
from tests.faults.outlet import PARQUET, Layout, Outlet, points_without
from tests.faults.sql.system import SYSTEMS, System

PREPARED = {"way": "prepared"}
SPOOLED = {"way": "spooled"}
UPSERT = {"mode": "upsert", "key": ("account",)}

LAYOUTS: dict[str, Layout] = {
    "prepared": {"refunds": PREPARED},
    "keyed": {"refunds": PREPARED},
    "spooled": {"refunds": SPOOLED},
    "upsert": {"balances": UPSERT},
    "mix": {"refunds": PREPARED, "audit": SPOOLED, "balances": UPSERT, "dead_letters": PARQUET},
}
"""By layout and sink, the options of the sink. `keyed` is a table that a user has made, with a PRIMARY KEY."""

_OF_SLOTS = {"task.sql.loaded", "task.sql.prepared", "commit.slot"}


def points_of(layout: str) -> list[str]:
    """The crash points that a pipeline with these sinks reaches."""
    missing = {point for point in POINTS if ".kafka." in point}
    missing |= set() if PREPARED in LAYOUTS[layout].values() else _OF_SLOTS
    return points_without(LAYOUTS[layout], missing)


@dataclass(frozen=True)
class SqlOutlet(Outlet):
    """Tables of one database; each has the name of its sink."""

    system: str
    direct: str
    """The URL that the judge and the reader use."""
    url: str
    """The URL that the sinks use; a proxy may stand in between."""

    @property
    def server(self) -> System:
        return SYSTEMS[self.system]

    @property
    def options(self) -> Layout:
        return LAYOUTS[self.layout]


def of_site(site: Path) -> dict[str, Sink]:
    """What a spec names."""
    outlet = SqlOutlet.read(site)
    return {
        name: outlet.server.sink(outlet.url, name, **options) if options else ParquetSink(str(site / "out" / "dead"))
        for name, options in outlet.options.items()
    }


def prepared(site: Path) -> dict[str, Sink]:
    return _appending(site, PREPARED)


def spooled(site: Path) -> dict[str, Sink]:
    return _appending(site, SPOOLED)


def _appending(site: Path, way: dict[str, str]) -> dict[str, Sink]:
    """The one table of this site, whichever way its layout names."""
    outlet = SqlOutlet.read(site)
    return {"refunds": outlet.server.sink(outlet.url, "refunds", **way)}
