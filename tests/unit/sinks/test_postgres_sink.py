"""The PostgreSQL sink on a real server: modes, ways, and what it says when it cannot."""

import pickle
from contextlib import closing, contextmanager

import psycopg
import pyarrow as pa
import pytest

from pakka.contract.audit import Severity
from pakka.errors import ConfigError, PakkaError, SchemaError, SinkError, UnavailableError
from pakka.model.epoch import Epoch, Origin
from pakka.model.guarantee import Way
from pakka.model.id import Binding, Slot
from pakka.model.outcome import Kind
from pakka.sinks._postgres_writer import _lines
from pakka.sinks.postgres import PostgresSink
from pakka.testing.contract.trial import commit_epoch
from tests.fixtures import postgres
from tests.fixtures.postgres import PASSWORD

pytestmark = pytest.mark.postgres

SCHEMA = pa.schema([("id", pa.int64()), ("merchant", pa.string()), ("lsn", pa.int64())])


class Driver:
    """One driver of one pipeline, as small as it can be."""

    def __init__(self, sink, place, fence=1):
        self.sink, self.fence = sink, fence
        self.binding = Binding("refunds", "out", str(place))
        self.committer = sink.open_committer(self.binding, fence)
        assert self.committer.raise_fence()

    def prepare(self, epoch, *batches):
        records = []
        for number, batch in enumerate(batches):
            slot = Slot("refunds", "out", epoch, self.fence, number, 0)
            writer = self.sink.open_writer(self.binding, slot, batch.schema)
            try:
                writer.write(batch)
                records.append(writer.prepare("0" * 16))
            except BaseException:
                writer.discard()
                raise
        return records

    def deliver(self, epoch, *batches):
        records = self.prepare(epoch, *batches)
        outcome = commit_epoch(
            self.committer, Epoch("refunds", epoch, Origin("query", epoch, f"offsets-{epoch}")), records
        )
        assert outcome.kind is Kind.COMMITTED, outcome.reason


@pytest.fixture
def drive(postgres_url, tmp_path):
    opened = []

    def make(table="refunds", fence=1, **options):
        driver = Driver(PostgresSink(postgres_url, table, **options), tmp_path / "spool", fence)
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.committer.close()
    for lines in _lines.values():
        lines.close()
    _lines.clear()


