"""What a real PostgreSQL server tells of transactions that were prepared by hand."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pakka.contract.doubt import Doubt
from pakka.model.id import Slot
from pakka.sinks._postgres_doubt import in_doubt

pytestmark = pytest.mark.postgres

MINE = Slot("refunds", "ledger", 7, 3, 0, 12)


def prepare(url: str, gid: str, *statements: str) -> None:
    with psycopg.connect(url) as db:
        for statement in statements:
            db.execute(statement.encode())
        db.execute(f"PREPARE TRANSACTION '{gid}'".encode())


def slot_of(place: str):
    def parse(gid: str) -> Slot | None:
        text, _, where = gid.partition("/")
        return Slot.parse(text) if where == place else None

    return parse


@pytest.fixture
def place() -> str:
    """Ids are the whole server's, and other tests use it too."""
    return uuid.uuid4().hex


@pytest.fixture
def db(postgres_url) -> Iterator[psycopg.Connection]:
    """A database whose prepared transactions are rolled back in the end: it could not be dropped with them."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE TABLE rows (id int PRIMARY KEY)")
        db.execute('CREATE TABLE "Odd name" (id int)')
        db.execute("INSERT INTO rows VALUES (1)")
        yield db
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for (gid,) in db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall():
            db.execute(f"ROLLBACK PREPARED '{gid}'".encode())


def look(db: psycopg.Connection, place: str) -> dict[str, Doubt]:
    found = in_doubt(lambda statement: db.execute(statement.encode()).fetchall(), slot_of(place))
    return {doubt.id: doubt for doubt in found if place in doubt.id}


def test_a_prepared_transaction_is_told_with_its_age_and_the_tables_it_locks(db, postgres_url, place):
    gid = f"{MINE}/{place}"
    writes = ["INSERT INTO rows VALUES (2)", 'INSERT INTO "Odd name" VALUES (2)']
    prepare(postgres_url, gid, "SELECT * FROM rows WHERE id = 1 FOR SHARE", *writes)
    doubt = look(db, place)[gid]
    assert (doubt.slot, doubt.rows) == (MINE, None)
    assert doubt.locks == ('"Odd name" RowExclusiveLock', "rows RowExclusiveLock", "rows RowShareLock")
    again = look(db, place)[gid]
    assert 0 <= doubt.age_s <= again.age_s


def test_one_that_has_only_read_the_catalogue_locks_nothing(db, postgres_url, place):
    prepare(postgres_url, f"{MINE}/{place}", "SELECT count(*) FROM pg_class")
    assert look(db, place)[f"{MINE}/{place}"].locks == ()


def test_what_is_not_ours_is_told_without_a_slot_and_left_alone(db, postgres_url, place):
    gids = {f"payroll {place}", f"pakka.orders.ledger.7.3.0.12/other{place}", f"{MINE}/{place}"}
    for gid in gids:
        prepare(postgres_url, gid, "SELECT count(*) FROM rows")
    found = look(db, place)
    assert {gid for gid, doubt in found.items() if doubt.slot is None} == gids - {f"{MINE}/{place}"}
    assert set(look(db, place)) == gids


def test_one_of_another_database_is_told_without_names_of_its_tables(postgres_server, db, place):
    url = postgres_server.create_database()
    gid = f"{MINE}/elsewhere{place}"
    try:
        prepare(url, gid, "CREATE TABLE there (id int)", "INSERT INTO there VALUES (1)")
        doubt = look(db, place)[gid]
        assert (doubt.slot, doubt.locks) == (None, ())
        assert doubt.age_s >= 0
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(f"ROLLBACK PREPARED '{gid}'".encode())
    finally:
        postgres_server.drop_database(url)


def test_a_settled_one_is_no_longer_told(db, postgres_url, place):
    prepare(postgres_url, f"{MINE}/{place}", "INSERT INTO rows VALUES (2)")
    db.execute(f"COMMIT PREPARED '{MINE}/{place}'".encode())
    assert look(db, place) == {}


def test_nobody_needs_rights_to_look(db, postgres_url, place):
    prepare(postgres_url, f"{MINE}/{place}", "INSERT INTO rows VALUES (2)")
    role = f"looker_{place}"
    db.execute(f"CREATE ROLE {role}".encode())
    try:
        db.execute(f"SET ROLE {role}".encode())
        assert look(db, place)[f"{MINE}/{place}"].locks == ("rows RowExclusiveLock",)
    finally:
        db.execute("RESET ROLE")
        db.execute(f"DROP ROLE {role}".encode())


def test_each_is_told_its_own_locks_before_and_after_a_restart(postgres_server, postgres_url, db, place):
    tables = {f"{MINE}/{place}": "rows", f"other {place}": '"Odd name"'}
    for gid, table in tables.items():
        prepare(postgres_url, gid, f"INSERT INTO {table} VALUES (2)")
    wanted = {gid: (f"{table} RowExclusiveLock",) for gid, table in tables.items()}
    assert {gid: doubt.locks for gid, doubt in look(db, place).items()} == wanted
    postgres_server.kill()
    postgres_server.restart()
    with psycopg.connect(postgres_url, autocommit=True) as again:
        assert {gid: doubt.locks for gid, doubt in look(again, place).items()} == wanted
