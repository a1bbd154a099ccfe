"""Tables as text: side by side, to the right if numbers, and wrapped to fit."""

import pytest

from pakka.cli.table import draw

ROWS = [["refunds", "1,204", "a row that is long enough to be wrapped"], ["settlements", "-", "short"]]


def lines(rows, room=None, columns=("name", "rows", "because")) -> list[str]:
    return list(draw(columns, rows, room))


def plain(line: str) -> str:
    return line.replace("\x1b[1m", "").replace("\x1b[0m", "")


def test_a_table_is_as_wide_as_it_has_to_be():
    assert [plain(line) for line in lines(ROWS)] == [
        "name          rows  because",
        "refunds      1,204  a row that is long enough to be wrapped",
        "settlements      -  short",
    ]


def test_the_widest_column_is_wrapped_to_fit():
    drawn = [plain(line) for line in lines(ROWS, 40)]
    assert drawn == [
        "name          rows  because",
        "refunds      1,204  a row that is long",
        "                    enough to be wrapped",
        "settlements      -  short",
    ]
    assert max(map(len, drawn)) <= 40


def test_a_terminal_that_is_too_small_gets_narrow_columns():
    assert max(len(plain(line)) for line in lines(ROWS, 5)) == len("settlement") * 2 + len("1,204") + 4


def test_an_error_of_several_lines_stays_in_its_column():
    assert lines([["refunds", "first\nsecond"], ["book", ""]], columns=("a", "b"))[1:] == [
        "refunds  first",
        "         second",
        "book",
    ]


def test_wide_characters_take_two_places():
    assert lines([["返金", "x"], ["abcd", "x"]], columns=("a", "b"))[1:] == ["返金  x", "abcd  x"]


@pytest.mark.parametrize(("cell", "colour"), [("PASS", 32), ("FAIL", 31), ("warns", 33)])
def test_a_verdict_has_its_colour_and_no_more_than_its_letters(cell, colour):
    assert lines([[cell, "x"], ["longer than that", "x"]], columns=("a", "b"))[1].startswith(
        f"\x1b[{colour}m{cell}\x1b[0m "
    )


def test_no_rows_are_a_head_alone():
    assert [plain(line) for line in lines([])] == ["name  rows  because"]
