"""What is PostgreSQL's own: servers that die, lines that are cut, passwords that must not be told."""

import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from pakka import postgres_line
from pakka.errors import FencedError, RefusedError, UnavailableError, UnknownOutcomeError
from pakka.state.postgres import PostgresStore
from tests.fixtures.postgres import PASSWORD
from tests.fixtures.proxy import Proxy
from tests.unit.state.places import OWNER, PIPELINE, Place, decision, epoch, fill

pytestmark = pytest.mark.postgres

COMMIT = b"COMMIT\0"  # the whole statement as it is sent; BEGIN says COMMITTED


@pytest.fixture
def proxy(postgres_server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", postgres_server.port)) as made:
        yield made


@pytest.fixture
def distant(postgres_url, proxy) -> Iterator[PostgresStore]:
    """A store whose line the test can cut."""
    store = PostgresStore(through(proxy, postgres_url))
    store.take_fence(PIPELINE, OWNER)
    yield store
    store.close()


def through(proxy: Proxy, url: str) -> str:
    return url.replace(f":{urlsplit(url).port}/", f":{proxy.port}/")


@contextmanager
def elsewhere(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.mark.faults
def test_a_server_that_dies_is_unavailable_and_found_again_when_it_is_back(postgres_server, postgres_url):
    store = PostgresStore(postgres_url)
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 2)
    before = store.read(PIPELINE)
    postgres_server.kill()
    try:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="nothing was written"):
                store.decide(decision(3))
        with pytest.raises(UnavailableError):
            store.read(PIPELINE)
    finally:
        postgres_server.restart()
    assert store.read(PIPELINE) == before
    store.decide(decision(3))
    assert store.read(PIPELINE).open == (decision(3),)
    store.close()


@pytest.mark.faults
def test_a_server_restarted_between_two_epochs_goes_unnoticed(postgres_server, postgres_url):
    store = PostgresStore(postgres_url)
    store.take_fence(PIPELINE, OWNER)
    postgres_server.stop()
    postgres_server.restart()
    store.decide(decision(0))
    assert store.read(PIPELINE).open == (decision(0),)
    store.close()


@pytest.mark.faults
@pytest.mark.parametrize("is_delivered", [True, False], ids=["answer-lost", "request-lost"])
def test_a_line_cut_at_commit_is_unknown_and_deciding_again_makes_one_decision(distant, proxy, is_delivered):
    fill(distant, 0, 1)
    proxy.cut_at(COMMIT, is_delivered=is_delivered)
    with pytest.raises(
        UnknownOutcomeError, match="no answer to COMMIT of the decision of epoch 2 of pipeline `refunds`"
    ):
        distant.decide(decision(2))
    assert proxy.cuts == 1
    # What the error could not know: it was written in the one case, and not in the other.
    assert distant.read(PIPELINE).open == (decision(2 if is_delivered else 1),)
    distant.decide(decision(2))
    state = distant.read(PIPELINE)
    assert (state.open, state.committed) == ((decision(2),), 1)
    assert len(distant.window(PIPELINE)) == 3


@pytest.mark.faults
@pytest.mark.parametrize("write", ["take_fence", "amend", "settle", "adopt", "reset", "forget"])
def test_every_other_write_cut_at_commit_is_unknown_and_may_be_repeated(distant, proxy, write):
    fill(distant, 0, 1)
    do = {
        "take_fence": lambda: distant.take_fence(PIPELINE, OWNER),
        "amend": lambda: distant.amend(decision(1, rows=5)),
        "settle": lambda: distant.settle(PIPELINE, 1, 1),
        "adopt": lambda: distant.adopt(PIPELINE, 1, epoch(4), 0),
        "reset": lambda: distant.reset(PIPELINE, 9),
        "forget": lambda: distant.forget(PIPELINE),
    }[write]
    proxy.cut_at(COMMIT, is_delivered=True)
    with pytest.raises(UnknownOutcomeError):
        do()
    once = distant.read(PIPELINE)
    do()
    twice = distant.read(PIPELINE)
    assert (once.fence, twice.fence) == (2, 3) if write == "take_fence" else twice == once


