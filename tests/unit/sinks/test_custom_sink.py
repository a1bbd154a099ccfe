"""What the base of spooled sinks makes of an applier: what it does for a good one, and how it stops a bad one."""

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pakka.errors import BugError, FencedError, SchemaError, SinkError, UnavailableError, UnknownOutcomeError
from pakka.model.guarantee import Level
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Kind
from pakka.sinks.spooled import Applier, SpooledSink
from tests.unit.sinks.spooled_kit import Site, epoch, expected


@dataclass
class Shelf:
    """What outlives a driver."""

    fence: int = 0
    epoch: int = -1
    entry: str = ""
    rows: list[tuple] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    position: str = ""


SHELVES: dict[str, Shelf] = {}


class ShelfApplier(Applier):
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def ledger(self):
        return self.shelf.fence, self.shelf.entry

    def raise_fence(self, fence):
        self.shelf.fence = max(fence, self.shelf.fence)

    def apply(self, token, batches):
        shelf = self.shelf
        if token.fence != shelf.fence or token.epoch <= shelf.epoch:
            return False
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        shelf.rows += rows
        shelf.epoch, shelf.entry = token.epoch, token.entry
        shelf.tokens.append(str(token))
        shelf.position = token.position
        return True


@dataclass(frozen=True)
class ShelfSink(SpooledSink):
    shelf: str

    def target(self):
        return f"shelf {self.shelf}"

    def open_applier(self, binding):
        return ShelfApplier(SHELVES.setdefault(self.shelf, Shelf()))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    name = str(tmp_path)
    return Site(ShelfSink(name), tmp_path, lambda: SHELVES.setdefault(name, Shelf()).rows)


def test_a_sink_travels_to_the_executors(site):
    assert pickle.loads(pickle.dumps(site.sink)) == site.sink


def test_the_base_adds_only_an_option_by_name():
    assert ShelfSink("a").spool_bytes_max == 16 << 30
    assert ShelfSink("a", spool_bytes_max=5).shelf == "a"


def test_the_bound_of_the_spool_is_kept(tmp_path):
    site = Site(ShelfSink("bounded", spool_bytes_max=100), tmp_path, list)
    site.driver(1)
    with pytest.raises(SinkError, match="more than 100 bytes"):
        site.prepare(0, 1)


def test_a_token_is_the_same_at_every_repetition(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    driver.commit_epoch(epoch(0), records)
    driver.commit_epoch(epoch(0), records)
    assert driver.applier.shelf.tokens == ["pakka.refunds.audit.0"]


def test_an_applier_is_told_where_the_source_stands(site):
    driver = site.driver(1)
    bare = epoch(0)
    placed = replace(bare, origin=replace(bare.origin, position="offset 7"))
    assert driver.commit_epoch(placed, site.prepare(0, 1)) == COMMITTED
    assert driver.applier.shelf.position == "offset 7"
    assert driver.ledger().last.epoch.origin.position == "offset 7"


def failing(site: Site, error: Exception):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    original = driver.applier.apply

    def apply(token, batches):
        driver.applier.apply = original
        raise error

    driver.applier.apply = apply
    return driver, records


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnavailableError("away", hint="wait"), Kind.RETRY),
        (SinkError("no room", hint="make room"), Kind.RETRY),
        (SchemaError("no column", hint="add it"), Kind.RETRY),
        (UnknownOutcomeError("silent", hint="ask"), Kind.UNKNOWN),
    ],
)
def test_an_error_that_knows_what_happened_is_an_outcome(site, error, kind):
    driver, records = failing(site, error)
    outcome = driver.commit_epoch(epoch(0), records)
    assert (outcome.kind, outcome.reason, outcome.hint) == (kind, error.message, error.hint)
    assert len(site.staged()) == 3
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0)


@pytest.mark.parametrize("error", [ValueError("what?"), FencedError("fence 1 lost")])
def test_any_other_error_is_the_coordinators_to_judge(site, error):
    driver, records = failing(site, error)
    with pytest.raises(type(error)):
        driver.commit_epoch(epoch(0), records)
    assert len(site.staged()) == 3


def test_an_applier_that_leaves_rows_is_found_and_never_called_right_again(site):
    driver = site.driver(1)
    original = driver.applier.apply
    driver.applier.apply = lambda token, batches: original(token, iter([next(batches)]))
    records = site.prepare(0, 1)
    for _ in range(2):
        with pytest.raises(BugError, match="before it had taken all of its 12 rows"):
            driver.commit_epoch(epoch(0), records)


def test_an_applier_that_refuses_without_a_reason_is_not_taken_for_done(site):
    driver = site.driver(1)
    driver.applier.apply = lambda token, batches: False
    outcome = driver.commit_epoch(epoch(0), site.prepare(0, 1))
    assert outcome.kind is Kind.RETRY
    assert "its applier refused epoch 0" in outcome.reason
    assert len(site.staged()) == 3


def test_an_epoch_committed_between_the_question_and_the_transaction_is_already_committed(site):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    original = driver.applier.apply

    def overtaken(token, batches):
        assert original(token, batches)
        return original(token, iter(()))

    driver.applier.apply = overtaken
    assert driver.commit_epoch(epoch(0), records) == ALREADY_COMMITTED
    assert site.read() == expected(0)
    assert site.staged() == []


def test_a_claim_of_exactly_once_without_a_ledger_is_refused(site):
    driver = site.sink.open_committer(site.binding, 1)
    driver.applier.ledger = lambda: None
    with pytest.raises(SinkError, match="says that it is exactly-once") as caught:
        driver.ledger()
    assert "guarantee" in caught.value.hint
    with pytest.raises(SinkError):
        driver.raise_fence()


def test_the_default_claim_is_exactly_once(site):
    assert site.sink.guarantee().level is Level.EXACTLY_ONCE


def test_a_spool_of_another_sink_is_left_alone(site, tmp_path):
    other = site.path / "spool" / "refunds.audit"
    other.mkdir(parents=True)
    (other / "owner.json").write_text('{"pipeline": "theirs", "sink": "audit"}')
    with pytest.raises(SinkError, match=r"belongs to sink `theirs\.audit`"):
        site.driver(1)


def test_a_spool_that_cannot_be_made_is_a_clear_error(site):
    (site.path / "spool").write_text("a file")
    with pytest.raises(SinkError, match="spool"):
        site.driver(1)


def test_close_closes_the_applier(site):
    driver = site.driver(1)
    closed: list[bool] = []
    driver.applier.close = lambda: closed.append(True)
    driver.close()
    driver.close()
    assert closed == [True, True]
