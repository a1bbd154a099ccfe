"""The MySQL sink keeps the contract on a real server, whichever way its rows wait."""

import pytest

from pakka.testing import SinkContract
from tests.conformance.mysql import MysqlHarness, SpooledMysqlHarness
from tests.conformance.on_server import FromTheLastRelease

pytestmark = pytest.mark.mysql


class OnServer(SinkContract):
    @pytest.fixture(autouse=True)
    def _server(self, mysql_server, monkeypatch):
        monkeypatch.setattr(MysqlHarness, "server", mysql_server)


@pytest.mark.in_turn("mysql contract", "TestMysql")
class TestMysql(FromTheLastRelease, OnServer):
    harness = MysqlHarness


@pytest.mark.in_turn("mysql contract", "TestMysqlSpooled")
class TestMysqlSpooled(OnServer):
    harness = SpooledMysqlHarness


del OnServer
