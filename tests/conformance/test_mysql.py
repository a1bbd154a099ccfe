"""The MySQL sink keeps the contract, both ways, on a real MariaDB server."""

import pytest

from pakka.testing import SinkContract
from tests.conformance.mysql import MysqlHarness, SpooledMysqlHarness

pytestmark = pytest.mark.mysql


@pytest.fixture(scope="module", autouse=True)
def server(mysql_server):
    MysqlHarness.server = mysql_server
    yield
    MysqlHarness.server = None


class TestMysql(SinkContract):
    harness = MysqlHarness


class TestSpooledMysql(SinkContract):
    harness = SpooledMysqlHarness
