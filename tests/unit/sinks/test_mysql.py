"""The MySQL sink through the life of an epoch: branches, fences, restarts, and what a server may do in between."""

import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pymysql
import pytest

from pakka.errors import ConfigError, FencedError, SchemaError, SinkError, UnavailableError
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Kind
from pakka.sinks import _mysql_clerk, _mysql_line, _mysql_load, _mysql_writer
from pakka.sinks._mysql_clerk import digest, ident_of, slot_of
from pakka.sinks.mysql import MysqlSink
from tests.fixtures.mysql import PASSWORD, connect, database_of, query
from tests.unit.sinks.mysql_kit import SUM, Site, epoch, rows

pytestmark = pytest.mark.mysql


@pytest.fixture
def site(mysql_url, tmp_path):
    return Site.of(mysql_url, tmp_path, way="prepared")


# --- Names


def test_a_branch_is_named_so_that_the_server_s_list_alone_tells_whose_it_is():
    slot = Slot("refunds", "out", 412, 7, 3, 1)
    ident = ident_of(slot, "shop")
    gtrid, bqual = ident.split(",")
    assert len(gtrid) <= 64 >= len(bqual)
    assert gtrid.endswith(".412.7")
    assert bqual.startswith("3.1.")
    assert bqual.endswith(".refunds.out")
    assert slot_of(ident, Binding("refunds", "out", ""), "shop") == slot
    assert slot_of(ident, Binding("refunds", "dead_letters", ""), "shop") is None
    assert slot_of(ident, Binding("refund", "sout", ""), "shop") is None
    assert slot_of(ident, Binding("refunds", "out", ""), "shop2") is None


def test_the_longest_names_and_large_numbers_still_make_the_name_of_a_branch():
    slot = Slot("p" * 63, "s" * 63, 10**12, 10**9, 10**6, 10**12)
    ident = ident_of(slot, "d" * 64)
    assert all(len(part) <= 64 for part in ident.split(","))
    assert slot_of(ident, Binding("p" * 63, "s" * 63, ""), "d" * 64) == slot


def test_a_foreign_branch_is_neither_listed_nor_touched(site, mysql_url):
    driver = site.driver()
    with connect(mysql_url) as db, db.cursor() as cursor:
        cursor.execute("CREATE TABLE theirs (id int) ENGINE=InnoDB")
        for name in (
            "'theirs','1'",
            "'pakka.x','1'",
            "'pakka.00000000000000000000.0.1','0.0.000000000000.refunds.out'",
        ):
            with connect(mysql_url) as own, own.cursor() as theirs:
                for statement in ("XA START", "INSERT INTO theirs VALUES (1)", "XA END", "XA PREPARE"):
                    theirs.execute(statement if "INSERT" in statement else f"{statement} {name}")
    assert list(driver.pending()) == []
    assert [doubt.slot for doubt in driver.in_doubt()] == [None, None, None]
    site.deliver(0, rows(id=[1]), fence=2)
    assert len(site.ask("XA RECOVER")) == 3


# --- Two phases


def test_a_prepared_branch_outlives_a_kill_of_the_server_and_is_committed_by_the_next_driver(site, mysql_server):
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=[1, 2, 3]))
    driver.close()
    mysql_server.kill()
    mysql_server.restart()
    heir = site.sink.open_committer(site.binding, 2)
    assert heir.raise_fence() is False, "after a restart only the ledger row of the branch is still locked"
    assert [p.slot for p in heir.pending()] == [site.slot(0)]
    assert site.commit(heir, 0, [record]) == COMMITTED
    assert heir.raise_fence() is True
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,), (3,)]
    assert site.prepared_branches() == []


@pytest.fixture
def held(monkeypatch):
    """Lines of writers, none of which is closed by them: as if their processes were frozen behind XA PREPARE."""
    lines = []

    class Frozen(_mysql_line.Line):
        def __init__(self, *values):
            super().__init__(*values)
            lines.append(self)

        def close(self):
            pass

    monkeypatch.setattr("pakka.sinks._mysql_writer.Line", Frozen)
    yield lines
    for line in lines:
        line.cut()


