"""No room on the server's disk: while rows are loaded, and when they are applied. A server of its own, on a small file system."""

from collections.abc import Iterator

import pytest

from pakka.testing.crash import Drill
from tests.faults.disk import fill, free
from tests.faults.sql.ground import Ground
from tests.faults.sql.site import FAILED, UNKNOWN
from tests.faults.sql.system import SYSTEMS
from tests.faults.workload import Workload
from tests.fixtures.postgres import PostgresServer, need_binaries

pytestmark = [pytest.mark.faults, pytest.mark.postgres]

MIDDLE = 1
# So many rows that a table needs new pages for every epoch.
WIDE = Workload(rows=3000)


@pytest.fixture
def disk(ground, mount):
    # The server runs as another user, who has to get through.
    ground.chmod(0o711)
    return mount(ground / "disk", "160m")


@pytest.fixture
def base(disk) -> Iterator[Ground]:
    server = PostgresServer(need_binaries(), disk, {"min_wal_size": "32MB", "max_wal_size": "48MB"})
    server.create()
    server.start()
    try:
        yield Ground(SYSTEMS["postgres"], server)
    finally:
        server.stop()


CASES = [("prepared", "begin", "nothing of it is visible"), ("spooled", "decide.after", f"epoch {MIDDLE} is decided")]


@pytest.mark.parametrize(("layout", "point", "known"), CASES)
def test_a_disk_full_on_the_server_is_told_and_nothing_is_lost(base, make_sql_site, ground, disk, layout, point, known):
    site = make_sql_site(f"sqlite:///{ground}/state.db", layout, workload=WIDE, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    fill(disk)
    child.wake()
    site.ends(child, (FAILED, UNKNOWN))
    assert "No space left on device" in child.said
    assert known in child.said
    free(disk)
    base.server.stop()
    base.server.restart()
    site.check_whole_epochs()
    site.finish()
