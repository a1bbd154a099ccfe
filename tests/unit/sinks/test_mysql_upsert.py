"""Upsert and mirror: the newest row of each key, in one transaction, whatever the epoch's rows look like."""

import pyarrow as pa
import pytest

from pakka.errors import SchemaError, SinkError
from pakka.model.outcome import COMMITTED, Kind
from pakka.sinks import _mysql_column, _mysql_culprit, _mysql_table
from pakka.sinks._mysql_culprit import Lineup
from tests.fixtures.mysql import need_expressions
from tests.unit.sinks.mysql_kit import Site, epoch, rows

pytestmark = pytest.mark.mysql


@pytest.fixture
def site(mysql_url, tmp_path):
    return Site.of(mysql_url, tmp_path, mode="upsert", key=("id",))


def test_a_row_replaces_the_one_of_its_key_and_the_last_of_an_epoch_wins(site):
    site.deliver(0, rows(id=["a", "b"], amount=[1, 2]))
    site.deliver(1, rows(id=["b", "c", "b"], amount=[3, 4, 5]), fence=2)
    assert site.ask("SELECT id, amount FROM refund ORDER BY id") == [("a", 1), ("b", 5), ("c", 4)]


def test_of_two_slots_the_later_one_wins(site):
    driver = site.driver()
    records = [site.prepare(site.slot(0, slot=n), rows(id=["a", "b"], amount=[n, 10 * n])) for n in range(3)]
    assert site.commit(driver, 0, records[::-1]) == COMMITTED
    assert site.ask("SELECT id, amount FROM refund ORDER BY id") == [("a", 2), ("b", 20)]


def test_keys_that_differ_in_case_or_in_a_space_are_two_rows_in_a_table_that_pakka_makes(site):
    site.deliver(0, rows(id=["a", "A", "a ", "á"], amount=[1, 2, 3, 4]))
    assert sorted(site.ask("SELECT id, amount FROM refund")) == [("A", 2), ("a", 1), ("a ", 3), ("á", 4)]


def test_keys_that_the_table_takes_for_one_are_one(site):
    """By the table's own collation, in the epoch as in the table."""
    site.ask("CREATE TABLE refund (id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, amount bigint) ENGINE=InnoDB")
    site.deliver(0, rows(id=["a", "A"], amount=[1, 2]))
    assert site.ask("SELECT amount FROM refund") == [(2,)]


def test_a_server_that_lacks_the_collation_of_a_key_says_what_to_do(site, monkeypatch):
    """As MySQL does before 8.0.17."""
    monkeypatch.setattr(_mysql_column, "_key_type", lambda *_: "varchar(9) COLLATE utf8mb4_of_tomorrow")
    site.driver().close()
    with pytest.raises(SinkError, match="Unknown collation") as refused:
        site.prepare(site.slot(0), rows(id=["a"], amount=[1]))
    assert refused.value.hint.startswith("make the table yourself")
    site.ask("CREATE TABLE refund (id varchar(9) COLLATE utf8mb4_bin PRIMARY KEY, amount bigint) ENGINE=InnoDB")
    site.deliver(0, rows(id=["a"], amount=[1]))
    assert site.ask("SELECT * FROM refund") == [("a", 1)]


def test_a_key_of_several_columns_in_any_order(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, mode="upsert", key=("shop", "id"))
    site.ask("CREATE TABLE refund (id bigint, amount bigint, shop varchar(9), UNIQUE KEY k (id, shop)) ENGINE=InnoDB")
    site.deliver(0, rows(shop=["x", "y", "x"], amount=[1, 2, 3], id=[1, 1, 1]))
    assert site.ask("SELECT shop, id, amount FROM refund ORDER BY shop") == [("x", 1, 3), ("y", 1, 2)]


def test_rows_that_are_nothing_but_a_key_are_kept_once(site):
    site.deliver(0, rows(id=["a", "b", "a"]))
    site.deliver(1, rows(id=["b"]), fence=2)
    assert site.ask("SELECT id FROM refund ORDER BY id") == [("a",), ("b",)]