def test_a_commit_waits_for_a_writer_that_has_not_let_go(site, held):
    """MariaDB says of its branch what it says of one that was never there."""
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=[1]))
    threading.Timer(0.3, held[0].cut).start()
    assert site.commit(driver, 0, [record]) == COMMITTED
    assert site.ask("SELECT id FROM refund") == [(1,)]


def test_a_branch_whose_writer_is_still_there_is_asked_for_again_and_not_called_lost(site, held, monkeypatch):
    driver = site.driver()
    if "MariaDB" not in site.ask("SELECT version()")[0][0]:
        pytest.skip("this server lets others end a branch whose writer is connected")
    # Or the server would show it out while it is asked for.
    monkeypatch.setattr(_mysql_writer, "_LEAVE_S", 60)
    record = site.prepare(site.slot(0), rows(id=[1]))
    monkeypatch.setattr(_mysql_clerk, "_LET_GO_S", 0.1)
    (outcome,) = driver.commit(epoch(0), [record])
    assert outcome.kind is Kind.RETRY
    with pytest.raises(UnavailableError, match="somebody else is at it"):
        driver.abort([record])


def test_a_writer_that_never_leaves_is_shown_out_by_the_server(site, held):
    """Its machine has lost power behind XA PREPARE, and the server was not told."""
    driver = site.driver()
    first, second = (site.prepare(site.slot(0, slot=n), rows(id=[n])) for n in range(2))
    assert site.commit(driver, 0, [first]) == COMMITTED
    driver.abort([second])
    assert site.prepared_branches() == []
    assert site.ask("SELECT id FROM refund") == [(0,)]


def test_a_branch_that_an_administrator_rolled_back_is_refused_and_not_called_committed(site):
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=[1]))
    gtrid, bqual = record.detail["id"].split(",")
    site.ask(f"XA ROLLBACK '{gtrid}', '{bqual}'")
    assert site.commit(driver, 0, [record]).kind is Kind.REFUSED
    assert site.ask("SELECT * FROM refund") == []


def test_a_branch_that_an_administrator_committed_is_called_committed(site):
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=[1]))
    gtrid, bqual = record.detail["id"].split(",")
    site.ask(f"XA COMMIT '{gtrid}', '{bqual}'")
    assert site.commit(driver, 0, [record]).is_final
    assert site.ask("SELECT id FROM refund") == [(1,)]


def test_the_fence_is_not_raised_over_a_branch_and_an_empty_one_is_enough(site):
    site.driver().close()
    record = site.prepare(site.slot(0), rows(id=[1]).slice(0, 0))
    heir = site.sink.open_committer(site.binding, 2)
    assert heir.raise_fence() is False
    heir.abort([record])
    assert heir.raise_fence() is True
    with pytest.raises(FencedError):
        site.prepare(site.slot(0), rows(id=[1]))


def test_a_writer_that_was_overtaken_while_it_loaded_cannot_prepare(site):
    site.driver().close()
    writer = site.sink.open_writer(site.binding, site.slot(0), rows(id=[1]).schema)
    writer.write(rows(id=[1]))
    site.driver(2).close()
    with pytest.raises(FencedError):
        writer.prepare("0" * 16)
    writer.discard()
    assert site.prepared_branches() == []


@pytest.mark.parametrize("columns", ["id varchar(9) PRIMARY KEY", "id varchar(9), UNIQUE (id(3))"])
def test_a_second_attempt_undoes_the_first_where_a_unique_index_would_have_it_wait(site, columns):
    site.ask(f"CREATE TABLE refund ({columns}) ENGINE=InnoDB")
    driver = site.driver()
    first = site.prepare(site.slot(0, attempt=0), rows(id=["a"]))
    other = site.prepare(site.slot(0, slot=1), rows(id=["b"]))
    second = site.prepare(site.slot(0, attempt=1), rows(id=["a"]))
    assert {p.slot for p in driver.pending()} == {second.slot, other.slot}
    assert site.commit(driver, 0, [second, other]) == COMMITTED
    assert driver.commit(epoch(0), [first])[0].kind is Kind.ALREADY_COMMITTED
    assert site.ask("SELECT id FROM refund ORDER BY id") == [("a",), ("b",)]


