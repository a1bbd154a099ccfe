"""The auditor passes an honest sink, and fails each of its cheating twins for the right reason."""

import pytest

from pakka.audit.report import Verdict
from pakka.audit.run import audit
from pakka.contract.audit import ContractGuarantee as G
from pakka.model.guarantee import Level
from pakka.testing.known_bad import FakeMyIsamSink, FakeReceiver, NaiveWebhookSink
from tests.audit.twins import BookSink

TWINS = {
    "shows rows at prepare": {G.ISOLATION, G.SEPARATION, G.IDEMPOTENCE, G.REJECTION},
    "commits row by row": {G.ISOLATION},
    "loses the last batch": {G.ISOLATION, G.SEPARATION, G.IDEMPOTENCE, G.REJECTION},
    "forgets prepared rows on restart": {G.SEPARATION},
    "second commit duplicates": {G.IDEMPOTENCE, G.REJECTION},
    "second commit raises": {G.IDEMPOTENCE, G.REJECTION},
    "second abort raises": {G.IDEMPOTENCE},
    "leaks on abort": {G.SEPARATION, G.IDEMPOTENCE},
    "aborts what was committed": {G.IDEMPOTENCE},
    "ignores the fence": {G.REJECTION},
    "accepts a used id": {G.REJECTION},
}


def failed(report) -> set[G]:
    return {a.guarantee for a in report.answers if a.verdict is Verdict.FAIL}


def test_an_honest_sink_passes(tmp_path):
    report = audit(BookSink(str(tmp_path / "book.db")), "book")
    assert [e.seen for a in report.answers for e in a.evidence if not e.holds] == []
    assert (report.level, failed(report)) == (Level.EXACTLY_ONCE, set())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cheat", TWINS)
def test_a_cheating_twin_fails_the_guarantee_that_it_breaks(tmp_path, cheat):
    report = audit(BookSink(str(tmp_path / "book.db"), cheat), "book")
    assert failed(report) == TWINS[cheat], [e for a in report.answers for e in a.evidence if not e.holds]
    assert report.level is Level.AT_LEAST_ONCE
    assert all(bool(a.failure) == bool(a.mend) == (a.guarantee in TWINS[cheat]) for a in report.answers)
    assert list(tmp_path.iterdir()) == []


def test_a_naive_webhook_keeps_only_what_the_record_keeps_for_it():
    receiver = FakeReceiver()
    try:
        report = audit(NaiveWebhookSink(receiver.url), "webhook")
    finally:
        receiver.close()
    assert failed(report) == {G.ISOLATION, G.IDEMPOTENCE, G.REJECTION}
    assert receiver.received == {}


def test_a_table_without_transactions_keeps_nothing(tmp_path):
    report = audit(FakeMyIsamSink(str(tmp_path / "my.db")), "myisam")
    assert failed(report) == set(G)
    assert list(tmp_path.iterdir()) == []