def test_a_repeated_epoch_changes_nothing(site):
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=["a"], amount=[1]))
    assert site.commit(driver, 0, [record]) == COMMITTED
    site.ask("UPDATE refund SET amount = 9")
    assert site.commit(driver, 0, [record]).kind is Kind.ALREADY_COMMITTED
    assert site.ask("SELECT amount FROM refund") == [(9,)]


def test_an_older_version_is_passed_over_in_the_epoch_and_in_the_table(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, mode="upsert", key=("id",), version="lsn")
    site.deliver(0, rows(id=["a", "a", "b"], lsn=[7, 5, 5], amount=[70, 50, 50]))
    assert site.ask("SELECT id, lsn, amount FROM refund ORDER BY id") == [("a", 7, 70), ("b", 5, 50)]
    site.deliver(1, rows(id=["a", "b", "a"], lsn=[6, 6, 7], amount=[60, 60, 71]), fence=2)
    assert site.ask("SELECT id, lsn, amount FROM refund ORDER BY id") == [("a", 7, 70), ("b", 6, 60)]


def test_a_row_without_a_version_gives_way_to_any(mysql_url, tmp_path):
    site = Site.of(mysql_url, tmp_path, mode="upsert", key=("id",), version="lsn")
    site.deliver(0, rows(id=["a"], lsn=pa.array([None], pa.int64()), amount=[1]))
    site.deliver(1, rows(id=["a", "a"], lsn=[None, 1], amount=[2, 3]), fence=2)
    assert site.ask("SELECT lsn, amount FROM refund") == [(1, 3)]


@pytest.fixture
def mirror(mysql_url, tmp_path):
    return Site.of(mysql_url, tmp_path, mode="mirror", key=("id",), operation="op", version="lsn")


def test_a_mirror_inserts_updates_and_deletes_in_the_order_of_versions(mirror):
    mirror.ask("CREATE TABLE refund (id bigint PRIMARY KEY, amount bigint NOT NULL, lsn bigint) ENGINE=InnoDB")
    mirror.deliver(0, rows(id=[1, 2, 3], amount=[10, 20, 30], lsn=[1, 2, 3], op=["insert"] * 3))
    changes = rows(
        id=[1, 2, 3, 3, 4, 4, 5],
        amount=pa.array([11, None, None, 31, 40, None, None], pa.int64()),
        lsn=[4, 5, 6, 7, 8, 9, 10],
        op=["update", "delete", "delete", "insert", "insert", "delete", "delete"],
    )
    mirror.deliver(1, changes, fence=2)
    assert mirror.ask("SELECT id, amount, lsn FROM refund ORDER BY id") == [(1, 11, 4), (3, 31, 7)]


def test_a_stale_delete_takes_nothing_away(mirror):
    mirror.deliver(0, rows(id=[1], amount=[10], lsn=[5], op=["insert"]))
    mirror.deliver(1, rows(id=[1], amount=[0], lsn=[4], op=["delete"]), fence=2)
    assert mirror.ask("SELECT id, lsn FROM refund") == [(1, 5)]


def test_the_operation_is_not_stored_and_a_strange_one_is_refused(mirror):
    mirror.deliver(0, rows(id=[1], lsn=[5], op=["insert"]))
    assert "op" not in {name for name, *_ in mirror.ask("SHOW COLUMNS FROM refund")}
    with pytest.raises(SchemaError, match="'truncate'"):
        mirror.prepare(mirror.slot(1), rows(id=[1], lsn=[6], op=["truncate"]))