def test_a_writer_that_gives_up_after_prepare_leaves_nothing(site):
    site.driver().close()
    writer = site.sink.open_writer(site.binding, site.slot(0), rows(id=[1]).schema)
    writer.write(rows(id=[1]))
    writer.prepare("0" * 16)
    writer.discard()
    writer.discard()
    assert site.prepared_branches() == []
    assert site.ask("SELECT * FROM refund") == []


def test_what_is_in_doubt_is_told_with_its_age_and_its_rows(site):
    driver = site.driver()
    site.prepare(site.slot(3, slot=2), rows(id=[1, 2, 3]))
    (doubt,) = driver.in_doubt()
    assert doubt.slot == site.slot(3, slot=2)
    assert doubt.rows == 3
    assert 0 <= doubt.age_s < 60
    assert doubt.id.startswith("pakka.")


def test_what_it_locks_is_told_and_is_true_also_after_a_restart(site, mysql_server):
    site.driver().close()
    site.prepare(site.slot(0), rows(id=[1]))
    site.prepare(site.slot(0, slot=1), rows(id=pa.array([], pa.int64())))
    where = database_of(site.url)
    target, ledger = f"{where}.refund IX", f"{where}.pakka_ledger IX"
    for is_restarted in (False, True):
        if is_restarted:
            mysql_server.kill()
            mysql_server.restart()
        with closing(site.sink.open_committer(site.binding, 1)) as desk:
            told = {doubt.slot.number: doubt.locks for doubt in desk.in_doubt()}
        assert told == {0: (target, ledger), 1: (ledger,)}
        for lock in told[0]:
            with connect(site.url) as db, db.cursor() as cursor:
                cursor.execute("SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
                with pytest.raises(pymysql.OperationalError, match="Lock wait timeout"):
                    cursor.execute(f"ALTER TABLE {lock.removesuffix(' IX')} COMMENT = 'theirs'")


def test_the_ledger_forgets_old_epochs(site, monkeypatch):
    monkeypatch.setattr("pakka.sinks._two_phase.LEDGER_EPOCHS", 2)
    driver = site.driver()
    for number in range(5):
        assert site.commit(driver, number, [site.prepare(site.slot(number), rows(id=[number]))]) == COMMITTED
    assert site.ask("SELECT DISTINCT epoch FROM pakka_ledger ORDER BY epoch") == [(3,), (4,)]


@pytest.mark.parametrize("table", ["refund", "pakka_fence", "pakka_ledger"])
def test_a_slot_is_not_loaded_beside_a_table_that_has_lost_its_transactions(site, table):
    """A ledger row that stays after an abort would have the next run pass over rows that are nowhere."""
    site.deliver(0, rows(id=[1]))
    site.ask(f"ALTER TABLE {table} ENGINE=MyISAM")
    before = site.ask("SELECT * FROM pakka_ledger")
    with pytest.raises(SchemaError, match=rf"{table}` in \S+ is of the engine MyISAM") as refused:
        site.prepare(site.slot(1), rows(id=[2]))
    assert (site.ask("SELECT * FROM pakka_ledger"), site.prepared_branches()) == (before, [])
    site.ask(refused.value.hint.strip("`"))
    site.deliver(1, rows(id=[2]), fence=2)
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize("table", ["refund", "pakka_fence", "pakka_ledger"])
def test_an_epoch_is_not_applied_beside_a_table_that_has_lost_its_transactions(site, table):
    site = site.but(way="spooled")
    site.deliver(0, rows(id=[1]))
    driver = site.driver(2)
    record = site.prepare(site.slot(1, fence=2), rows(id=[2]))
    site.ask(f"ALTER TABLE {table} ENGINE=MyISAM")
    before = site.ask("SELECT * FROM pakka_ledger")
    outcome = site.commit(driver, 1, [record])
    assert outcome.kind is Kind.RETRY
    assert f"{table}` in" in outcome.reason
    assert site.ask("SELECT * FROM pakka_ledger") == before
    site.ask(f"ALTER TABLE {table} ENGINE=InnoDB")
    assert site.commit(driver, 1, [record]) == COMMITTED
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,)]


