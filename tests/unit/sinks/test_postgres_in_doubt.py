"""The desk over a real PostgreSQL server: prepared transactions are settled from the decision, and nobody else's are touched."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pakka.contract.state import Owner
from pakka.coordinator.doubt import Desk, Fate, Survey
from pakka.coordinator.resolve import Do, Resolution, Resolve
from pakka.coordinator.retry import Retry
from pakka.sinks.postgres import PostgresSink
from tests.unit.coordinator.stage import Crash, Inline, Stage, crash_at

pytestmark = pytest.mark.postgres

FOREIGN = f"payroll-{uuid.uuid4()}"


@pytest.fixture
def db(postgres_url) -> Iterator[psycopg.Connection]:
    """A look at the database past all of pakka's code. Somebody else has prepared a transaction there."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE TABLE payroll (id int)")
        with psycopg.connect(postgres_url) as other:
            other.execute("INSERT INTO payroll VALUES (1)")
            other.execute(f"PREPARE TRANSACTION '{FOREIGN}'".encode())
        yield db
        for gid in gids(db):
            db.execute(f"ROLLBACK PREPARED '{gid}'".encode())


@pytest.fixture
def stage(postgres_url, db) -> Stage:
    """Epoch 0 is delivered to a table, by two slots."""
    stage = Stage({"refunds": PostgresSink(postgres_url, "refunds")})
    stage.sinks = {"refunds": stage.sinks["refunds"].choose()}
    stage.run(0)
    return stage


def crash(stage: Stage, point: str, nth: int = 1) -> None:
    with crash_at(point, nth), pytest.raises(Crash):
        stage.run(1)


def gids(db: psycopg.Connection) -> set[str]:
    found = db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall()
    return {gid for (gid,) in found}


def ids(db: psycopg.Connection) -> list[int]:
    return [i for (i,) in db.execute("SELECT id FROM refunds ORDER BY id").fetchall()]


def everything(db: psycopg.Connection) -> list[object]:
    tables = ("pakka_fence", "pakka_ledger")
    rows = [sorted(db.execute(f"SELECT * FROM {t}".encode()).fetchall(), key=repr) for t in tables]
    return [*rows, ids(db), gids(db)]


def desk(stage: Stage) -> Desk:
    return Desk("refunds", stage.sinks, None, "spool", lambda: 0.0, lambda _: False)


def survey(stage: Stage) -> Survey:
    return desk(stage).survey(stage.store)


def resolve(stage: Stage, do: str = "resolve") -> Resolution:
    at_desk = Resolve(desk(stage), stage.store, Owner("desk", 2, 0.0), stage.waits.append, Inline(), Retry(attempts=3))
    return at_desk.plan(stage.checkpoint) if do == "plan" else at_desk.resolve(stage.checkpoint, take_over=False)


CRASHES = [("decide.before", 1), ("decide.after", 1), ("commit.apply", 1), ("commit.apply", 2), ("commit.applied", 1)]


@pytest.mark.parametrize(("point", "nth"), CRASHES)
def test_what_a_crash_left_prepared_is_settled_from_the_decision(stage, db, point, nth):
    crash(stage, point, nth)
    is_decided = bool(stage.store.read("refunds").open)
    found = survey(stage)
    assert {case.fate for case in found.cases} == {Fate.COMMIT if is_decided else Fate.ABORT}
    assert {case.doubt.id.partition("/")[0] for case in found.cases} == {
        gid.partition("/")[0] for gid in gids(db) - {FOREIGN}
    }

    before = everything(db)
    planned = resolve(stage, "plan")
    assert everything(db) == before

    done = resolve(stage)
    assert done.deeds == planned.deeds
    assert {deed.do for deed in done.deeds} == ({Do.COMMIT, Do.ENTER} if is_decided else {Do.ABORT})
    assert gids(db) == {FOREIGN}
    assert ids(db) == stage.ids(1 if is_decided else 0)
    assert survey(stage).is_clear

    settled = everything(db)
    assert resolve(stage).fence is None
    assert everything(db) == settled
    stage.run(2)
    assert ids(db) == stage.ids(2)


def test_a_transaction_that_somebody_rolled_back_by_hand_is_lost_and_made_again(stage, db):
    crash(stage, "decide.after")
    gone = min(gids(db) - {FOREIGN})
    db.execute(f"ROLLBACK PREPARED '{gone}'".encode())
    done = resolve(stage)
    assert [(deed.do, deed.records) for deed in done.deeds] == [(Do.COMMIT, 1), (Do.LOST, 1)]
    stage.run(1)
    assert ids(db) == stage.ids(1)


@pytest.mark.parametrize("point", ["decide.after", "decide.before"])
def test_a_transaction_that_somebody_committed_by_hand_is_there_once(stage, db, point):
    """Decided or not: its ledger row came with its rows, and so the slot is not committed a second time."""
    crash(stage, point)
    by_hand = min(gids(db) - {FOREIGN})
    db.execute(f"COMMIT PREPARED '{by_hand}'".encode())
    resolve(stage)
    assert gids(db) == {FOREIGN}
    stage.run(2)
    assert ids(db) == stage.ids(2)
    stage.run(2)
    assert gids(db) == {FOREIGN}


def test_the_server_tells_since_when_and_what_is_locked(stage, db):
    crash(stage, "decide.after")
    found = survey(stage)
    assert {case.doubt.id for case in found.cases} == gids(db) - {FOREIGN}
    for case in found.cases:
        assert case.doubt.rows == stage.rows
        assert case.doubt.age_s >= 0
        assert "refunds RowExclusiveLock" in case.doubt.locks
    assert [doubt.id for _, doubt in found.foreign if doubt.id == FOREIGN] == [FOREIGN]
