"""The server refuses: no connection left, a lock that somebody holds, a dead-lock, a statement ended by its administrator."""

from contextlib import ExitStack, closing

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import wait_until
from tests.faults.extent import one_store
from tests.faults.sql.setups import SHORT_LOCKS
from tests.faults.watched import DONE, FAILED
from tests.faults.workload import ACCOUNTS
from tests.fixtures.sql import MARIADB

pytestmark = pytest.mark.faults

MIDDLE, LAST = 1, 2
BEFORE = ("begin", "nothing")
AFTER = ("decide.after", f"epoch {MIDDLE} is decided")


@one_store
@pytest.mark.parametrize(("point", "known"), [BEFORE, AFTER])
@pytest.mark.parametrize("layout", ["prepared", "spooled"])
def test_a_server_without_a_connection_to_spare_is_given_up_and_nothing_is_lost(
    base, make_sql_site, state, layout, point, known
):
    """The driver's own lines were ended by an administrator, and others have taken their places."""
    site = make_sql_site(state, layout, tries=2)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    with ExitStack() as others:
        base.end_sessions()
        base.take_every_connection(others)
        child.wake()
        site.ends(child, (FAILED, 3))
        assert "too many" in child.said.lower(), child.said
        assert known in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
@pytest.mark.parametrize(("layout", "point"), [("prepared", "begin"), ("keyed", "begin"), ("upsert", "decide.after")])
def test_a_table_that_somebody_locks_is_waited_for_only_so_long(base, make_sql_site, state, layout, point):
    site = make_sql_site(state, layout, tries=2, setup=SHORT_LOCKS)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    with closing(base.system.connect(base.url)) as db:
        base.lock_table(db, site.outlet.served[0])
        child.wake()
        site.ends(child, (FAILED,))
        assert "lock" in child.said.lower(), child.said
    site.check_whole_epochs()
    site.finish()


@one_store
def test_a_fence_row_that_somebody_locks_keeps_a_slot_from_preparing(base, make_sql_site, state):
    site = make_sql_site(state, "prepared", setup=SHORT_LOCKS)
    child = site.freeze(Drill("task.sql.loaded", epoch=MIDDLE))
    with closing(base.system.connect(base.url)) as db:
        base.system.query(db, "BEGIN")
        base.system.query(db, "SELECT * FROM pakka_fence FOR UPDATE")
        child.wake()
        site.ends(child, (FAILED,))
        assert "nothing of it is visible" in child.said
    site.check_whole_epochs()
    site.finish()


@one_store
def test_a_dead_lock_with_another_client_costs_one_attempt(base, make_sql_site, state):
    """Each has written a row that the other wants to write next. The server ends one of the two."""
    site = make_sql_site(state, "keyed")
    # Slot 0 of the last epoch has written its first rows, and its last ones are to come.
    rows = site.spec.workload.slot(LAST, 0)
    child = site.freeze(Drill("task.batch", epoch=LAST), attempts=2)
    with closing(base.system.connect(base.url)) as db:
        base.begin_as_survivor(db)
        base.system.query(db, f"INSERT INTO refunds (id) VALUES ({rows[-1].id})")
        child.wake()
        base.wait_until_blocked(child)
        base.system.query(db, f"INSERT INTO refunds (id) VALUES ({rows[0].id})")
        base.system.query(db, "ROLLBACK")
        assert site.ends(child) == DONE, child.said
    site.check()


@one_store
@pytest.mark.parametrize(("tries", "end"), [(1, FAILED), (3, DONE)])
def test_a_dead_lock_of_an_upsert_costs_one_attempt(base, make_sql_site, state, tries, end):
    """The epoch changes accounts in their order. Somebody else has changed the last one, and goes on with the first."""
    site = make_sql_site(state, "upsert", tries=tries)
    child = site.freeze(Drill("commit.apply", epoch=LAST))
    with closing(base.system.connect(base.url)) as db:
        base.begin_as_survivor(db)
        base.system.query(db, f"UPDATE balances SET id = 0 WHERE account = {ACCOUNTS - 1}")
        child.wake()
        base.wait_until_blocked(child)
        base.system.query(db, "UPDATE balances SET id = 0 WHERE account = 1")
        base.system.query(db, "ROLLBACK")
        assert site.ends(child) == end, child.said
    assert ("deadlock" in child.said.lower()) == (end == FAILED), child.said
    site.check_whole_epochs()
    site.finish()