def test_the_fence_of_a_run_that_changes_its_way_waits_for_what_is_prepared(site):
    site.driver().close()
    record = site.prepare(site.slot(0), rows(id=[1]))
    spooled = site.but(way="spooled")
    heir = spooled.sink.open_committer(spooled.binding, 2)
    assert heir.raise_fence() is False
    assert [p.slot for p in heir.pending()] == [record.slot]
    back = site.sink.open_committer(site.binding, 2)
    assert site.commit(back, 0, [record]) == COMMITTED
    assert heir.raise_fence() is True
    assert heir.ledger().last.epoch == epoch(0)
    spooled.deliver(1, rows(id=[2]), fence=3)
    site.deliver(2, rows(id=[3]), fence=4)
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,), (3,)]


# --- Turns


def turn_of(site: Site) -> str:
    return f"pakka.turn.{digest(str(site.sink.where), 20)}"


@pytest.fixture
def turn(site, mysql_url):
    """The turn of the table, taken by somebody else; with what gives it back."""
    if "MariaDB" not in site.ask("SELECT version()")[0][0]:
        pytest.skip("turns are for MariaDB")
    with connect(mysql_url) as db, db.cursor() as theirs:
        theirs.execute("SELECT GET_LOCK(%s, 0)", (turn_of(site),))
        yield lambda: theirs.execute("SELECT RELEASE_LOCK(%s)", (turn_of(site),))


@pytest.mark.parametrize(
    ("columns", "is_waited_for"),
    [
        ("id bigint", True),
        ("id bigint, UNIQUE (id)", True),
        ("id bigint, n bigint AUTO_INCREMENT PRIMARY KEY", True),
        ("id bigint PRIMARY KEY", False),
        ("id bigint NOT NULL, UNIQUE (id)", False),
    ],
)
def test_slots_load_in_turns_where_all_rows_go_to_the_end_of_the_table(site, turn, monkeypatch, columns, is_waited_for):
    monkeypatch.setattr(_mysql_load, "_TURN_S", 60)
    site.ask(f"CREATE TABLE refund ({columns}) ENGINE=InnoDB")
    driver = site.driver()
    with ThreadPoolExecutor(1) as pool:
        slot = pool.submit(site.prepare, site.slot(0), rows(id=[1]))
        while is_waited_for and not site.ask("SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"):
            assert not slot.done()
        if is_waited_for:
            turn()
        assert site.commit(driver, 0, [slot.result(30)]) == COMMITTED
    assert site.ask("SELECT id FROM refund") == [(1,)]


def test_a_turn_that_does_not_come_is_done_without_and_not_asked_for_again(site, turn, monkeypatch):
    monkeypatch.setattr(_mysql_load, "_TURN_S", 0.1)
    monkeypatch.setattr(_mysql_load, "_TURN_BYTES", 1)
    site.ask("CREATE TABLE refund (id bigint) ENGINE=InnoDB")
    said = []
    ask = _mysql_line.Line.ask
    monkeypatch.setattr(
        _mysql_line.Line, "ask", lambda line, text, *values: (said.append(text), ask(line, text, *values))[1]
    )
    driver = site.driver()
    record = site.prepare(site.slot(0), rows(id=[1]), rows(id=[2]), rows(id=[3]))
    assert site.commit(driver, 0, [record]) == COMMITTED
    assert site.ask("SELECT id FROM refund ORDER BY id") == [(1,), (2,), (3,)]
    assert len([text for text in said if "_LOCK(" in text]) == 1


