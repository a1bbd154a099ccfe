"""The page docs/guides/testing-a-sink.md: its harness runs, and what it says of the suite is so."""

import re

from pakka.testing.contract import CASES, Golden, record
from pakka.testing.twins import TWINS
from tests.conformance import guide
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "testing-a-sink.md"
CODE = [b.text for b in blocks(PAGE) if b.language == "python"]
NAMES = {"SQL": guide.SQL, "RefundTable": guide.RefundTable}

exec(compile(CODE[0], str(PAGE), "exec"), NAMES)

# pytest finds it here: the page's own class, over the sink of the other page.
TestRefundTable = NAMES["TestRefundTable"]


def test_the_harness_is_about_forty_lines():
    assert len([line for line in CODE[0].splitlines() if line.strip()]) <= 45


def test_the_record_of_a_release_is_kept_and_read(tmp_path):
    path = tmp_path / "golden.json"
    exec(compile(CODE[1], str(PAGE), "exec"), {**NAMES, "place": tmp_path / "place", "path": path})
    golden = Golden.read(path)
    assert golden.version == "1.0"
    assert golden == record(NAMES["RefundHarness"](tmp_path / "again"), "1.0")


def test_a_case_runs_as_the_page_says(tmp_path):
    exec(compile(CODE[2], str(PAGE), "exec"), {**NAMES, "place": tmp_path})


def test_every_case_that_the_page_names_exists():
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+){2,})`", PAGE.read_text())) - {"amount_paise", "refund_id"}
    assert named
    assert named - set(CASES) == set()


def test_there_are_as_many_twins_as_the_page_says():
    assert "more than fifty sinks that lie" in PAGE.read_text().replace("\n", " ")
    assert len(TWINS) > 50