def test_a_row_that_does_not_delete_must_have_what_the_table_needs(mirror):
    mirror.ask("CREATE TABLE refund (id bigint PRIMARY KEY, amount bigint NOT NULL, lsn bigint) ENGINE=InnoDB")
    mirror.driver().close()
    with pytest.raises(SchemaError, match="`amount`"):
        mirror.prepare(mirror.slot(0), rows(id=[1], amount=pa.array([None], pa.int64()), lsn=[1], op=["update"]))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("(id bigint, amount bigint)", "no PRIMARY KEY and no UNIQUE index on exactly"),
        ("(id bigint, amount bigint, UNIQUE KEY k (id, amount))", "on exactly"),
        ("(id varchar(40), amount bigint, UNIQUE KEY k (id(5)))", "on exactly"),
        ("(id varchar(40), amount bigint, UNIQUE KEY k ((lower(id))))", "on exactly"),
        ("(id bigint PRIMARY KEY, amount bigint UNIQUE)", "another unique index, `amount`"),
    ],
)
def test_a_table_whose_indexes_would_change_the_wrong_row_is_refused(mysql_server, site, made, message):
    need_expressions(mysql_server, made)
    site.ask(f"CREATE TABLE refund {made} ENGINE=InnoDB")
    site.driver().close()
    ids = pa.array(["a"]) if "varchar" in made else pa.array([1])
    with pytest.raises(SchemaError, match=message):
        site.prepare(site.slot(0), rows(id=ids, amount=[1]))


ALIKE = rows(id=["key-1", "key-2"], email=["abcd", "ABCD"])
MEETS_OTHERS = [
    "UNIQUE KEY k (email)",
    "UNIQUE KEY k (email(3))",
    "UNIQUE KEY k (id(3), email)",
    "low varchar(9) AS (lower(email)) VIRTUAL, UNIQUE KEY k (low)",
    "UNIQUE KEY k ((lower(email)))",
    "UNIQUE KEY k ((lower(email)), (left(id, 3)))",
    "shop int DEFAULT 7, UNIQUE KEY k (shop)",
    "shop int NOT NULL DEFAULT 7, UNIQUE KEY k (shop, email)",
]


@pytest.fixture
def beside_the_key(mysql_server, site, rest):
    """A table with what a test adds to its key."""
    need_expressions(mysql_server, rest)
    site.ask(
        "CREATE TABLE refund (id varchar(9) PRIMARY KEY, email varchar(200) COLLATE utf8mb4_general_ci, "
        f"{rest}) ENGINE=InnoDB"
    )


@pytest.mark.parametrize("rest", MEETS_OTHERS)
@pytest.mark.usefixtures("beside_the_key")
def test_an_index_by_which_a_row_meets_the_row_of_another_key_is_refused(site):
    site.driver().close()
    with pytest.raises(SchemaError, match="another unique index, `k`") as refused:
        site.prepare(site.slot(0), ALIKE)
    site.ask(refused.value.hint.split("; ")[0][1:-1])
    site.deliver(0, ALIKE)
    assert site.ask("SELECT id FROM refund ORDER BY id") == [("key-1",), ("key-2",)]


@pytest.mark.parametrize("rest", MEETS_OTHERS)
@pytest.mark.usefixtures("beside_the_key")
def test_what_is_refused_would_lose_a_row_without_an_error(site, monkeypatch):
    """The twin that looks at no index but that of the key."""
    monkeypatch.setattr(_mysql_table, "other_keys", lambda *_: [])
    site.deliver(0, ALIKE)
    assert site.ask("SELECT id FROM refund") == [("key-1",)]


@pytest.mark.parametrize(
    "rest",
    [
        "UNIQUE KEY k (email, id)",
        "UNIQUE KEY k (email(3), id)",
        "UNIQUE KEY k ((lower(email)), id)",
        "shop int, UNIQUE KEY k (shop)",
        "shop int DEFAULT NULL, UNIQUE KEY k (shop, email)",
        "n bigint AUTO_INCREMENT, UNIQUE KEY k (n)",
        "n bigint AUTO_INCREMENT, UNIQUE KEY k (n, email)",
    ],
)
@pytest.mark.usefixtures("beside_the_key")
def test_an_index_by_which_no_row_meets_another_key_is_no_hindrance(site):
    site.deliver(0, ALIKE)
    site.deliver(1, rows(id=["key-2"], email=["abcd"]), fence=2)
    assert site.ask("SELECT id, email FROM refund ORDER BY id") == [("key-1", "abcd"), ("key-2", "abcd")]


