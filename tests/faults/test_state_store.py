"""The state store gives no answer at the decision: the epoch is aborted, or its outcome is unknown; never half of it."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pakka.state import sqlite as sqlite_store
from pakka.testing.crash import Drill
from tests.faults.judge import read_state
from tests.fixtures.proxy import Proxy

pytestmark = pytest.mark.faults

ABORTED, UNKNOWN = 1, 3
MIDDLE = 1
DECISION = Drill("decide.before", epoch=MIDDLE)
COMMIT = b"COMMIT\0"
"""As a query of its own; BEGIN has the word too, in the name of its isolation level."""
SHORT = "tests.faults.test_state_store:be_impatient"


def be_impatient() -> None:
    """In the driver: wait a moment for whoever holds the file, and for an answer to the decision that is struck."""
    from pakka import postgres_line
    from pakka.coordinator.epoch import Coordinator
    from pakka.state.postgres import PostgresStore

    sqlite_store.BUSY_S = 0.05
    decide = Coordinator._decide

    def decide_impatiently(driver, decision, redo):
        if decision.epoch.number == MIDDLE and isinstance(driver.store, PostgresStore):
            postgres_line.ANSWER_S = 1.0
            driver.store._address.params["connect_timeout"] = "2"  # the least that its library takes
        decide(driver, decision, redo)

    Coordinator._decide = decide_impatiently


def is_decided(url: str, epoch: int) -> bool:
    return (epoch,) in read_state(url, "SELECT number FROM pakka_epoch")


def check_aborted(site, child):
    assert child.wait() == ABORTED, child.said
    assert "AbortedError" in child.said
    assert f"the decision of epoch {MIDDLE} could not be written" in child.said
    assert "it was aborted" in child.said
    site.check_whole_epochs()
    assert site.judge.litter() == []


@pytest.fixture
def proxy(postgres_server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", postgres_server.port)) as line:
        yield line


@pytest.fixture
def proxied(make_site, postgres_server, postgres_url, proxy):
    """A site whose driver reaches the server through the proxy, while the judge goes straight to it."""
    url = postgres_server.url(postgres_url.rpartition("/")[2], proxy.port)
    return make_site(url, tries=2, sinks="tests.faults.outputs:with_slips")


@pytest.mark.postgres
def test_a_server_that_is_gone_at_the_decision_aborts_the_epoch(proxied, proxy):
    child = proxied.freeze(DECISION)
    proxy.refuse()
    proxy.cut()
    child.wake()
    check_aborted(proxied, child)
    proxy.refuse(False)
    proxied.finish(tries=4)


@pytest.mark.postgres
def test_a_line_that_goes_silent_before_the_decision_aborts_the_epoch(proxied, proxy):
    child = proxied.freeze(DECISION, setup=SHORT)
    proxy.hold()
    child.wake()
    # Not the whole of `check_aborted`: the judge would go through the silent line too, were it asked.
    assert child.wait() == ABORTED, child.said
    proxy.cut()
    proxy.release()
    check_aborted(proxied, child)
    proxied.finish(tries=4)


@pytest.mark.postgres
@pytest.mark.parametrize("is_delivered", [True, False], ids=["written", "lost"])
def test_a_line_cut_at_the_commit_of_the_decision_is_unknown_and_settled_by_the_next_run(
    proxied, proxy, postgres_url, is_delivered
):
    child = proxied.freeze(DECISION)
    proxy.cut_at(COMMIT, is_delivered=is_delivered)
    proxy.refuse()
    child.wake()
    assert child.wait() == UNKNOWN, child.said
    assert proxy.cuts == 1
    assert "UnknownOutcomeError" in child.said
    assert f"the decision of epoch {MIDDLE} was sent and no answer came" in child.said
    proxied.check_whole_epochs()
    assert is_decided(postgres_url, MIDDLE) is is_delivered
    proxy.refuse(False)
    proxied.finish(tries=4)
    aborted = proxied.children[-1].events[0]["aborted"]
    assert (aborted == 0) is is_delivered


@pytest.mark.postgres
@pytest.mark.parametrize("is_delivered", [True, False], ids=["written", "lost"])
def test_a_line_cut_at_the_commit_of_the_decision_is_asked_again(proxied, proxy, is_delivered):
    child = proxied.freeze(DECISION)
    proxy.cut_at(COMMIT, is_delivered=is_delivered)
    child.wake()
    assert child.wait() == 0, child.said
    assert proxy.cuts == 1
    proxied.check()


@pytest.mark.postgres
def test_a_server_that_freezes_before_the_decision_aborts_the_epoch(make_site, postgres_server, postgres_url):
    """It is there, and takes connections, and says nothing."""
    site = make_site(postgres_url, tries=2)
    child = site.freeze(DECISION, setup=SHORT)
    postgres_server.signal(signal.SIGSTOP)
    try:
        child.wake()
        assert child.wait() == ABORTED, child.said
    finally:
        postgres_server.signal(signal.SIGCONT)
    check_aborted(site, child)
    site.finish(tries=4)


@pytest.mark.postgres
def test_a_server_killed_at_the_decision_aborts_the_epoch(make_site, postgres_server, postgres_url):
    site = make_site(postgres_url, tries=2)
    child = site.freeze(DECISION)
    postgres_server.kill()
    try:
        child.wake()
        assert child.wait() == ABORTED, child.said
    finally:
        postgres_server.restart()
    check_aborted(site, child)
    site.finish(tries=4)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def embedded(make_site, ground):
    (ground / "state").mkdir()
    return make_site(
        f"sqlite:///{ground}/state/state.db", setup=SHORT, tries=2, sinks="tests.faults.outputs:with_slips"
    )


def test_a_state_file_locked_at_the_decision_aborts_the_epoch(embedded, ground):
    child = embedded.freeze(DECISION)
    with locked(ground / "state" / "state.db"):
        child.wake()
        check_aborted(embedded, child)
    assert "database is locked" in child.said
    embedded.finish(setup="", tries=4)


def test_a_state_file_locked_for_a_moment_is_waited_for(embedded, ground):
    child = embedded.freeze(DECISION, setup="", tries=4)
    with locked(ground / "state" / "state.db"):
        child.wake()
    assert child.wait() == 0, child.said
    embedded.check()


def test_a_state_file_taken_away_at_the_decision_aborts_the_epoch(embedded, ground):
    child = embedded.freeze(DECISION)
    os.rename(ground / "state", ground / "elsewhere")
    child.wake()
    assert child.wait() == ABORTED, child.said
    os.rename(ground / "elsewhere", ground / "state")
    check_aborted(embedded, child)
    embedded.finish(setup="", tries=4)


def test_a_state_file_replaced_by_an_older_copy_at_the_decision_stops_the_driver(embedded, ground):
    """The driver holds a fence that the copy has never given out, or has given to somebody else."""
    embedded.crash(Drill("begin", epoch=MIDDLE))
    copy = ground / "copy"
    copy.mkdir()
    for path in (ground / "state").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    child = embedded.freeze(DECISION)
    os.rename(ground / "state", ground / "newer")
    os.rename(copy, ground / "state")
    child.wake()
    assert child.wait() == 4, child.said
    assert "was removed, or replaced by an older copy" in child.said
    embedded.check_whole_epochs()
    embedded.finish(setup="", tries=4)