KILLS = [
    ("prepared", "task.batch"),
    ("prepared", "task.sql.loaded"),
    ("spooled", "commit.apply"),
    ("upsert", "commit.apply"),
]


@one_store
@pytest.mark.parametrize(("layout", "point"), KILLS)
def test_sessions_ended_by_the_administrator_in_the_middle_cost_one_attempt(base, make_sql_site, state, layout, point):
    site = make_sql_site(state, layout, tries=3)
    child = site.freeze(Drill(point, epoch=MIDDLE), attempts=2)
    base.end_sessions()
    child.wake()
    assert site.ends(child) == DONE, child.said
    site.check()


@pytest.mark.parametrize("base", ["postgres"], indirect=True)
@pytest.mark.parametrize("verb", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_prepared_that_is_ended_in_the_middle_is_done_once(base, make_sql_site, ground, verb):
    """It is on the server's disk, and waits for a standby that does not come. Whoever is told nothing must ask."""
    site = make_sql_site(f"sqlite:///{ground}/state.db", "prepared", tries=4)
    child = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    with base.waiting_for_a_standby():
        child.wake()
        wait_until(lambda: bool(base.ask(WAITING)) or child.is_over(), "nobody waits for the standby")
        (first,) = base.ask(WAITING)
        base.ask(f"SELECT {verb}({first[0]})")
        # The next one may wait already.
        wait_until(lambda: first not in base.ask(WAITING), "the commit was not ended")
    assert site.ends(child) == DONE, child.said
    site.check()


@one_store
@pytest.mark.parametrize("base", [MARIADB], indirect=True)
@pytest.mark.parametrize("layout", ["prepared", "spooled", "upsert"])
def test_a_commit_whose_statement_is_ended_in_the_middle_is_done_once(base, make_sql_site, state, layout):
    """It waits for a backup when the administrator ends it. What became of it, only the ledger tells."""
    site = make_sql_site(state, layout, tries=4)
    child = site.freeze(Drill("commit.apply", epoch=MIDDLE))
    with base.waiting_for_a_backup():
        child.wake()
        wait_until(lambda: bool(base.ask(HELD_UP)) or child.is_over(), "no commit waits for the backup")
        first, *_ = base.ask(HELD_UP)
        base.ask(f"KILL QUERY {first[0]}")
        wait_until(lambda: first not in base.ask(HELD_UP), "the commit was not ended")
    assert site.ends(child) == DONE, child.said
    site.check()


HELD_UP = "SELECT id, query_id FROM information_schema.processlist WHERE state = 'Waiting for backup lock' AND info LIKE '%COMMIT%'"
WAITING = "SELECT pid, query FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'COMMIT PREPARED%'"


@pytest.mark.parametrize("base", ["postgres"], indirect=True)
def test_a_server_without_room_for_another_prepared_transaction_aborts_the_epoch(base, make_sql_site, ground):
    """Other programs have used up `max_prepared_transactions`."""
    site = make_sql_site(f"sqlite:///{ground}/state.db", "prepared")
    site.crash(Drill("begin", epoch=MIDDLE))
    limit = int(base.ask("SHOW max_prepared_transactions")[0][0])
    site.foreign = base.prepare_foreign(tuple(f"job-{n}" for n in range(limit - 2)))
    child = site.run(code=1)
    assert "maximum number of prepared transactions reached" in child.said
    assert "raise `max_prepared_transactions`" in child.said
    site.check_whole_epochs()
    assert site.judge.in_doubt() == []
    base.end_prepared("ROLLBACK", site.foreign)
    site.foreign = ()
    site.finish()
