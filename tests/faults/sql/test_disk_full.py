"""No room on the server's disk: while rows are loaded, prepared, committed and applied. A server of its own, on a small file system.

PostgreSQL says so. MariaDB says so where it needs a temporary file; it waits for room, silently, where it writes its binary log; and
where it has no room to roll back, it may end itself. Whatever it does, nothing may be lost by it.
"""

from collections.abc import Iterator

import pytest

from pakka.testing.crash import Drill
from tests.faults.disk import fill, free
from tests.faults.sql.ground import Ground
from tests.faults.sql.setups import IMPATIENT
from tests.faults.sql.system import SYSTEMS
from tests.faults.watched import FAILED, UNKNOWN
from tests.faults.workload import Workload
from tests.fixtures import mysql, postgres

pytestmark = pytest.mark.faults

MIDDLE = 1
# So many rows that a table needs new pages for every epoch.
WIDE = Workload(rows=3000)


@pytest.fixture
def disk(ground, mount):
    # The server runs as another user, who has to get through.
    ground.chmod(0o711)
    return mount(ground / "disk", "160m")


@pytest.fixture
def base(disk, request) -> Iterator[Ground]:
    if request.param == "postgres":
        small = {"min_wal_size": "32MB", "max_wal_size": "48MB"}
        server = postgres.PostgresServer(postgres.need_binaries(), disk, small)
    else:
        server = mysql.MysqlServer(mysql.need_binaries(), disk)
    server.create()
    server.start()
    try:
        yield Ground(SYSTEMS[request.param], server)
    finally:
        server.stop()


TOLD = "No space left on device"
UNSEEN = "nothing of it is visible"
DECIDED = f"epoch {MIDDLE} is decided"
CASES = [
    *[
        pytest.param("postgres", *case, marks=pytest.mark.postgres)
        for case in [("prepared", "begin", UNSEEN, TOLD), ("spooled", "decide.after", DECIDED, TOLD)]
    ],
    *[
        pytest.param("mariadb", *case, marks=pytest.mark.mysql)
        for case in [
            ("prepared", "begin", UNSEEN, TOLD),
            ("prepared", "task.batch", UNSEEN, ""),
            ("prepared", "task.sql.loaded", UNSEEN, ""),
            ("prepared", "decide.after", DECIDED, ""),
            ("spooled", "decide.after", DECIDED, TOLD),
            ("spooled", "commit.apply", DECIDED, ""),
        ]
    ],
]


@pytest.mark.parametrize(("base", "layout", "point", "known", "why"), CASES, indirect=["base"])
def test_a_disk_full_on_the_server_loses_nothing(base, make_sql_site, ground, disk, layout, point, known, why):
    # A server that waits for room is not waited for.
    setup = {"postgres": "", "mariadb": IMPATIENT}[base.system.name]
    site = make_sql_site(f"sqlite:///{ground}/state.db", layout, workload=WIDE, tries=2, setup=setup)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    fill(disk)
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    assert known in child.said
    assert why in child.said
    free(disk)
    base.server.stop()
    base.server.restart()
    site.check_whole_epochs()
    site.finish()
