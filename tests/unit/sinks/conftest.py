"""A connection to a real PostgreSQL server whose work is undone after every test, so that a module shares one database."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.postgres import PostgresServer


@pytest.fixture(scope="module")
def pg_session(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    url = postgres_server.create_database()
    with psycopg.connect(url, prepare_threshold=None, options="-c timezone=UTC") as db:
        yield db
    postgres_server.drop_database(url)


@pytest.fixture
def pg(pg_session: psycopg.Connection) -> Iterator[psycopg.Connection]:
    yield pg_session
    pg_session.rollback()
