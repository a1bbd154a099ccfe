"""The protocol in docs/protocol holds, and its broken forms do not: a small size of what `make model` checks."""

import os
import re

import pytest
from docs.protocol import check

from tests.docs.pages import ROOT

SPECIFICATION = (ROOT / "docs" / "protocol" / "Protocol.tla").read_text(encoding="utf-8")
README = (ROOT / "docs" / "protocol" / "README.md").read_text(encoding="utf-8")

# A broken promise each; the last one only shows in the end. `make model` has them all.
SAMPLE = ["no-fence-in-store", "commit-before-decide", "no-ledger", "no-sweep"]


@pytest.fixture(scope="module")
def checker():
    message = check.missing()
    if message and os.environ.get("CI") == "true":
        pytest.fail(message)
    if message:
        pytest.skip(message)
    return check.check


def test_the_protocol_holds_and_every_epoch_arrives(checker):
    result = checker(check.cases()["small"])
    assert result.violated == "", result.output
    assert result.distinct > 1000, "so few states that the specification must have been stuck"


@pytest.mark.parametrize("name", SAMPLE)
def test_a_broken_protocol_is_found_out(checker, name):
    result = checker(check.cases()[name])
    assert result.violated == check.BROKEN[name][1], result.output


def test_a_checker_that_fails_is_no_success(checker):
    assert checker(check.Case("odd", check.Size(1, 1, 1, 0), broken="no-such")).violated == "?"


def test_the_specification_knows_every_broken_protocol_and_no_other():
    named = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', SPECIFICATION))
    assert named == set(check.BROKEN)


def test_every_promise_of_the_specification_is_checked():
    safety = SPECIFICATION.partition("(* Safety *)")[2]
    assert set(re.findall(r"^(\w+) ==", safety, re.MULTILINE)) == {*check.INVARIANTS, check.LIVENESS}


def test_the_page_tells_the_result_of_every_case_and_the_meaning_of_every_promise():
    rows = re.findall(r"^\| `([\w-]+)` \|", README, re.MULTILINE)
    assert [name for name in check.cases() if rows.count(name) != 1] == []
    assert [name for name in (*check.INVARIANTS, check.LIVENESS) if f"| `{name}` |" not in README] == []