@pytest.mark.faults
def test_a_line_cut_before_commit_is_unavailable_and_nothing_was_written(distant, proxy):
    fill(distant, 0, 1)
    proxy.cut_at(b"INSERT INTO pakka_epoch", is_delivered=True)
    with pytest.raises(UnavailableError, match="nothing was written"):
        distant.decide(decision(2))
    assert distant.read(PIPELINE).open == (decision(1),)
    distant.decide(decision(2))
    assert distant.read(PIPELINE).open == (decision(2),)


@pytest.mark.faults
def test_a_line_cut_while_idle_goes_unnoticed(distant, proxy):
    proxy.cut()
    distant.decide(decision(0))
    proxy.cut()
    assert distant.read(PIPELINE).open == (decision(0),)


@pytest.mark.faults
def test_a_line_cut_while_reading_is_never_unknown(distant, proxy):
    proxy.cut_at(COMMIT, is_delivered=True)
    with pytest.raises(UnavailableError):
        distant.read(PIPELINE)


@pytest.mark.faults
def test_a_line_that_swallows_everything_does_not_hang_for_ever(distant, proxy, monkeypatch):
    monkeypatch.setattr(postgres_line, "ANSWER_S", 0.5)
    monkeypatch.setitem(distant._address.params, "connect_timeout", "2")
    proxy.hold()
    try:
        with pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
            distant.decide(decision(0))
    finally:
        proxy.release()
    monkeypatch.undo()
    distant.decide(decision(0))
    assert distant.read(PIPELINE).open == (decision(0),)


@pytest.mark.faults
def test_a_frozen_server_does_not_hang_for_ever(postgres_server, postgres_url, monkeypatch):
    store = PostgresStore(postgres_url)
    store.take_fence(PIPELINE, OWNER)
    monkeypatch.setattr(postgres_line, "ANSWER_S", 0.5)
    monkeypatch.setitem(store._address.params, "connect_timeout", "2")
    postgres_server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
            store.decide(decision(0))
    finally:
        postgres_server.signal(signal.SIGCONT)
    monkeypatch.undo()
    store.decide(decision(0))
    store.close()


@pytest.mark.faults
def test_a_driver_frozen_inside_its_write_loses_to_the_next_one(place_of_two, monkeypatch):
    """The server ends a transaction that idles; the frozen driver then wakes, and finds that it is fenced."""
    frozen, rival = place_of_two
    frozen.take_fence(PIPELINE, OWNER)
    monkeypatch.setattr(frozen, "begin_write", frozen.begin_write.replace("'10s'", "'2s'"))
    taken = threading.Event()
    advance = frozen._open_counts

    def freeze(state):
        assert rival.take_fence(PIPELINE, OWNER).open == ()
        taken.set()
        return advance(state)

    monkeypatch.setattr(frozen, "_open_counts", freeze)
    with pytest.raises(UnavailableError, match="idle-in-transaction timeout"):
        frozen.decide(decision(0))
    assert taken.is_set()
    monkeypatch.undo()
    with pytest.raises(FencedError, match="fence 1 lost to fence 2"):
        frozen.decide(decision(0))
    assert rival.read(PIPELINE).open == ()


@pytest.fixture
def place_of_two(postgres_url) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    one, two = PostgresStore(postgres_url), PostgresStore(postgres_url)
    yield one, two
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace(PASSWORD, "Wr0ng-pa55"), "password authentication failed"),
        (lambda url: url.replace("pakka:", "stranger:"), "password authentication failed"),
        (lambda url: url.rpartition("/")[0] + "/no_such_db", "does not exist"),
        (lambda url: url.replace(f":{urlsplit(url).port}/", ":1/"), "refused"),
        (lambda url: url.replace("@127.0.0.1", "@no-such-host.invalid"), "no-such-host.invalid"),
    ],
    ids=["password", "user", "database", "port", "host"],
)
def test_a_server_that_cannot_be_reached_is_named_and_the_password_is_not(postgres_url, change, reason):
    url = change(postgres_url)
    with pytest.raises(UnavailableError, match=reason) as caught:
        PostgresStore(url)
    shown = "".join(traceback.format_exception(caught.value))
    secret = urlsplit(url).password
    assert secret not in shown
    assert secret.replace("%2F", "/") not in shown
    assert "nothing was written" in caught.value.message


