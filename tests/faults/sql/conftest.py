"""Where a fault test with a server stands: a database of its own, and sites whose sinks are its tables."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.sql.ground import Ground
from tests.faults.sql.outputs import SqlOutlet
from tests.faults.sql.site import SqlSite
from tests.fixtures.proxy import Proxy

KEYED = "CREATE TABLE refunds (id bigint PRIMARY KEY, batch bigint, merchant varchar(100), amount bigint)"


@pytest.fixture
def make_sql_site(ground: Path, base: Ground) -> Iterator[Callable[..., SqlSite]]:
    """Makes sites of a layout; no process of theirs outlives the test."""
    sites: list[SqlSite] = []

    def make(state: str, layout: str = "mix", url: str = "", **spec: Any) -> SqlSite:
        if layout == "keyed":
            base.ask(KEYED)
        outlet = SqlOutlet(layout, base.system.name, base.url, url or base.url)
        sites.append(SqlSite(ground / f"site{len(sites)}", state, outlet, **spec))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def proxy(base: Ground) -> Iterator[Proxy]:
    """A line to the server that can be cut."""
    with Proxy(("127.0.0.1", base.server.port)) as line:
        yield line


@pytest.fixture
def mix(make_sql_site: Callable[..., SqlSite], state: str) -> SqlSite:
    """Every kind of sink in one epoch: prepared, spooled, upsert, and a Parquet directory."""
    return make_sql_site(state)