def test_an_index_that_was_added_since_the_rows_were_spooled_is_seen_at_the_commit(site):
    driver = site.driver()
    record = site.prepare(site.slot(0), ALIKE)
    site.ask("ALTER TABLE refund ADD UNIQUE KEY k (email(3))")
    outcome = site.commit(driver, 0, [record])
    assert outcome.kind is Kind.RETRY
    assert "another unique index, `k`" in outcome.reason
    assert site.ask("SELECT * FROM refund") == []
    site.ask("ALTER TABLE refund DROP INDEX k")
    assert site.commit(driver, 0, [record]) == COMMITTED
    assert site.ask("SELECT count(*) FROM refund") == [(2,)]


@pytest.mark.parametrize("batch", [rows(amount=[1]), rows(id=pa.array([None], pa.string()), amount=[1])])
def test_rows_without_their_key_are_refused(site, batch):
    site.driver().close()
    site.ask("CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint) ENGINE=InnoDB")
    with pytest.raises(SchemaError, match="key"):
        site.prepare(site.slot(0), batch)


def test_an_epoch_that_breaks_a_constraint_at_its_commit_leaves_the_table_as_it_was(site):
    site.ask(
        "CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint, CONSTRAINT small CHECK (amount < 5)) ENGINE=InnoDB"
    )
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=["a", "b"], amount=[1, 9]))
    outcome = site.commit(driver, 0, [record])
    assert outcome.kind is Kind.RETRY
    assert "small" in outcome.reason
    assert "the row is {id: 'b', amount: '9'}" in outcome.reason
    assert site.ask("SELECT * FROM refund") == []
    site.ask("ALTER TABLE refund DROP CONSTRAINT small")
    assert site.commit(driver, 0, [record]) == COMMITTED
    assert driver.ledger().last.epoch == epoch(0)


CHECKED = "CONSTRAINT small CHECK (amount < 5)"
OF_AN_ORDER = "CONSTRAINT of_an_order FOREIGN KEY (amount) REFERENCES orders (id)"
# What the rows bring, and the one to blame.
BLAMED = [
    (CHECKED, [1, 2, 3, 7, 9], "small", "{id: 'd', amount: '7'}"),
    (CHECKED, [9, 1, 2, 3, 4], "small", "{id: 'a', amount: '9'}"),
    (CHECKED, [1, 2, 3, 4, 9], "small", "{id: 'e', amount: '9'}"),
    (OF_AN_ORDER, [1, 2, 8, 3, 9], "of_an_order", "{id: 'c', amount: '8'}"),
]


@pytest.fixture(params=["told", "searched"])
def found(request, monkeypatch, mysql_server):
    """By what the server tells of the row, if it does, and by a search that takes two rows at a time."""
    if request.param == "searched":
        monkeypatch.setattr(_mysql_culprit, "place_told", lambda _: 0)
        monkeypatch.setattr(_mysql_culprit, "_SOME", 2)
    elif not mysql_server.is_mariadb:
        pytest.skip("only MariaDB tells of the row")
    else:
        monkeypatch.setattr(Lineup, "_search", lambda *_: pytest.fail("what was told needs no search"))


@pytest.mark.parametrize(("constraint", "amounts", "name", "row"), BLAMED)
@pytest.mark.parametrize("count", [5, 3])
@pytest.mark.usefixtures("found")
def test_the_first_row_that_breaks_a_constraint_is_shown(site, constraint, amounts, name, row, count):
    """In the order of the keys, in which the server takes them, and not in that of their coming. Alone it is found too."""
    site.ask("CREATE TABLE orders (id bigint PRIMARY KEY) ENGINE=InnoDB")
    site.ask("INSERT INTO orders VALUES (1), (2), (3), (4), (7)")
    site.ask(f"CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint, {constraint}) ENGINE=InnoDB")
    site.ask("INSERT INTO refund VALUES ('a', 4)")
    driver = site.driver()
    coming = sorted(zip("abcde", amounts, strict=True), key=lambda pair: -pair[1])[:count]
    record = site.prepare(site.slot(0), rows(id=[i for i, _ in coming], amount=[n for _, n in coming]))
    outcome = site.commit(driver, 0, [record])
    assert outcome.kind is Kind.RETRY
    assert name in outcome.reason
    assert f"the row is {row}" in outcome.reason
    assert site.ask("SELECT * FROM refund") == [("a", 4)]
    driver.close()


