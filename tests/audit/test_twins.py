"""The auditor passes an honest sink, and fails each of its cheating twins for the right reason."""

import json
import subprocess
import sys

import pytest

from pakka.audit import interrogate
from pakka.audit.host import Host, Lines
from pakka.audit.report import Verdict
from pakka.audit.run import audit
from pakka.contract.audit import ContractGuarantee as G
from pakka.errors import UnavailableError
from pakka.testing.known_bad import FakeReceiver, NaiveWebhookSink
from tests.audit.myisam_twin import FakeMyIsamSink
from tests.audit.twins import BookSink
from tests.docs.pages import ROOT

TWINS = {
    "shows rows at prepare": {G.ISOLATION, G.SEPARATION, G.IDEMPOTENCE, G.REJECTION},
    "commits row by row": {G.ISOLATION},
    "loses the last batch": {G.ISOLATION, G.SEPARATION, G.IDEMPOTENCE, G.REJECTION},
    "forgets prepared rows on restart": {G.SEPARATION},
    "second commit duplicates": {G.IDEMPOTENCE, G.REJECTION},
    "commits a slot twice": {G.IDEMPOTENCE, G.REJECTION},
    "second commit raises": {G.IDEMPOTENCE, G.REJECTION},
    "second abort raises": {G.IDEMPOTENCE},
    "leaks on abort": {G.SEPARATION, G.IDEMPOTENCE},
    "aborts what was committed": {G.IDEMPOTENCE},
    "ignores the fence": {G.REJECTION},
    "checks the fence too early": {G.REJECTION},
    "accepts a used id": {G.REJECTION},
}


def failed(report) -> set[G]:
    return {a.guarantee for a in report.answers if a.verdict is Verdict.FAIL}


def test_an_honest_sink_passes(tmp_path):
    report = audit(BookSink(str(tmp_path / "book.db")), "book")
    assert [e.seen for a in report.answers for e in a.evidence if not e.holds] == []
    assert (report.is_exactly_once, failed(report)) == (True, set())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cheat", TWINS)
def test_a_cheating_twin_fails_the_guarantee_that_it_breaks(tmp_path, cheat, monkeypatch):
    if cheat == "checks the fence too early":
        # Nothing is in the way of its heir, and one that was only slow would let the twin pass.
        monkeypatch.setattr(interrogate, "_BLOCKED_S", 30.0)
    report = audit(BookSink(str(tmp_path / "book.db"), cheat), "book")
    assert failed(report) == TWINS[cheat], [e for a in report.answers for e in a.evidence if not e.holds]
    assert not report.is_exactly_once
    assert all(bool(a.failure) == bool(a.mend) == (a.guarantee in TWINS[cheat]) for a in report.answers)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cheat", ["", *TWINS])
def test_processes_that_are_forked_find_the_same(tmp_path, cheat):
    # In a process of its own: this one has threads, and files open.
    command = [sys.executable, "-m", "tests.audit.forked", str(tmp_path / "book.db"), cheat]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {G[name] for name in json.loads(done.stdout)} == TWINS.get(cheat, set())
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_commits_slot_by_slot_passes_and_is_told_apart(tmp_path):
    report = audit(BookSink(str(tmp_path / "book.db"), "slot by slot"), "book")
    assert [e.seen for a in report.answers for e in a.evidence if e.holds is False] == []
    assert report.answers[0].evidence[1].seen == (
        "a reader who looked while the epoch was committed saw whole slots; this sink commits slot by slot"
    )


def test_a_sink_without_a_commit_is_asked_only_what_it_can_answer(tmp_path):
    report = audit(BookSink(str(tmp_path / "book.db"), "has no commit"), "book")
    assert {a.guarantee: a.verdict for a in report.answers} == {
        G.ISOLATION: Verdict.FAIL,
        G.SEPARATION: Verdict.NOT_APPLICABLE,
        G.IDEMPOTENCE: Verdict.NOT_APPLICABLE,
        G.REJECTION: Verdict.NOT_APPLICABLE,
    }
    assert report.unseen == [str(G.SEPARATION), str(G.IDEMPOTENCE), str(G.REJECTION)]


def test_a_sink_that_ends_its_process_fails_where_it_does(tmp_path):
    report = audit(BookSink(str(tmp_path / "book.db"), "ends its process"), "book")
    assert failed(report) == {G.SEPARATION, G.IDEMPOTENCE, G.REJECTION}
    seen = {e.seen for a in report.answers for e in a.evidence if not e.holds}
    assert seen == {"it raised RuntimeError: its process has ended by itself"}


def test_processes_that_cannot_be_started_are_no_evidence_against_a_sink(tmp_path):
    def ends_at_once(module: str, lines: Lines) -> Host:
        process = subprocess.Popen(["true"])
        process.wait()
        return process

    with pytest.raises(UnavailableError, match="the processes of the audit could not be started"):
        audit(BookSink(str(tmp_path / "book.db")), "book", start=ends_at_once)
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_cannot_be_sent_to_another_process_fails(tmp_path):
    class LocalSink(BookSink):
        pass

    report = audit(LocalSink(str(tmp_path / "book.db")), "book")
    assert failed(report) == {G.SEPARATION, G.IDEMPOTENCE, G.REJECTION}
    assert "local object" in next(e.seen for a in report.answers for e in a.evidence if not e.holds)
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
