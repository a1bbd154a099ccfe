"""The SQLite sink through the life of an epoch, its crashes, and the twins that break a promise."""

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pakka.errors import ConfigError, SchemaError, SinkError, UnavailableError
from pakka.model.epoch import Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Kind
from pakka.sinks import sqlite as module
from pakka.sinks.sqlite import SqliteApplier, SqliteSink
from tests.unit.sinks import spooled_kit as kit
from tests.unit.sinks.spooled_kit import SCHEMA, Died, Site, die, epoch, expected, refunds, rows_of, striking


def site_of(tmp_path: Path, sink_class: type[SqliteSink] = SqliteSink, table: str = "refund_audit", **options) -> Site:
    path = tmp_path / "out" / "audit.db"
    return Site(sink_class(str(path), table, **options), tmp_path, rows_of(path, table))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_of(tmp_path)


def ask(site: Site, sql: str, *values) -> list[tuple]:
    with closing(sqlite3.connect(site.sink.path)) as db:
        return db.execute(sql, values).fetchall()


def change(site: Site, *statements: str) -> None:
    Path(site.sink.path).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(site.sink.path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


# --- The life of an epoch


@pytest.mark.parametrize("rows", [(7,), (5, 4, 3), (0, 4, 0)])
def test_rows_are_invisible_until_the_commit_and_then_all_there(site, rows):
    driver = site.driver(1)
    records = site.prepare(0, 1, rows)
    assert site.read() == []
    assert driver.ledger().last is None
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0, rows=rows)
    assert driver.ledger().last.epoch == epoch(0)
    assert driver.ledger().last.rows == sum(rows)
    assert driver.ledger().last.checksum == f"{sum(range(1, len(rows) + 1)):016x}"
    assert site.staged() == []


def test_opening_a_committer_changes_nothing(site):
    committer = site.sink.open_committer(site.binding, 1)
    assert (committer.ledger().fence, committer.ledger().last) == (0, None)
    committer.close()
    assert not Path(site.sink.path).exists()


def test_another_epoch_of_the_same_number_is_never_taken_for_committed(site):
    driver = site.driver(1)
    driver.commit_epoch(epoch(0), site.prepare(0, 1))
    outcome = driver.commit_epoch(epoch(0, digest="other"), site.prepare(0, 1, attempt=1))
    assert outcome.kind is Kind.RETRY
    assert "its rows are not the same" in outcome.reason
    assert site.read() == expected(0)