@pytest.mark.usefixtures("found")
def test_a_row_that_only_an_older_one_of_its_key_breaks_is_not_blamed(site):
    """What another row of the epoch replaces never reaches the table."""
    site.ask(f"CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint, {CHECKED}) ENGINE=InnoDB")
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=["a", "b", "a"], amount=[9, 8, 1]))
    assert "the row is {id: 'b', amount: '8'}" in site.commit(driver, 0, [record]).reason
    driver.close()


@pytest.mark.usefixtures("found")
def test_a_row_of_a_mirror_is_shown_beside_others_that_are_deleted(mirror):
    mirror.ask(f"CREATE TABLE refund (id bigint PRIMARY KEY, amount bigint, lsn bigint, {CHECKED}) ENGINE=InnoDB")
    driver = mirror.driver()
    batch = rows(
        id=[5, 4, 3, 2, 1], amount=[9, 1, 9, 1, 1], lsn=[1] * 5, op=["insert", "insert", "delete", "insert", "delete"]
    )
    record = mirror.prepare(mirror.slot(0), batch)
    assert "the row is {id: '5', amount: '9', lsn: '1'}" in mirror.commit(driver, 0, [record]).reason
    driver.close()


def test_a_row_that_a_trigger_refuses_in_another_table_is_shown(site):
    """The place that MariaDB tells is that in the trigger's own statement, which has one row."""
    site.ask("CREATE TABLE book (amount bigint, CONSTRAINT small CHECK (amount < 5)) ENGINE=InnoDB")
    site.ask("CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint) ENGINE=InnoDB")
    site.ask("CREATE TRIGGER booked BEFORE INSERT ON refund FOR EACH ROW INSERT INTO book VALUES (NEW.amount)")
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=["a", "b", "c"], amount=[1, 2, 9]))
    reason = site.commit(driver, 0, [record]).reason
    assert "small" in reason
    assert "the row is {id: 'c', amount: '9'}" in reason
    driver.close()


def test_an_epoch_that_is_asked_again_is_not_searched_again(site, monkeypatch):
    """A committer asks many times. The next epoch has rows of its own."""
    searches = []
    find = Lineup.find
    monkeypatch.setattr(Lineup, "find", lambda *words, **more: searches.append(1) or find(*words, **more))
    site.ask(f"CREATE TABLE refund (id varchar(9) PRIMARY KEY, amount bigint, {CHECKED}) ENGINE=InnoDB")
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=["a", "b"], amount=[1, 9]))
    for _ in range(3):
        assert "small" in (reason := site.commit(driver, 0, [record]).reason)
        assert "the row is {id: 'b', amount: '9'}" in reason
    assert len(searches) == 1
    site.ask("ALTER TABLE refund DROP CONSTRAINT small")
    assert site.commit(driver, 0, [record]) == COMMITTED
    site.ask("DELETE FROM refund")
    site.ask(f"ALTER TABLE refund ADD {CHECKED}")
    record = site.prepare(site.slot(1), rows(id=["c"], amount=[8]))
    assert "the row is {id: 'c', amount: '8'}" in site.commit(driver, 1, [record]).reason
    driver.close()


def test_a_delete_that_a_foreign_key_forbids_shows_its_row(mirror):
    mirror.ask("CREATE TABLE refund (id bigint PRIMARY KEY, lsn bigint) ENGINE=InnoDB")
    mirror.ask(
        "CREATE TABLE item (refund bigint, CONSTRAINT of_a_refund FOREIGN KEY (refund) REFERENCES refund (id)) ENGINE=InnoDB"
    )
    mirror.deliver(0, rows(id=[1, 2, 3], lsn=[1, 1, 1], op=["insert"] * 3))
    mirror.ask("INSERT INTO item VALUES (2)")
    driver = mirror.driver(fence=2)
    record = mirror.prepare(
        mirror.slot(1, fence=2), rows(id=[1, 2, 3, 4], lsn=[2, 2, 2, 2], op=["delete"] * 3 + ["insert"])
    )
    reason = mirror.commit(driver, 1, [record]).reason
    assert "of_a_refund" in reason
    assert "the row is {id: '2', lsn: '2'}" in reason
    assert mirror.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,), (3,)]
    driver.close()
