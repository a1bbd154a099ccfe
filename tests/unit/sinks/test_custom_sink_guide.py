"""The sink of docs/guides/custom-sink.md, taken from that very page, through all that a sink must survive."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from pakka.contract.state import Owner
from pakka.coordinator.epoch import Coordinator, Harvest
from pakka.coordinator.retry import Retry
from pakka.errors import FencedError, SchemaError
from pakka.model.epoch import Checkpoint, Count, Epoch, Origin
from pakka.model.outcome import COMMITTED, Kind
from pakka.model.prepared import SlotReport
from pakka.state.sqlite import SqliteStore
from tests.docs.pages import ROOT, blocks
from tests.unit.sinks import spooled_kit as kit
from tests.unit.sinks.spooled_kit import SCHEMA, Died, Site, die, epoch, expected, refunds, rows_of, striking

PAGE = ROOT / "docs" / "guides" / "custom-sink.md"
BLOCKS = blocks(PAGE)
SQL = next(b.text for b in BLOCKS if b.language == "sql")
CODE = next(b.text for b in BLOCKS if "class RefundTable" in b.text)
ENCODER = next(b.text for b in BLOCKS if b.text.startswith("def open_encoder"))


def site_of(tmp_path: Path, edit: Callable[[str], str] = lambda code: code) -> Site:
    code = edit(CODE)
    namespace: dict = {"__name__": "guide"}
    exec(compile(code, str(PAGE), "exec"), namespace)
    path = tmp_path / "book.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SQL)
    return Site(namespace["RefundTable"](str(path)), tmp_path, rows_of(path, "refund"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_of(tmp_path)


def test_it_is_about_thirty_lines():
    classes = CODE[CODE.index("@dataclass") :]
    assert len([line for line in classes.splitlines() if line.strip()]) <= 40


def test_an_older_fence_changes_nothing(site):
    kit.check_an_older_fence_changes_nothing(site)


def test_a_reader_never_sees_a_part(site, monkeypatch):
    kit.check_a_reader_never_sees_a_part(site, monkeypatch)


def test_death_at_any_statement_leaves_one_copy(site, monkeypatch):
    kit.check_death_at_any_statement_leaves_one_copy(site, monkeypatch)


def test_a_spool_that_was_touched_rolls_back_all(site, monkeypatch):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    with striking("commit.apply", lambda: (_ for _ in ()).throw(OSError("gone"))), pytest.raises(OSError, match="gone"):
        driver.commit_epoch(epoch(0), records)
    assert site.read() == []
    assert driver.commit_epoch(epoch(0), records) == COMMITTED


def test_the_encoder_of_the_page_refuses_before_anything_is_staged(site):
    namespace = {"SchemaError": SchemaError}
    exec(compile(ENCODER, str(PAGE), "exec"), namespace)
    type(site.sink).open_encoder = namespace["open_encoder"]
    site.driver(1)
    assert len(site.prepare(0, 1)) == 3
    encode = site.sink.open_encoder(site.binding, SCHEMA)
    bad = refunds(0, 1).set_column(2, SCHEMA.field(2), pa.array([None], pa.int64()))
    with pytest.raises(SchemaError, match="without an amount"):
        encode(bad)


# --- Broken twins, made by changing the page's own text


def changed(old: str, new: str) -> Callable[[str], str]:
    def edit(code: str) -> str:
        assert code.count(old) == 1, f"the page has no `{old}`, or several"
        return code.replace(old, new)

    return edit


def test_a_ledger_in_a_transaction_of_its_own_is_caught(tmp_path, monkeypatch):
    early = changed("if is_mine:\n", "self.db.commit()\n            if is_mine:\n")
    with pytest.raises(AssertionError):
        kit.check_death_at_any_statement_leaves_one_copy(site_of(tmp_path, early), monkeypatch)


def test_a_fence_that_is_not_checked_is_caught(tmp_path):
    with pytest.raises(pytest.fail.Exception):
        kit.check_an_older_fence_changes_nothing(site_of(tmp_path, changed("AND fence = ?", "AND fence >= ?")))


def test_committing_batch_by_batch_is_caught(tmp_path, monkeypatch):
    piecemeal = changed("list(zip(*rows)))\n", "list(zip(*rows)))\n                    self.db.commit()\n")
    with pytest.raises(AssertionError):
        kit.check_a_reader_never_sees_a_part(site_of(tmp_path, piecemeal), monkeypatch)


def test_a_fence_that_is_not_kept_is_caught_at_the_start(tmp_path):
    forgetful = changed("SET fence = ? WHERE sink = ? AND fence < ?", "SET fence = 0 * ? WHERE sink = ? AND fence < ?")
    with pytest.raises(Exception, match="its applier remembers fence 0"):
        site_of(tmp_path, forgetful).driver(1)


# --- Through the coordinator, with a real state store


class Run:
    """A driver without Spark: epoch N has three slots, and the checkpoint knows what was acknowledged."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.acknowledged = -1
        self.attempt = 0

    def begin(self) -> Coordinator:
        self.coordinator = Coordinator(
            "refunds",
            {"audit": self.site.sink},
            SqliteStore(self.site.path / "state.db"),
            spool=self.site.binding.spool,
            owner=Owner("host", 1, 0.0),
            clock=lambda: 0.0,
            sleep=lambda _: None,
            pool=ThreadPoolExecutor(2),
            retry=Retry(attempts=3),
        )
        planned = self.acknowledged + 1
        digests = {n: f"offsets-{n}" for n in range(planned + 1)}
        is_new = self.acknowledged < 0 and self.attempt == 0
        checkpoint = Checkpoint("cp", None if is_new else "query-1", planned, self.acknowledged, digests)
        self.coordinator.start(checkpoint)
        return self.coordinator

    def prepare(self, at: Epoch, fence: int) -> Harvest:
        self.attempt += 1
        records = self.site.prepare(at.number, fence, attempt=self.attempt)
        return Harvest(3, [SlotReport(n, (p,), Count(p.rows, p.rows)) for n, p in enumerate(records)])

    def deliver(self, number: int) -> bool:
        origin = Origin("query-1", number, f"offsets-{number}")
        report = self.coordinator.deliver(origin, self.prepare)
        self.acknowledged = number
        return report.is_new


POINTS = [
    "begin", "prepared", "decide.before", "decide.after", "commit.apply", "commit.applied", "commit.after",
    "recover.raised", "recover.committed", "recover.settled",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_pipeline_killed_at_any_point_delivers_each_epoch_once(site, point):
    run = Run(site)
    run.begin()
    run.deliver(0)
    with striking("decide.after" if point.startswith("recover") else point, die), pytest.raises(Died):
        run.deliver(1)
    if point.startswith("recover"):
        with striking(point, die), pytest.raises(Died):
            run.begin()
    run.begin()
    for number in (1, 2, 3):
        run.deliver(number)
    run.coordinator.stop()
    assert sorted(site.read()) == sorted(expected(0, 1, 2, 3))
    assert site.staged() == []


def test_an_older_driver_that_wakes_up_is_stopped_and_changes_nothing(site):
    old, new = Run(site), Run(site)
    old.begin()
    old.deliver(0)
    new.acknowledged, new.attempt = 0, 100
    new.begin()
    with pytest.raises(FencedError):
        old.deliver(1)
    new.deliver(1)
    assert sorted(site.read()) == sorted(expected(0, 1))


def test_a_lost_spool_is_refused_and_the_epoch_runs_again(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    driver.abort(records[:1])
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.REFUSED
    assert "is gone" in outcome.reason
    assert site.read() == []
