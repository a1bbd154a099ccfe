"""Lines to PostgreSQL: one that the server has ended while nobody used it is not used again."""

import select
from contextlib import closing

import psycopg
import pytest

from pakka.postgres_line import Address, Line
from pakka.state import open_store

pytestmark = pytest.mark.postgres

END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def end_sessions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(END_OTHERS)


def test_a_line_that_was_used_can_be_used_once_more(postgres_url):
    with closing(Line(Address.parse(postgres_url, "test"))) as line:
        for _ in range(3):
            assert line.is_open
            assert line.ask("SELECT 1") == [(1,)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            line.ask("SELECT 1 / 0")
        assert line.is_open
    assert not line.is_open


def test_a_line_that_the_server_has_ended_is_not_open(postgres_url):
    with closing(Line(Address.parse(postgres_url, "test"))) as line:
        end_sessions(postgres_url)
        select.select([line.db.fileno()], [], [], 30)  # the server says so in its own time
        assert not line.is_open


def test_a_state_store_goes_on_after_the_server_has_ended_its_session(postgres_url):
    with closing(open_store(postgres_url)) as store:
        assert store.read("refunds") is None
        end_sessions(postgres_url)
        select.select([store._line.db.fileno()], [], [], 30)
        assert store.read("refunds") is None


def test_a_transaction_that_failed_is_not_taken_for_committed(postgres_url):
    """The server answers COMMIT and PREPARE TRANSACTION with ROLLBACK then, and calls it no error."""
    for ending in ("COMMIT", "PREPARE TRANSACTION 'pakka-test'"):
        with closing(Line(Address.parse(postgres_url, "test"))) as line:
            line.ask("BEGIN")
            with pytest.raises(psycopg.errors.DivisionByZero):
                line.ask("SELECT 1 / 0")
            with pytest.raises(psycopg.InternalError, match="was answered with ROLLBACK"):
                line.end(ending)


def test_a_transaction_that_went_well_ends(postgres_url):
    with closing(Line(Address.parse(postgres_url, "test"))) as line:
        for ending in ("COMMIT", "PREPARE TRANSACTION 'pakka-test'"):
            line.ask("BEGIN")
            line.end(ending)
        line.end("ROLLBACK PREPARED 'pakka-test'")