@pytest.fixture
def query(postgres_url):
    def ask(statement):
        with psycopg.connect(postgres_url, autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else None

    return ask


def rows(*values):
    return pa.record_batch([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def changes(*values):
    operations, *rest = zip(*values, strict=True)
    fields = [pa.field("operation", pa.string()), *SCHEMA]
    return pa.record_batch([list(operations), *map(list, rest)], schema=pa.schema(fields))


def test_upsert_replaces_the_row_of_the_same_key_and_adds_the_others(drive, query):
    driver = drive(mode="upsert", key=("id",))
    driver.deliver(0, rows((1, "chai", 1), (2, "dosa", 1)))
    driver.deliver(1, rows((2, "idli", 2), (3, "vada", 2)))
    assert query("SELECT * FROM refunds ORDER BY id") == [(1, "chai", 1), (2, "idli", 2), (3, "vada", 2)]


def test_of_several_rows_of_one_key_in_an_epoch_the_last_one_stays(drive, query):
    driver = drive(mode="upsert", key=("id",))
    driver.deliver(0, rows((1, "first", 9), (1, "second", 8)), rows((1, "third", 7)))
    assert query("SELECT merchant FROM refunds") == [("third",)]


def test_with_a_version_the_highest_one_stays_whatever_comes_later(drive, query):
    driver = drive(mode="upsert", key=("id",), version="lsn")
    driver.deliver(0, rows((1, "newest", 9), (1, "older", 8)))
    driver.deliver(1, rows((1, "stale", 9), (2, "other", 1)))
    driver.deliver(2, rows((1, "newer", 10)))
    assert query("SELECT * FROM refunds ORDER BY id") == [(1, "newer", 10), (2, "other", 1)]


def test_a_mirror_inserts_updates_and_deletes_by_key(drive, query):
    driver = drive(mode="mirror", key=("id",), version="lsn")
    driver.deliver(0, changes(("insert", 1, "chai", 1), ("insert", 2, "dosa", 1), ("insert", 3, "vada", 1)))
    driver.deliver(1, changes(("update", 1, "kaapi", 2), ("delete", 2, None, 2), ("delete", 3, None, 0)))
    assert query("SELECT * FROM refunds ORDER BY id") == [(1, "kaapi", 2), (3, "vada", 1)]


def test_a_mirror_of_a_key_that_comes_and_goes_in_one_epoch_ends_as_the_last_change_says(drive, query):
    driver = drive(mode="mirror", key=("id",))
    driver.deliver(
        0, changes(("insert", 1, "a", 1), ("delete", 1, None, 2), ("insert", 2, "b", 1), ("delete", 2, None, 2))
    )
    driver.deliver(1, changes(("insert", 2, "again", 3), ("delete", 7, None, 1)))
    assert query("SELECT * FROM refunds") == [(2, "again", 3)]


@pytest.mark.parametrize("strange", ["upsert", None])
def test_a_change_that_is_none_of_the_three_is_refused_before_it_is_spooled(drive, strange):
    driver = drive(mode="mirror", key=("id",))
    with pytest.raises(SchemaError, match="an operation is one of insert, update, delete"):
        driver.prepare(0, changes(("insert", 1, "a", 1), (strange, 2, "b", 1)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "upsert"}, "need a key"),
        ({"key": ("id",)}, "`append` has none"),
        ({"mode": "upsert", "key": ("id",), "way": "prepared"}, "cannot go the `prepared` way"),
        ({"version": "lsn"}, "mode `append` has no key"),
        ({"table": "pakka_ledger"}, "a table of pakka's own"),
        ({"url": "postgresql://u:secret@[bad"}, "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_opened(options, words):
    with pytest.raises(ConfigError, match=words) as raised:
        PostgresSink(**{"url": "postgresql://localhost/x", "table": "refunds", **options}).target()
    assert "secret" not in str(raised.value)


def test_the_password_is_in_no_repr_and_survives_pickling_only_inside(postgres_url):
    sink = PostgresSink(postgres_url, "refunds")
    for text in (repr(sink), str(sink.address), repr(sink.address), sink.target(), repr(sink.guarantee())):
        assert PASSWORD not in text
        assert PASSWORD.replace("%2F", "/") not in text
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_auto_takes_the_prepared_way_where_the_server_allows_it(postgres_url):
    chosen = PostgresSink(postgres_url, "refunds").choose()
    assert chosen.guarantee().way is Way.PREPARED
    assert "max_prepared_transactions is 64" in chosen.guarantee().because
    assert PostgresSink(postgres_url, "refunds", mode="upsert", key=("id",)).choose().guarantee().way is Way.SPOOLED


def test_auto_takes_the_spooled_way_where_an_epoch_has_more_slots_than_the_server_prepares(postgres_url):
    chosen = PostgresSink(postgres_url, "refunds").choose(slots=65)
    assert chosen.guarantee().way is Way.SPOOLED
    assert "is 64, and an epoch has up to 65 slots" in chosen.guarantee().because
    assert {probe.look().severity for probe in chosen.probes()} == {Severity.FINE, Severity.WARNS}
    forced = PostgresSink(postgres_url, "refunds", way="prepared").choose(slots=65)
    (finding,) = [p.look() for p in forced.probes() if p.name == "max_prepared_transactions"]
    assert finding.severity is Severity.BREAKS
    assert "65 slots" in finding.why


@contextmanager
def server_without_prepared_transactions(monkeypatch):
    monkeypatch.setitem(postgres.SETTINGS, "max_prepared_transactions", "0")
    with postgres.running_server(postgres.need_binaries()) as server:
        yield server.create_database()


def test_auto_takes_the_spooled_way_where_the_server_cannot_prepare_and_prepared_says_so(monkeypatch, tmp_path):
    with server_without_prepared_transactions(monkeypatch) as url:
        chosen = PostgresSink(url, "refunds").choose()
        assert chosen.guarantee().way is Way.SPOOLED
        assert "max_prepared_transactions is 0" in chosen.guarantee().because
        with closing(Driver(chosen, tmp_path).committer) as committer:
            assert committer.ledger().last is None
        driver = Driver(PostgresSink(url, "other", way="prepared"), tmp_path)
        with pytest.raises(SinkError, match="prepared transactions are disabled") as raised:
            driver.prepare(0, rows((1, "chai", 1)))
        assert "way: spooled" in raised.value.hint


def test_the_way_may_change_between_two_epochs_and_nothing_is_applied_twice(drive, query):
    drive(way="prepared").deliver(0, rows((1, "chai", 1)), rows((2, "dosa", 1)))
    spooled = drive(way="spooled", fence=2)
    assert spooled.committer.ledger().last.rows == 2
    spooled.deliver(1, rows((3, "vada", 1)))
    prepared = drive(way="prepared", fence=3)
    assert prepared.committer.ledger().last.epoch.number == 1
    prepared.deliver(2, rows((4, "idli", 1)))
    assert query("SELECT count(*), count(DISTINCT id) FROM refunds") == [(4, 4)]


def test_a_broken_constraint_fails_the_slot_and_names_it_with_an_example(drive, query):
    query("CREATE TABLE refunds (id bigint PRIMARY KEY, merchant text CHECK (merchant <> ''), lsn bigint)")
    driver = drive()
    driver.deliver(0, rows((1, "chai", 1)))
    with pytest.raises(SinkError, match="refunds_pkey") as raised:
        driver.prepare(1, rows((2, "dosa", 1), (1, "again", 1)))
    assert "Key (id)=(1) already exists" in raised.value.message
    assert "dead letters" in raised.value.hint
    with pytest.raises(SinkError, match="refunds_merchant_check") as raised:
        driver.prepare(1, rows((2, "dosa", 1), (3, "", 1)))
    assert "Failing row contains (3, , 1)" in raised.value.message
    assert query("SELECT id FROM refunds") == [(1,)]
    assert query("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()") == [(0,)]


CHECKED = "CONSTRAINT named CHECK (merchant <> '')"
DEFERRED = "CONSTRAINT listed FOREIGN KEY (merchant) REFERENCES merchants DEFERRABLE INITIALLY DEFERRED"
MISSING = 'Key (merchant)=(vada) is not present in table "merchants"'


@pytest.mark.parametrize(
    ("constraint", "merchant", "told"),
    [(CHECKED, "", ("named", "Failing row contains (3, , 1)")), (DEFERRED, "vada", ("listed", MISSING))],
)
@pytest.mark.parametrize("options", [{"way": "prepared"}, {"way": "spooled"}, {"mode": "upsert", "key": ("id",)}])
def test_a_constraint_is_told_with_an_example_whenever_it_is_found(drive, query, options, constraint, merchant, told):
    """The prepared way finds it in the slot, also one that waits for the end of a transaction; the spooled way at the commit."""
    query("CREATE TABLE merchants (name text PRIMARY KEY)")
    query("INSERT INTO merchants VALUES ('chai'), ('dosa')")
    query(f"CREATE TABLE refunds (id bigint PRIMARY KEY, merchant text, lsn bigint, {constraint})")
    driver = drive(**options)
    batch = rows((1, "chai", 1), (3, merchant, 1), (2, "dosa", 1))
    try:
        records = driver.prepare(0, batch)
    except SinkError as error:
        assert options == {"way": "prepared"}
        reason = error.message
    else:
        outcome = commit_epoch(driver.committer, Epoch("refunds", 0, Origin("query", 0, "offsets-0")), records)
        assert outcome.kind is Kind.RETRY
        reason = outcome.reason
    assert all(words in reason for words in told), reason
    assert query("SELECT * FROM refunds") == []


def test_a_second_attempt_at_a_prepared_slot_does_not_wait_for_its_own_keys(drive, query):
    query("CREATE TABLE refunds (id bigint PRIMARY KEY, merchant text, lsn bigint)")
    driver = drive()
    driver.prepare(0, rows((1, "chai", 1)))
    slot = Slot("refunds", "out", 0, 1, 0, attempt=1)
    writer = driver.sink.open_writer(driver.binding, slot, SCHEMA)
    writer.write(rows((1, "chai", 1)))
    record = writer.prepare("0" * 16)
    assert [p.slot for p in driver.committer.pending()] == [slot]
    outcome = commit_epoch(driver.committer, Epoch("refunds", 0, Origin("query", 0, "offsets-0")), [record])
    assert outcome.kind is Kind.COMMITTED


@pytest.mark.parametrize(
    ("change", "error", "words", "hint"),
    [
        (lambda url: url.replace(PASSWORD, "wrong"), SinkError, "password authentication failed", "password"),
        (
            lambda url: url.rpartition("/")[0] + "/nowhere",
            SinkError,
            'database "nowhere" does not exist',
            "make the database",
        ),
        (lambda url: url.replace("pakka:", "nobody:"), SinkError, "authentication failed", "password"),
        (lambda _: "postgresql://pakka:x@127.0.0.1:1/x", UnavailableError, "refused", "server runs"),
    ],
)
def test_a_door_that_does_not_open_is_told_with_what_to_do(postgres_url, tmp_path, change, error, words, hint):
    sink = PostgresSink(change(postgres_url), "refunds")
    with pytest.raises(error, match=words) as raised:
        sink.open_committer(Binding("refunds", "out", str(tmp_path)), 1).raise_fence()
    assert hint in raised.value.hint
    assert PASSWORD not in str(raised.value)


def test_missing_rights_are_told_with_the_grant_that_gives_them(postgres_url, tmp_path, query):
    query("DROP ROLE IF EXISTS clerk")
    query("CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
    sink = PostgresSink(postgres_url.replace(f"pakka:{PASSWORD}", "clerk:clerk"), "refunds")
    with pytest.raises(SinkError, match="permission denied") as raised:
        sink.open_committer(Binding("refunds", "out", str(tmp_path)), 1).raise_fence()
    assert "GRANT" in raised.value.hint


ODD = pa.record_batch(
    [[1, 1], ["x", "y"], ["first", "last"]],
    schema=pa.schema([("select", pa.int64()), ('a"b', pa.string()), ("100 %s", pa.string())]),
)


def test_reserved_words_quotes_and_marks_are_names_like_any_other(drive, query):
    query('CREATE SCHEMA "my ""%(schema)s"')
    drive('"my ""%(schema)s".table', mode="upsert", key=("select",)).deliver(0, ODD)
    assert query('SELECT * FROM "my ""%(schema)s"."table"') == [(1, "y", "last")]


def test_they_are_names_of_prepared_slots_too(drive, query):
    query('CREATE SCHEMA "my ""%(schema)s"')
    drive('"my ""%(schema)s".table').deliver(0, ODD)
    assert query('SELECT * FROM "my ""%(schema)s"."table"') == [(1, "x", "first"), (1, "y", "last")]


def test_columns_are_added_where_the_options_say_so_and_refused_where_not(drive, query):
    query("CREATE TABLE refunds (id bigint, n bigint GENERATED ALWAYS AS IDENTITY)")
    with pytest.raises(SchemaError, match="has no column `merchant`"):
        drive().prepare(0, rows((1, "chai", 1)))
    drive(evolve="add_columns", fence=2).deliver(0, rows((1, "chai", 7)))
    assert query("SELECT id, n, merchant, lsn FROM refunds") == [(1, 1, "chai", 7)]


def test_a_table_that_is_not_there_is_refused_where_it_is_not_to_be_made(drive):
    with pytest.raises(SchemaError, match="there is no table `refunds`"):
        drive(create=False).prepare(0, rows((1, "chai", 1)))


def test_a_column_whose_type_changes_after_the_rows_were_spooled_stops_the_epoch_and_changes_nothing(drive, query):
    driver = drive(way="spooled")
    records = driver.prepare(0, rows((1, "chai", 1)))
    query("ALTER TABLE refunds ALTER lsn TYPE text")
    outcome = commit_epoch(driver.committer, Epoch("refunds", 0, Origin("query", 0, "offsets-0")), records)
    assert outcome.kind is Kind.RETRY
    assert "column `lsn`" in outcome.reason
    assert query("SELECT count(*) FROM refunds") == [(0,)]
    query("ALTER TABLE refunds ALTER lsn TYPE bigint USING lsn::bigint")
    outcome = commit_epoch(driver.committer, Epoch("refunds", 0, Origin("query", 0, "offsets-0")), records)
    assert outcome.kind is Kind.COMMITTED


def test_errors_are_pakkas_own_whatever_happens(drive, query):
    driver = drive()
    query("DROP TABLE pakka_ledger")
    with pytest.raises(PakkaError):
        driver.prepare(0, rows((1, "chai", 1)))
