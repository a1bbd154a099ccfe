"""Where a fault test with a server stands: a database of its own, and sites whose sinks are its tables."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.sql.outputs import Outlet
from tests.faults.sql.site import SqlSite
from tests.faults.sql.system import SYSTEMS, System
from tests.fixtures.proxy import Proxy

KEYED = "CREATE TABLE refunds (id bigint PRIMARY KEY, batch bigint, merchant varchar(100), amount bigint)"


class Ground:
    """A server, and a database of it for one test."""

    def __init__(self, system: System, server: Any) -> None:
        self.system = system
        self.server = server
        self.url = server.create_database()

    def ask(self, statement: str) -> list[Any]:
        return self.system.ask(self.url, statement)

    def through(self, port: int) -> str:
        """The URL by way of a proxy."""
        url: str = self.server.url(self.url.rpartition("/")[2], port)
        return url

    def close(self) -> None:
        """Up again, whatever a test has done to it; and nothing prepared, which would keep the database."""
        if self.server._process is None:
            self.server.restart()
        with closing(self.system.connect(self.url)) as db:
            for ident in self.system.prepared(db):
                self.system.end_prepared(db, ident, "ROLLBACK")
        self.server.drop_database(self.url)


POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
MARIADB = pytest.param("mariadb", marks=pytest.mark.mysql)


@pytest.fixture(params=[POSTGRES, MARIADB])
def base(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """The run's server of each kind."""
    fixture = {"postgres": "postgres_server", "mariadb": "mysql_server"}[request.param]
    base = Ground(SYSTEMS[request.param], request.getfixturevalue(fixture))
    yield base
    base.close()


@pytest.fixture
def make_sql_site(ground: Path, base: Ground) -> Iterator[Callable[..., SqlSite]]:
    """Makes sites of a layout; no process of theirs outlives the test."""
    sites: list[SqlSite] = []

    def make(state: str, layout: str = "mix", url: str = "", **spec: Any) -> SqlSite:
        if layout == "keyed":
            base.ask(KEYED)
        outlet = Outlet(base.system.name, base.url, url or base.url, layout)
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
