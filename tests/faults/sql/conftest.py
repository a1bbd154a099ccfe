"""Where a fault test with a server stands: a database of its own, and sites whose sinks are its tables.

Of each test's many cases `make test` runs one, on one of the servers, and others with every commit; `make certify-sql` runs
all, and so does whoever names a test or gives `-k`.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.extent import IS_WHOLE, SEED
from tests.faults.sql.ground import Ground
from tests.faults.sql.outputs import Outlet
from tests.faults.sql.site import SqlSite
from tests.faults.sql.system import SYSTEMS
from tests.fixtures.proxy import Proxy

KEYED = "CREATE TABLE refunds (id bigint PRIMARY KEY, batch bigint, merchant varchar(100), amount bigint)"

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
MARIADB = pytest.param("mariadb", marks=pytest.mark.mysql)
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_case: a fault test that `make test` does not thin out")
    config.addinivalue_line("markers", "certify_only: a fault test that takes long, and that `make test` leaves out")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thin out: see above. The choice is the same on every worker of a run."""
    if IS_WHOLE or config.option.keyword or any("::" in arg for arg in config.args):
        return
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("every_case") is None:
            tests[item.path.name, getattr(item, "originalname", item.name)].append(item)
    left_out = {
        id(item) for name, cases in tests.items() for item in {*cases} - {random.Random(f"{SEED} {name}").choice(cases)}
    }
    left_out |= {id(item) for item in items if item.get_closest_marker("certify_only")}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


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
