"""The tests of this directory can fail: broken twins of the SQL sinks are caught, and so is tampering with their tables.

By what each twin is caught stands beside it, in `twins.py`.
"""

import re
from contextlib import closing

import pytest

from pakka.testing.crash import Drill
from tests.faults.child import group
from tests.faults.watched import FAILED

pytestmark = pytest.mark.faults

LAST = 2
OF_THE_OLD_DRIVER = {
    "postgres": re.compile(r"in doubt: pakka\.refunds\.refunds\.2\.1\."),
    "mariadb": re.compile(r"in doubt: 'pakka\.[0-9a-f]{20}\.2\.1','[^']+\.refunds\.refunds'"),
}
"""A transaction of epoch 2 and fence 1, as the server lists it."""


@pytest.fixture
def twin_site(make_sql_site, ground):
    def make(name):
        return make_sql_site(
            f"sqlite:///{ground}/state.db", "prepared", sinks=f"tests.faults.sql.twins:{name}", tries=2
        )

    return make


def test_a_writer_that_takes_no_lock_of_the_fence_is_caught(base, twin_site, ground):
    """It outlives its driver, wakes when another one has done it all, and prepares: nobody will ever settle that."""
    site = twin_site("unfenced")
    drill = Drill("task.sql.loaded", do="stop", epoch=LAST, mark=str(ground / "struck"))
    driver = site.start(drill, has_workers=True)
    driver.wait_until_frozen(lambda: group(driver.pid))
    driver.kill()
    driver.wait()
    site.run()
    driver.wake()
    site.wait_for_group(driver)
    assert any(OF_THE_OLD_DRIVER[base.system.name].match(f) for f in site.judge.final())


def test_a_committer_that_takes_a_missing_id_for_a_committed_one_is_caught(base, twin_site):
    site = twin_site("trusting")
    child = site.freeze(Drill("decide.after", epoch=LAST))
    base.end_prepared("ROLLBACK", site.prepared(3)[:1])
    child.wake()
    child.wait()
    site.run()
    assert any("refunds" in f and "rows lost" in f for f in site.judge.final())


def test_a_ledger_row_in_another_transaction_is_caught(twin_site):
    """It says that a slot is visible whose rows were never committed."""
    site = twin_site("apart")
    site.crash(Drill("prepared", epoch=LAST))
    site.start().wait()
    assert any("rows lost" in f for f in site.judge.final())


def test_a_slot_that_is_committed_without_prepare_is_caught(twin_site):
    """The ledger saves the rows even so, as long as each run makes the same ones; but nobody has decided what is in sight."""
    site = twin_site("eager")
    site.crash(Drill("task.prepared", epoch=LAST))
    assert any("batch 2 is in sight, and no decision" in f for f in site.judge.partial())


def test_a_committer_that_aborts_nothing_is_caught(twin_site):
    site = twin_site("forgetful")
    site.crash(Drill("prepared", epoch=LAST))
    child = site.start()
    # What is prepared under the old fence is in the way of the new one.
    assert child.wait() == FAILED
    assert "something prepared is in its way" in child.said
    assert len(site.judge.in_doubt()) == 3


TAMPERING = {
    "a row lost": ("DELETE FROM refunds WHERE id = 5", "1 rows lost"),
    "a row twice": ("INSERT INTO refunds SELECT * FROM refunds WHERE id = 6", "1 rows twice"),
    "a value changed": ("UPDATE refunds SET amount = 0 WHERE id = 7", "2 rows lost"),
    "a balance of an older epoch": ("UPDATE balances SET batch = 1 WHERE account = 5", "balances: 1 rows lost"),
}


def test_tampering_is_found_by_the_judge_and_by_the_reader(base, make_sql_site, ground):
    site = make_sql_site(f"sqlite:///{ground}/state.db")
    site.finish()
    for statement, finding in TAMPERING.values():
        base.ask(statement)
        assert any(finding in f for f in site.judge.final()), (finding, site.judge.final())
    with closing(base.system.connect(base.url)) as db:
        base.system.prepare(db, "pakka.left", "DELETE FROM audit")
    assert any(f.startswith("in doubt: ") and "pakka.left" in f for f in site.judge.final())
    site.wait_for_a_look()
    seen = "\n".join(site.findings())
    assert "refunds: 29 of the 30 rows" in seen or "refunds: 2 times in sight" in seen
    assert "balances: 22 rows are in sight that are no whole epochs" in seen