def test_a_turn_is_given_back_also_by_a_slot_that_is_refused(site):
    site.ask("CREATE TABLE refund (id bigint, CHECK (id > 0)) ENGINE=InnoDB")
    site.driver().close()
    writer = site.sink.open_writer(site.binding, site.slot(0), rows(id=[1]).schema)
    writer.write(rows(id=[0]))
    with pytest.raises(SinkError, match="the row is"):
        writer.prepare(SUM)
    assert site.ask("SELECT is_free_lock(%s)", turn_of(site)) == [(1,)]
    writer.discard()


# --- Choices


def test_auto_is_prepared_on_a_server_that_keeps_branches_and_says_so(mysql_url):
    chosen = MysqlSink(mysql_url, "refund").choose()
    assert chosen.way == "prepared"
    assert "keeps prepared XA transactions" in chosen.guarantee().because


def test_auto_is_spooled_for_an_old_server_and_says_why(mysql_url, monkeypatch):
    monkeypatch.setattr("pakka.sinks.mysql._SINCE", {True: ((99,), "99"), False: ((99,), "99")})
    chosen = MysqlSink(mysql_url, "refund").choose()
    assert chosen.way == "spooled"
    assert "from 99 on" in chosen.guarantee().because


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "need a key"),
        ({"key": ("id",)}, "need a key"),
        ({"mode": "upsert", "key": ("id",), "way": "prepared"}, "cannot go the `prepared` way"),
        ({"version": "lsn"}, "`version` orders changes"),
        ({"table": "pakka_ledger"}, "pakka's own"),
        ({"table": ""}, "not the name of a table"),
        ({"table": "a" * 65}, "65 characters"),
        ({"table": "x "}, "ends with a space"),
        ({"url": "postgres://u:sesame@h/d"}, "lacks its scheme"),
        ({"url": "mysql://h/d"}, "lacks its scheme, its user"),
        ({"url": "mysql://u:sesame@h:port/d"}, "cannot be read"),
        ({"url": "mysql://u:sesame@h/d?ssl_cert_and=1"}, "unknown option"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_asked(options, message):
    with pytest.raises(ConfigError, match=message) as refused:
        MysqlSink(**{"url": "mysql://u:sesame@h/d", "table": "refund", **options})
    assert "sesame" not in str(refused.value)


def test_the_password_is_in_nothing_that_is_shown(mysql_url):
    sink = MysqlSink(mysql_url, "refund")
    copy = pickle.loads(pickle.dumps(sink))
    copy.address  # noqa: B018
    for text in (repr(copy), str(copy), copy.target(), repr(copy.address), repr(copy.guarantee())):
        assert PASSWORD not in text
        assert PASSWORD.replace("%2F", "/") not in text


def test_mariadb_is_another_word_for_mysql():
    assert MysqlSink("mariadb://u:p@h/d", "t").target() == MysqlSink("mysql://u:p@h:3306/d", "t").target()


# --- Trouble with the server


def test_a_server_without_room_for_connections_is_waited_for(site, mysql_url, mysql_server):
    site.driver().close()
    with mysql_server.admin() as db, db.cursor() as cursor:
        cursor.execute("CREATE USER one@'%' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1")
        cursor.execute(f"GRANT ALL ON {database_of(mysql_url)}.* TO one@'%'")
    poor = Site.of(mysql_url.replace(f"pakka:{PASSWORD}", "one:x"), site.spool, way="prepared")
    held = poor.sink.connect()
    try:
        with pytest.raises(UnavailableError, match="max_user_connections"):
            poor.sink.open_writer(poor.binding, poor.slot(0), rows(id=[1]).schema)
    finally:
        held.close()
        query(mysql_url, "DROP USER one")


def test_a_lock_that_is_not_given_up_is_not_waited_for_for_ever(site, mysql_url, monkeypatch):
    site.ask("CREATE TABLE refund (id bigint PRIMARY KEY) ENGINE=InnoDB")
    site.driver().close()
    monkeypatch.setattr(
        _mysql_line, "_SESSION", _mysql_line._SESSION.replace("lock_wait_timeout = 10", "lock_wait_timeout = 1")
    )
    with connect(mysql_url, autocommit=False) as db:
        db.cursor().execute("INSERT INTO refund VALUES (1)")
        with pytest.raises(UnavailableError, match="Lock wait timeout") as refused:
            site.prepare(site.slot(0), rows(id=[1]))
    assert "nothing of it is visible" in refused.value.message
    assert site.prepared_branches() == []


def test_a_statement_killed_by_an_administrator_fails_the_slot_and_leaves_nothing(site, mysql_url):
    site.driver().close()
    writer = site.sink.open_writer(site.binding, site.slot(0), rows(id=[1]).schema)
    writer.write(rows(id=[1]))
    ((ident,),) = writer._line.ask("SELECT connection_id()")
    query(mysql_url, f"KILL {ident}")
    with pytest.raises(UnavailableError):
        writer.prepare("0" * 16)
    writer.discard()
    assert site.prepared_branches() == []
    site.deliver(0, rows(id=[2]), fence=2)
    assert site.ask("SELECT id FROM refund") == [(2,)]


def test_a_frozen_server_does_not_keep_the_driver_for_ever(site, mysql_server, monkeypatch):
    site.driver().close()
    driver = site.sink.open_committer(site.binding, 1)
    monkeypatch.setattr(driver.clerk.lines, "connect", lambda: _mysql_line.Line(site.sink.address, 3.0))
    assert driver.ledger().fence == 1  # over a line that the server has when it stops
    mysql_server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(UnavailableError):
            driver.ledger()
    finally:
        mysql_server.signal(signal.SIGCONT)
    monkeypatch.undo()
    assert driver.ledger().fence == 1


def test_a_user_with_rights_on_its_own_database_is_enough(mysql_url, mysql_server, tmp_path):
    """MySQL keeps some settings of a session, and the list of what is prepared, for administrators."""
    with mysql_server.admin() as db, db.cursor() as cursor:
        cursor.execute("CREATE USER plain@'%' IDENTIFIED BY 'x'")
        cursor.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, CREATE TEMPORARY TABLES ON {database_of(mysql_url)}.* TO plain@'%'"
        )
    url = mysql_url.replace(f"pakka:{PASSWORD}", "plain:x")
    try:
        for fence, options in enumerate(({}, {"way": "spooled"}, {"mode": "upsert", "key": ("id",)}), start=1):
            site = Site.of(url, tmp_path, table=f"refund_{fence}", **options)
            chosen = site.but(way=site.sink.choose().way)
            chosen.deliver(fence, rows(id=[fence]), fence=fence)
            assert site.ask(f"SELECT id FROM refund_{fence}") == [(fence,)]
    finally:
        with mysql_server.admin() as db:
            db.cursor().execute("DROP USER plain")


