"""From Spark into PostgreSQL and MariaDB: SIGKILL to driver, JVM and worker where a server holds what they have prepared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.tables import TableSite
from tests.faults.spark.test_kills import DRIVER, DRIVER_BY_TASK, JVM, MIDDLE, WORKER
from tests.faults.sql.ground import Ground
from tests.fixtures.sql import MARIADB, POSTGRES

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

CASES = {
    "driver-commit.slot": ("commit.slot", DRIVER),
    "jvm-commit.slot": ("commit.slot", JVM),
    "driver-commit.applied": ("commit.applied", DRIVER),
    "driver-task.sql.prepared": ("task.sql.prepared", DRIVER_BY_TASK),
    "worker-task.sql.prepared": ("task.sql.prepared", WORKER),
}
CORE = "driver-commit.slot"


def params() -> list:
    """Of the core, one server with this commit and the other with the next ones."""
    found = []
    for server in (POSTGRES, MARIADB):
        (kind,) = server.values
        for name, case in CASES.items():
            core = [pytest.mark.core, pytest.mark.in_turn("kill on Spark", kind)] if name == CORE else []
            found.append(pytest.param(kind, *case, id=f"{kind}-{name}", marks=[*server.marks, *core]))
    return found


@pytest.fixture
def tables(ground: Path, base: Ground) -> Iterator[TableSite]:
    site = TableSite(ground / "site", base)
    yield site
    site.close()


@pytest.mark.parametrize(("base", "point", "victim"), params(), indirect=["base"])
def test_a_process_killed_while_a_server_holds_an_epoch_leaves_each_row_once(tables, point, victim):
    killed = tables.strike(Drill(point, victim.deed, epoch=MIDDLE), victim.code)
    tables.check_whole_epochs()
    tables.finish()
    killed.wait_until_alone()
    tables.check()
