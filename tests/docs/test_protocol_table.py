"""The crash table in docs/concepts/protocol.md is the table of crash points in the code."""

import re

from pakka.testing.crash import POINTS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "concepts" / "protocol.md"
COLUMNS = ["crash point", "what is on disk", "what recovery does", "what a reader sees"]


def crash_table(text: str) -> list[list[str]]:
    """The rows of the first table below the heading, its head included."""
    section = text.split("## The crash table", 1)[1]
    lines = re.search(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    assert lines is not None, "no table below `## The crash table`"
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[0].splitlines()]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def test_the_crash_table_has_one_row_for_each_crash_point_in_their_order():
    head, *rows = crash_table(PAGE.read_text(encoding="utf-8"))
    assert head == COLUMNS
    assert [row[0] for row in rows] == [f"`{point}`" for point in POINTS]


def test_no_cell_of_the_crash_table_is_empty():
    rows = crash_table(PAGE.read_text(encoding="utf-8"))
    assert [row for row in rows if len(row) != len(COLUMNS) or not all(row)] == []


def test_a_missing_row_is_noticed():
    text = "## The crash table\n\n| crash point | b |\n| --- | --- |\n| `begin` | x |\n\nafter\n\n| `other` | y |\n"
    assert crash_table(text) == [["crash point", "b"], ["`begin`", "x"]]