def test_a_driver_that_stands_still_in_its_transaction_is_shown_out_and_the_next_one_goes_on(site, monkeypatch):
    spooled = site.but(way="spooled")
    old = spooled.driver(1)
    record = spooled.prepare(spooled.slot(0), rows(id=[1]))
    taken = old.applier.load
    frozen, woken = threading.Event(), threading.Event()

    def stand_still(line, batches):
        frozen.set()
        woken.wait(timeout=30)
        taken(line, batches)

    monkeypatch.setattr(old.applier, "load", stand_still)
    fenced = []

    def commit_late():
        with pytest.raises(FencedError) as raised:
            spooled.commit(old, 0, [record])
        fenced.append(raised.value)

    thread = threading.Thread(target=commit_late)
    try:
        # The limit is told to the server when a transaction begins: only the one that is to stand still has the short one.
        with monkeypatch.context() as hurried:
            hurried.setattr(_mysql_clerk, "IDLE_S", 3)
            thread.start()
            assert frozen.wait(timeout=30)
        give_up = time.monotonic() + 30
        new = spooled.sink.open_committer(spooled.binding, 2)
        while time.monotonic() < give_up:
            try:
                assert new.raise_fence()
                break
            except UnavailableError:
                time.sleep(0.1)
    finally:
        woken.set()
        thread.join()
    assert fenced
    assert spooled.commit(new, 0, [record]) == COMMITTED
    assert spooled.ask("SELECT id FROM refund") == [(1,)]
    old.close()
    new.close()
