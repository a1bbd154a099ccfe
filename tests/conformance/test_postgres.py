"""The PostgreSQL sink keeps the contract on a real server, whichever way its rows wait."""

import pytest

from pakka.testing import SinkContract
from tests.conformance.on_server import FromTheLastRelease
from tests.conformance.postgres import PostgresHarness, SpooledPostgresHarness

pytestmark = pytest.mark.postgres


class OnServer(SinkContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_server, monkeypatch):
        monkeypatch.setattr(PostgresHarness, "server", postgres_server)


@pytest.mark.in_turn("postgres contract", "TestPostgres")
class TestPostgres(FromTheLastRelease, OnServer):
    harness = PostgresHarness


@pytest.mark.in_turn("postgres contract", "TestPostgresSpooled")
class TestPostgresSpooled(OnServer):
    harness = SpooledPostgresHarness


del OnServer