def test_a_secret_in_the_servers_answer_is_masked(postgres_url):
    store = PostgresStore(postgres_url)
    for secret in ("s3cret/word", "s3cret%2Fword"):
        assert "s3cret" not in store._error_of(psycopg.OperationalError(f"at {secret}")).message
    assert "s3cret" not in store.describe()
    store.close()


def test_a_user_without_rights_is_told_which(postgres_url):
    with elsewhere(postgres_url) as db:
        db.execute("DROP ROLE IF EXISTS reader")
        db.execute("CREATE ROLE reader LOGIN PASSWORD 'reads'")
        db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(RefusedError, match="permission denied for schema public") as caught:
        PostgresStore(postgres_url.replace(f"pakka:{PASSWORD}", "reader:reads"))
    assert "GRANT" in caught.value.hint


def test_a_standby_that_only_reads_is_unavailable(postgres_url):
    PostgresStore(postgres_url).close()
    with elsewhere(postgres_url) as db:
        db.execute(f"ALTER DATABASE {urlsplit(postgres_url).path[1:]} SET default_transaction_read_only = on")
    store = PostgresStore(postgres_url)
    # A transaction may ask to write where the default says otherwise; on a standby it may not.
    store.take_fence(PIPELINE, OWNER)
    with pytest.raises(UnavailableError, match="read-only") as caught:
        store._read(lambda: store._execute("UPDATE pakka_meta SET version = 1"))
    assert "primary" in caught.value.hint
    store.close()


def test_a_database_that_answers_before_it_writes_is_made_to_wait(postgres_url):
    with elsewhere(postgres_url) as db:
        db.execute(f"ALTER DATABASE {urlsplit(postgres_url).path[1:]} SET synchronous_commit = off")
    store = PostgresStore(postgres_url)
    assert store._write("a test", lambda: store._execute("SHOW synchronous_commit")) == [("on",)]
    with elsewhere(postgres_url) as db:
        db.execute(f"ALTER DATABASE {urlsplit(postgres_url).path[1:]} SET synchronous_commit = remote_apply")
    stronger = PostgresStore(postgres_url)
    assert stronger._write("a test", lambda: stronger._execute("SHOW synchronous_commit")) == [("remote_apply",)]
    store.close()
    stronger.close()


def test_tables_made_while_waiting_for_the_lock_are_seen(postgres_url):
    opened: list[PostgresStore] = []
    second = threading.Thread(target=lambda: opened.append(PostgresStore(postgres_url)))

    class First(PostgresStore):
        def _execute(self, statement, params=()):
            if statement.startswith("CREATE TABLE pakka_meta"):
                second.start()
                wait_for_a_waiter(postgres_url)
            return super()._execute(statement, params)

    first = First(postgres_url)
    second.join()
    assert opened[0].pipelines() == first.pipelines() == []
    first.close()
    opened[0].close()


def wait_for_a_waiter(url: str) -> None:
    with elsewhere(url) as db:
        for _ in range(600):
            if db.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone():
                return
            time.sleep(0.05)
    raise AssertionError("nobody waits for the lock")


def test_a_schema_of_its_own_is_named_in_the_url(postgres_url):
    with elsewhere(postgres_url) as db:
        db.execute("CREATE SCHEMA books")
    PostgresStore(postgres_url).take_fence("in-public", OWNER)
    inside = Place(f"{postgres_url}?options=-csearch_path%3Dbooks").open()
    inside.take_fence("in-schema", OWNER)
    assert inside.pipelines() == ["in-schema"]
    inside.close()
