"""The console sink: honest at-least-once, and harmless to the terminal."""

import io
from pathlib import Path

import pyarrow as pa
import pytest

from pakka.errors import ConfigError
from pakka.model.guarantee import Level
from pakka.model.outcome import COMMITTED, Kind
from pakka.sinks.console import ConsoleApplier, ConsoleSink
from pakka.sinks.spooled import Token
from tests.unit.sinks.spooled_kit import Died, Site, die, epoch, striking


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(ConsoleSink(rows=3), tmp_path, list)


def shown(batch: pa.RecordBatch | None, rows: int = 20, stream: io.TextIOBase | None = None) -> str:
    stream = stream or io.StringIO()
    count = batch.num_rows if batch is not None else 0
    token = Token("refunds.audit", 1, 7, count, "0" * 16, "{}")
    assert ConsoleApplier(rows, stream).apply(token, iter([batch] if batch is not None else []))
    return stream.getvalue()


def test_an_epoch_is_a_small_table():
    batch = pa.record_batch(
        [pa.array(["RFD-1", "RFD-22"]), pa.array([5, 1200]), pa.array(["चाय", None])],
        names=["refund_id", "amount_paise", "note"],
    )
    assert shown(batch) == (
        "refunds.audit · epoch 7 · 2 rows\n"
        "refund_id  amount_paise  note\n"
        "─────────  ────────────  ────\n"
        "RFD-1                 5  चाय\n"
        "RFD-22             1200  null\n"
    )


def test_only_the_first_rows_are_shown_and_the_rest_counted():
    text = shown(pa.record_batch([pa.array(range(5000))], names=["n"]), rows=2)
    assert text.splitlines()[0] == "refunds.audit · epoch 7 · 5,000 rows, 2 shown"
    assert [line.strip() for line in text.splitlines()[3:]] == ["0", "1"]


def test_an_epoch_without_rows_says_so():
    assert shown(None) == "refunds.audit · epoch 7 · 0 rows\n"


def test_rows_cannot_move_the_cursor():
    text = shown(pa.record_batch([pa.array(["\x1b[2Jgone\r\n\x07"])], names=["evil\x1b[31m"]))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b[2Jgone\\r\\n\\x07" in text


def test_long_values_are_cut():
    text = shown(pa.record_batch([pa.array(["x" * 500])], names=["n"]))
    assert text.splitlines()[-1] == "x" * 39 + "…"


def test_a_terminal_without_unicode_still_shows_the_epoch():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    token = Token("refunds.audit", 1, 7, 1, "0" * 16, "{}")
    ConsoleApplier(5, stream).apply(token, iter([pa.record_batch([pa.array(["é"])], names=["n"])]))
    assert raw.getvalue().startswith(b"refunds.audit ? epoch 7 ? 1 row\n")


def test_a_date_that_python_does_not_know_does_not_hold_up_the_epoch():
    assert "(cannot be shown)" in shown(pa.record_batch([pa.array([2932897], pa.date32())], names=["d"]))


def test_it_is_shown_at_the_commit_and_not_before(site, capsys):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    assert capsys.readouterr().out == ""
    assert driver.commit_epoch(epoch(0), records) == COMMITTED
    out = capsys.readouterr().out
    assert out.startswith("refunds.audit · epoch 0 · 12 rows, 3 shown\n")
    assert site.staged() == []


def test_a_crash_after_it_was_shown_shows_it_twice_and_never_loses_it(site, capsys):
    driver = site.driver(1)
    records = site.prepare(0, 1)
    with striking("commit.applied", die), pytest.raises(Died):
        driver.commit_epoch(epoch(0), records)
    assert site.driver(2).commit_epoch(epoch(0), records) == COMMITTED
    assert capsys.readouterr().out.count("epoch 0") == 2
    assert site.staged() == []


def test_it_has_no_ledger_and_says_why_it_is_at_least_once(site):
    assert site.driver(1).ledger().keeps_epochs is False
    guarantee = site.sink.guarantee()
    assert guarantee.level is Level.AT_LEAST_ONCE
    assert "cannot take back" in guarantee.because
    assert site.sink.target() == "standard output"


def test_an_epoch_that_nobody_could_read_is_not_done(site, capsys):
    driver = site.driver(1)
    driver.applier.stream = io.StringIO()
    driver.applier.stream.close()
    records = site.prepare(0, 1)
    outcome = driver.commit_epoch(epoch(0), records)
    assert outcome.kind is Kind.RETRY
    assert "could not be shown" in outcome.reason
    driver.abort([])
    assert len(site.staged()) == 3


def test_a_negative_number_of_rows_is_refused():
    with pytest.raises(ConfigError):
        ConsoleSink(rows=-1)