def test_abort_after_the_commit_is_refused(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    loser = site.prepare(0, 1, attempt=1)
    driver.commit_epoch(epoch(0), records)
    with pytest.raises(SinkError, match="is committed"):
        driver.abort(records[1:2])
    driver.abort(loser)
    driver.abort(loser)
    driver.commit_epoch(epoch(1), site.prepare(1, 1))
    with pytest.raises(SinkError, match="is committed"):
        driver.abort(records[:1])
    assert site.read() == expected(0, 1)


# --- Crashes


@pytest.mark.parametrize("point", ["commit.apply", "commit.applied"])
@pytest.mark.parametrize("rows", [(5, 4, 3), (0,)])
def test_a_crash_in_the_commit_is_finished_by_the_next_driver(site, point, rows):
    driver = site.driver(1)
    records = site.prepare(0, 1, rows)
    with striking(point, die), pytest.raises(Died):
        driver.commit_epoch(epoch(0), records)
    is_visible = point == "commit.applied"
    assert site.read() == (expected(0, rows=rows) if is_visible else [])
    heir = site.driver(2)
    assert heir.commit_epoch(epoch(0), records) == (ALREADY_COMMITTED if is_visible else COMMITTED)
    assert site.read() == expected(0, rows=rows)
    assert site.staged() == []


def test_what_a_crash_left_of_a_committed_epoch_is_swept_though_its_decision_is_lost(site):
    driver = site.driver(1)
    with striking("commit.applied", die), pytest.raises(Died):
        driver.commit_epoch(epoch(0), site.prepare(0, 1))
    assert len(site.staged()) == 3
    heir = site.driver(2)
    assert site.staged() == []
    assert list(heir.pending()) == []


def test_death_at_any_statement_leaves_one_copy(site, monkeypatch):
    kit.check_death_at_any_statement_leaves_one_copy(site, monkeypatch)


def test_a_commit_without_an_answer_is_unknown_and_the_ledger_tells(site, monkeypatch):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    driver.applier.close()
    driver.applier._db = sqlite3.connect(site.sink.path, isolation_level=None, factory=Deaf)
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.UNKNOWN
    assert "no answer to COMMIT" in outcome.reason
    assert driver.commit_epoch(epoch(0), records) == ALREADY_COMMITTED
    assert site.read() == expected(0)
    assert site.staged() == []


class Deaf(sqlite3.Connection):
    """Carries out COMMIT, and cannot say so."""

    def execute(self, sql, *args):
        answer = super().execute(sql, *args)
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return answer


# --- Fences


def test_an_older_fence_overtaken_in_its_commit_changes_nothing(site):
    kit.check_an_older_fence_changes_nothing(site)


def test_the_ledger_tells_a_fence_that_was_raised_in_one_of_the_two_places_only(site):
    site.driver(1)
    half_raised = site.sink.open_committer(site.binding, 5)
    half_raised.staging.raise_fence()
    assert site.sink.open_committer(site.binding, 2).ledger().fence == 5


# --- What a reader sees


def test_a_reader_never_sees_a_part_of_an_epoch(site, monkeypatch):
    kit.check_a_reader_never_sees_a_part(site, monkeypatch)


def test_a_reader_that_looks_all_the_time_sees_whole_epochs(site):
    driver = site.driver(1)
    counts: set[int] = set()
    is_done = threading.Event()

    def look() -> None:
        while not is_done.is_set():
            counts.add(len(site.read()))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(20):
            driver.commit_epoch(epoch(number), site.prepare(number, 1, (500, 500)))
    finally:
        is_done.set()
        reader.join()
    assert {count % 1000 for count in counts} == {0}
    assert len(site.read()) == 20_000


# --- Broken twins: the same checks must catch them


class LateLedger(SqliteApplier):
    """Commits the rows, and enters the epoch in a second transaction."""

    def apply(self, token, batches):
        with self._transaction() as db:
            fence = db.execute("SELECT fence FROM pakka_fence").fetchone()[0]
            if fence != token.fence:
                return False
            for batch in batches:
                self.table.make(db, batch.schema)
                db.executemany(self.table.insert(batch.schema), zip(*batch.to_pydict().values(), strict=True))
        with self._transaction() as db:
            return self._enter(db, token)


class Fenceless(SqliteApplier):
    """Trusts the look that the committer took at the fence before the transaction."""

    def _enter(self, db, token):
        kept = db.execute("SELECT fence FROM pakka_fence").fetchone()[0]
        return super()._enter(db, replace(token, fence=kept))


class Piecemeal(SqliteApplier):
    """Commits batch by batch."""

    def apply(self, token, batches):
        for batch in batches:
            with self._transaction() as db:
                self.table.make(db, batch.schema)
                db.executemany(self.table.insert(batch.schema), zip(*batch.to_pydict().values(), strict=True))
        with self._transaction() as db:
            return self._enter(db, token)


def twin_of(tmp_path: Path, applier: type[SqliteApplier]) -> Site:
    class Twin(SqliteSink):
        def open_applier(self, binding: Binding) -> SqliteApplier:
            return applier(self, binding)

    return site_of(tmp_path, Twin)


def test_a_ledger_written_after_the_rows_is_caught(tmp_path, monkeypatch):
    with pytest.raises(AssertionError):
        kit.check_death_at_any_statement_leaves_one_copy(twin_of(tmp_path, LateLedger), monkeypatch)


def test_a_fence_that_is_not_checked_with_the_rows_is_caught(tmp_path):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        kit.check_an_older_fence_changes_nothing(twin_of(tmp_path, Fenceless))


def test_rows_committed_piece_by_piece_are_caught(tmp_path, monkeypatch):
    with pytest.raises(AssertionError):
        kit.check_a_reader_never_sees_a_part(twin_of(tmp_path, Piecemeal), monkeypatch)


# --- The spool at the commit


def test_a_harmed_spool_is_refused_by_name_and_nothing_is_applied(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    victim = next((site.path / "spool").glob("*/fence-1/*.1.0/rows.arrow"))
    victim.write_bytes(victim.read_bytes()[:-9])
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.REFUSED
    assert str(victim) in outcome.reason
    assert site.read() == []
    assert driver.ledger().last is None


def test_a_spool_that_is_gone_because_it_was_committed_is_not_refused(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    driver.commit_epoch(epoch(0), records)
    assert site.staged() == []
    assert site.driver(2).commit_epoch(epoch(0), records) == ALREADY_COMMITTED


def test_a_spool_that_cannot_be_emptied_does_not_undo_the_commit(site, monkeypatch):
    driver = site.driver(1)
    records = site.prepare(0, 1)

    def refuse(slot):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(driver.staging, "remove", refuse)
        assert driver.commit_epoch(epoch(0), records) == COMMITTED
    driver.commit_epoch(epoch(1), site.prepare(1, 1))
    driver.abort(driver.pending())
    assert site.staged() == []
    assert site.read() == expected(0, 1)


# --- The ledger


def test_the_ledger_is_bounded(site, monkeypatch):
    monkeypatch.setattr(module, "LEDGER_EPOCHS", 10)
    driver = site.driver(1)
    for number in range(30):
        driver.commit_epoch(epoch(number), site.prepare(number, 1, (1,)))
    kept = ask(site, "SELECT epoch, rows, entry IS NULL FROM pakka_ledger ORDER BY epoch")
    assert kept == [(n, 1, n < 29) for n in range(20, 30)]
    assert driver.commit_epoch(epoch(3), []) == ALREADY_COMMITTED


def test_two_pipelines_may_share_a_table(site):
    other = Binding("returns", "audit", site.binding.spool)
    mine, theirs = site.driver(4), site.sink.open_committer(other, 1)
    assert theirs.raise_fence()
    records = site.prepare(0, 4)
    writer = site.sink.open_writer(other, Slot("returns", "audit", 0, 1, 0, 0), SCHEMA)
    writer.write(refunds(77, 6))
    assert theirs.commit_epoch(epoch(0), [writer.prepare("0" * 16)]) == COMMITTED
    assert mine.commit_epoch(epoch(0), records) == COMMITTED
    assert sorted(site.read()) == sorted(expected(0) + expected(77, rows=(6,)))
    assert mine.ledger().fence == 4
    assert theirs.ledger().fence == 1


def test_the_origin_of_the_newest_epoch_is_remembered(site):
    site.driver(1).commit_epoch(epoch(8), site.prepare(8, 1))
    last = site.sink.open_committer(site.binding, 2).ledger().last
    assert last.epoch.origin == Origin("query-1", 8, "offsets-8")
    assert last.slots is None


def test_a_ledger_of_a_newer_pakka_is_not_misread(site):
    driver = site.driver(1)
    driver.commit_epoch(epoch(0), [])
    change(site, """UPDATE pakka_ledger SET entry = '{"v": 2}'""")
    with pytest.raises(SinkError, match="newer pakka"):
        driver.ledger()


# --- The file


def test_the_file_is_durable_when_the_commit_returns(site):
    driver = site.driver(1)
    assert ask(site, "PRAGMA journal_mode") == [("wal",)]
    assert driver.applier._db.execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_busy_database_is_asked_again_later(tmp_path):
    site = site_of(tmp_path, busy_timeout_s=0.05)
    driver = site.driver(1)
    records = site.prepare(0, 1)
    with closing(sqlite3.connect(site.sink.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        outcome = driver.commit_epoch(epoch(0), records)
        assert outcome.kind is Kind.RETRY
        assert "locked by another process" in outcome.reason
        with pytest.raises(UnavailableError, match="locked by another process"):
            site.driver(2)
        holder.execute("ROLLBACK")
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0)


def test_sinks_that_share_a_file_wait_for_each_other_however_long_it_takes(tmp_path):
    first = site_of(tmp_path, busy_timeout_s=0.01)
    second = Site(SqliteSink(first.sink.path, "other", busy_timeout_s=0.01), tmp_path, rows_of(first.path, "other"))
    second.binding = Binding("refunds", "other", first.binding.spool)
    drivers = [first.driver(1), second.driver(1)]
    records = first.prepare(0, 1)
    is_inside, outcomes = threading.Event(), []

    def linger() -> None:
        is_inside.set()
        time.sleep(0.2)

    def commit() -> None:
        with striking("commit.apply", linger):
            outcomes.append(drivers[0].commit_epoch(epoch(0), records))

    thread = threading.Thread(target=commit)
    thread.start()
    is_inside.wait(10)
    outcomes.append(drivers[1].commit_epoch(epoch(0), []))
    thread.join()
    assert outcomes == [COMMITTED, COMMITTED]
    assert first.read() == expected(0)


def test_a_full_disk_rolls_back_and_is_asked_again(site):
    driver = site.driver(1)
    pages = driver.applier._db.execute("PRAGMA page_count").fetchone()[0]
    driver.applier._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    records = site.prepare(0, 1, (3000,))
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.RETRY
    assert "full" in outcome.reason
    assert site.read() == []
    driver.applier._db.execute("PRAGMA max_page_count = 1000000")
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0, rows=(3000,))


def test_a_file_that_is_replaced_under_us_is_not_written_in_the_dark(site):
    driver = site.driver(1)
    driver.commit_epoch(epoch(0), site.prepare(0, 1))
    records = site.prepare(1, 1)
    for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
        Path(site.sink.path).with_name(name).unlink(missing_ok=True)
    outcome = driver.commit_epoch(epoch(1), records)
    assert outcome.kind is Kind.RETRY
    change(site, "CREATE TABLE unrelated (x)")
    outcome = driver.commit_epoch(epoch(1), records)
    assert outcome.kind is Kind.RETRY
    assert site.read() == []


@pytest.mark.parametrize("what", ["directory", "text", "below a file"])
def test_a_path_that_cannot_be_a_database_is_a_clear_error(tmp_path, what):
    path = tmp_path / "audit.db"
    if what == "directory":
        path.mkdir()
    else:
        path.write_text("this is not a database, and long enough to be sure of it" * 20)
    sink = SqliteSink(str(path / "x.db" if what == "below a file" else path), "t")
    committer = sink.open_committer(Binding("refunds", "audit", str(tmp_path / "spool")), 1)
    with pytest.raises(SinkError, match=r"audit\.db") as caught:
        committer.ledger()
    assert caught.value.hint
    with pytest.raises(SinkError, match=r"audit\.db"):
        committer.raise_fence()


def test_a_file_that_may_not_be_written_is_a_clear_error(site, monkeypatch):
    """Root may write everywhere, so the connection itself is opened as SQLite opens such a file: for reading."""
    site.driver(1).close()
    connect = module._connect
    monkeypatch.setattr(module, "_connect", lambda sink, mode: connect(sink, "ro"))
    with pytest.raises(SinkError, match="readonly database") as caught:
        site.driver(2)
    assert "let the user that runs pakka write" in caught.value.hint


def test_a_file_is_not_made_unless_it_may_be(tmp_path):
    site = site_of(tmp_path, create=False)
    with pytest.raises(SinkError, match="is not there") as caught:
        site.driver(1)
    assert "create: true" in caught.value.hint
    assert not Path(site.sink.path).exists()


def test_a_path_with_signs_that_mean_something_in_a_uri_is_just_a_path(tmp_path):
    path = tmp_path / "a?mode=memory&b#c%20d.db"
    site = Site(SqliteSink(str(path), "t"), tmp_path, rows_of(path, "t"))
    site.driver(1).commit_epoch(epoch(0), site.prepare(0, 1))
    assert site.read() == expected(0)


# --- What a sink is called with


@pytest.mark.parametrize("table", ["", "a\0b", "sqlite_master", "pakka_ledger", "PAKKA_FENCE"])
def test_a_table_that_cannot_hold_rows_is_refused_at_once(table):
    with pytest.raises(ConfigError):
        SqliteSink("x.db", table)


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b"])
def test_a_database_that_would_not_outlive_the_process_is_refused(path):
    with pytest.raises(ConfigError):
        SqliteSink(path, "t")


@pytest.mark.parametrize("options", [{"mode": "upsert"}, {"key": ("id",)}])
def test_upsert_and_key_belong_together(options):
    with pytest.raises(ConfigError, match="needs a key"):
        SqliteSink("x.db", "t", **options)


def test_the_target_is_the_same_wherever_it_is_asked_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = SqliteSink("out/x.db", "t")
    monkeypatch.chdir("/")
    assert sink.target() == f"{tmp_path}/out/x.db, table t"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "table", ['a "quoted" table', "x; DROP TABLE t; --", "select", "चाय", "a'b", "[x]", "1", "a.b"]
)
def test_odd_table_names_are_just_names(tmp_path, table):
    site = site_of(tmp_path, table=table)
    driver = site.driver(1)
    driver.commit_epoch(epoch(0), site.prepare(0, 1))
    driver.commit_epoch(epoch(1), site.prepare(1, 1))
    assert site.read() == expected(0, 1)


def test_upsert_keeps_one_row_a_key(tmp_path):
    site = site_of(tmp_path, mode="upsert", key=("refund_id",))
    driver = site.driver(1)
    driver.commit_epoch(epoch(0), site.prepare(0, 1))
    writer = site.sink.open_writer(site.binding, Slot("refunds", "audit", 1, 1, 0, 0), SCHEMA)
    again = refunds(0, 6)
    writer.write(again.set_column(1, "merchant", ["new"] * 6))
    driver.commit_epoch(epoch(1), [writer.prepare("0" * 16)])
    rows = {row[0]: row for row in site.read()}
    assert len(rows) == len(site.read()) == 13
    assert rows["RFD-0-3"] == ("RFD-0-3", "new", 3)
    assert rows["RFD-0-5"] == ("RFD-0-5", "new", 5)
    assert rows["RFD-0-1000"] == ("RFD-0-1000", "chai corner", 1000)


def test_upsert_needs_a_unique_key_in_the_table_before_anything_is_staged(tmp_path):
    site = site_of(tmp_path, mode="upsert", key=("refund_id",))
    change(site, "CREATE TABLE refund_audit (refund_id TEXT, merchant TEXT, amount_paise INTEGER)")
    site.driver(1)
    with pytest.raises(SchemaError, match="ON CONFLICT") as caught:
        site.prepare(0, 1)
    assert "UNIQUE" in caught.value.hint
    change(site, "CREATE UNIQUE INDEX by_id ON refund_audit (refund_id)")
    assert site.driver(2).commit_epoch(epoch(0), site.prepare(0, 2)) == COMMITTED


def test_a_constraint_that_only_the_commit_can_find_stops_and_changes_nothing(tmp_path):
    site = site_of(tmp_path)
    change(site, "CREATE TABLE refund_audit (refund_id TEXT PRIMARY KEY, merchant TEXT, amount_paise INTEGER)")
    change(site, "INSERT INTO refund_audit VALUES ('RFD-0-3', 'x', 1)")
    driver = site.driver(1)
    records = site.prepare(0, 1)
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.RETRY
    assert "UNIQUE constraint failed" in outcome.reason
    assert len(site.read()) == 1
    assert driver.ledger().last is None
    change(site, "DELETE FROM refund_audit")
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0)
